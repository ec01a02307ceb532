"""RedriveExecution: what goes on, what runs again, and what is refused."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.strict.machines import distributed, machine, task, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict.machines import Machines

HOLDS = ("wait", "done")  # files that a call waits for, and makes


def redrive(machines: Machines, execution: str) -> dict[str, Any]:
    """Redrive; return what DescribeExecution tells at the end."""
    machines.states.redrive_execution(executionArn=execution)
    return machines.wait(execution)


def calls(note: Path) -> list[str]:
    """Return the item of each call of the function that wrote `note`."""
    return note.read_text().split()


def test_it_goes_on_at_the_state_that_failed(machines: Machines, tmp_path: Path) -> None:
    """Earlier states keep their results; count, date and status are reported."""
    mended, note = tmp_path / "mended", tmp_path / "note"
    event = {"fail": "FinalError", "mended": str(mended), "note": str(note), "give": 7}
    states = machine(
        A={"Type": "Pass", "Result": event, "Next": "B"},
        B={
            **task(machines.function()),
            "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}],
        },
    )
    execution = machines.start(states)
    told = machines.wait(execution)
    assert (told["status"], told["redriveStatus"]) == ("FAILED", "REDRIVABLE")
    assert (told["redriveCount"], "redriveDate" in told) == (0, False)
    again = redrive(machines, execution)
    assert (again["status"], again["redriveCount"], len(calls(note))) == ("FAILED", 1, 4)
    mended.touch()
    told = redrive(machines, execution)
    assert (told["status"], told["output"], told["redriveCount"]) == ("SUCCEEDED", "7", 2)
    assert (told["redriveStatus"], "error" in told) == ("NOT_REDRIVABLE", False)
    assert told["redriveStatusReason"] == "Execution is SUCCEEDED and cannot be redriven"
    assert told["redriveDate"] >= again["redriveDate"]
    events = machines.history(execution)
    assert (events.count("PassStateEntered"), events.count("ExecutionRedriven")) == (1, 2)


def test_one_that_was_stopped_before_its_first_state(machines: Machines, tmp_path: Path) -> None:
    """It begins with that state; on a slow machine, where it was entered before, again."""
    event = {"wait": str(tmp_path / "wait"), "done": str(tmp_path / "done"), "give": 7}
    execution = machines.start(machine(A=task(machines.function())), event)
    machines.states.stop_execution(executionArn=execution)
    time.sleep(0.5)  # its thread finds it stopped, and ends
    machines.states.redrive_execution(executionArn=execution)
    (tmp_path / "wait").touch()
    told = machines.wait(execution)
    assert (told["status"], told["output"], told["redriveCount"]) == ("SUCCEEDED", "7", 1)


def test_a_request_that_is_sent_again_redrives_once(machines: Machines) -> None:
    """The answer to a client token that was used is the same, also while the execution runs."""
    execution = machines.start(machine(A={"Type": "Fail", "Error": "WorkLeft"}))
    machines.wait(execution)
    redrive = machines.states.redrive_execution
    first, again = (redrive(executionArn=execution, clientToken="one") for _ in range(2))
    assert again["redriveDate"] == first["redriveDate"]
    assert machines.wait(execution)["redriveCount"] == 1
    for number in range(10):
        redrive(executionArn=execution, clientToken=f"later-{number}")
        machines.wait(execution)
    redrive(executionArn=execution, clientToken="one")  # the last ten are known
    assert machines.wait(execution)["redriveCount"] == 12


def test_a_call_from_before_the_redrive_changes_nothing(machines: Machines, tmp_path: Path) -> None:
    """Its result comes while the redriven execution waits for that of the second call."""
    note, function = tmp_path / "note", machines.function()
    count = "$$.Execution.RedriveCount"
    event = {"note": str(note), "give.$": count}
    event |= {f"{what}.$": f"States.Format('{tmp_path}/{what}-{{}}', {count})" for what in HOLDS}
    items = {"StartAt": "One", "States": {"One": task(function, Parameters=event)}}
    work = machine(M={"Type": "Map", "ItemProcessor": items, "ItemsPath": "$.items", "End": True})
    states = machine(P={"Type": "Parallel", "Branches": [work], "End": True})
    execution = machines.start(states, {"items": [0]})
    until(lambda: note.exists() or None)
    machines.states.stop_execution(executionArn=execution)
    machines.states.redrive_execution(executionArn=execution)
    until(lambda: len(calls(note)) == 2 or None)
    (tmp_path / "wait-0").touch()
    until(lambda: (tmp_path / "done-0").exists() or None)
    machines.functions.invoke(FunctionName=function, Payload=b"{}")  # long after the result
    assert machines.states.describe_execution(executionArn=execution)["status"] == "RUNNING"
    (tmp_path / "wait-1").touch()
    told = machines.wait(execution)
    assert (told["status"], told.get("output"), len(calls(note))) == ("SUCCEEDED", "[[1]]", 2)


def test_a_fail_state_fails_again(machines: Machines) -> None:
    """It is entered again, with the same error."""
    execution = machines.start(machine(A={"Type": "Fail", "Error": "WorkLeft", "Cause": "two"}))
    assert machines.wait(execution)["error"] == "WorkLeft"
    told = redrive(machines, execution)
    assert (told["status"], told["error"], told["redriveCount"]) == ("FAILED", "WorkLeft", 1)


@pytest.mark.parametrize("kind", ["EXPRESS", "STANDARD"])
def test_a_map_run_goes_on_with_what_failed(machines: Machines, tmp_path: Path, kind: str) -> None:
    """Children that succeeded do not run again; failed and pending ones do, in the same Map Run."""
    mended, note = tmp_path / "mended", tmp_path / "note"
    event = {"item.$": "$.item", "fail.$": "$.fail", "give.$": "$.item"}
    event |= {"mended": str(mended), "note": str(note)}
    child = task(machines.function(), Parameters=event)
    items = [{"item": n, "fail": "FinalError" if n == 1 else ""} for n in range(4)]
    state = distributed(child, kind, MaxConcurrency=1, Next="After")
    del state["End"]
    states = machine(M=state, After={"Type": "Pass", "End": True})
    execution = machines.start(states, {"items": items})
    assert machines.wait(execution)["error"] == "States.ExceedToleratedFailureThreshold"
    first = machines.map_run(execution)
    counts = first["executionCounts"]
    assert (counts["succeeded"], counts["failed"], counts["pending"]) == (1, 1, 2)
    mended.touch()
    told = redrive(machines, execution)
    assert (told["status"], told["output"]) == ("SUCCEEDED", "[0,1,2,3]")
    assert calls(note) == ["0", "1", "1", "2", "3"]
    run = machines.map_run(execution)
    assert (run["mapRunArn"], run["redriveCount"]) == (first["mapRunArn"], 1)
    counts = run["executionCounts"]
    assert (counts["succeeded"], counts["total"], counts["pendingRedrive"]) == (4, 4, 0)


def test_a_standard_child_goes_on_where_it_failed(machines: Machines, tmp_path: Path) -> None:
    """Its first state, which succeeded, does not run again."""
    mended, note = tmp_path / "mended", tmp_path / "note"
    function = machines.function()
    state = distributed({"Type": "Pass"}, "STANDARD")
    state["ItemProcessor"] |= machine(
        A=task(function, Parameters={"note": str(note), "item": "A"}, ResultPath=None)
        | {"Next": "B"},
        B=task(function, Parameters={"fail": "FinalError", "mended": str(mended), "give": 1}),
    )
    del state["ItemProcessor"]["States"]["A"]["End"]
    execution = machines.start(machine(M=state), {"items": [{}]})
    machines.wait(execution)
    (child,) = machines.states.list_executions(mapRunArn=machines.map_run(execution)["mapRunArn"])[
        "executions"
    ]
    told = machines.states.describe_execution(executionArn=child["executionArn"])
    assert told["redriveStatus"] == "REDRIVABLE_BY_MAP_RUN"
    with pytest.raises(ClientError, match="ExecutionNotRedrivable"):
        machines.states.redrive_execution(executionArn=child["executionArn"])
    mended.touch()
    assert redrive(machines, execution)["output"] == "[1]"
    assert calls(note) == ["A"]


def test_a_result_too_large_runs_the_whole_map_again(machines: Machines, tmp_path: Path) -> None:
    """After States.DataLimitExceeded the redrive starts a new Map Run."""
    note = tmp_path / "note"
    child = task(machines.function(), Parameters={"note": str(note), "size": 100_000})
    execution = machines.start(machine(M=distributed(child)), {"items": [1, 2, 3]})
    assert machines.wait(execution)["error"] == "States.DataLimitExceeded"
    assert redrive(machines, execution)["error"] == "States.DataLimitExceeded"
    assert len(machines.states.list_map_runs(executionArn=execution)["mapRuns"]) == 2
    assert len(calls(note)) == 6


def test_items_that_were_not_there(machines: Machines) -> None:
    """States.ItemReaderFailed starts no Map Run; the redrive starts the first one."""
    bucket = machines.bucket()
    state = distributed(
        {"Type": "Pass"},
        ItemReader={
            "Resource": "arn:aws:states:::s3:getObject",
            "ReaderConfig": {"InputType": "JSONL"},
            "Parameters": {"Bucket": bucket, "Key": "late.jsonl"},
        },
    )
    execution = machines.start(machine(M=state))
    assert machines.wait(execution)["error"] == "States.ItemReaderFailed"
    assert machines.states.list_map_runs(executionArn=execution)["mapRuns"] == []
    machines.s3.put_object(Bucket=bucket, Key="late.jsonl", Body=b"1\n2\n")
    assert redrive(machines, execution)["output"] == "[1,2]"


def test_a_stopped_execution(machines: Machines, tmp_path: Path) -> None:
    """It calls and retries nothing more, keeps its status, and is redrivable."""
    go, note = tmp_path / "go", tmp_path / "note"
    event = {"wait": str(go), "note": str(note), "fail": "FinalError", "mended": str(go)}
    retry = [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 5}]
    execution = machines.start(machine(A=task(machines.function(), Retry=retry)), event)
    until(lambda: note.exists() or None)
    machines.states.stop_execution(executionArn=execution)
    told = machines.wait(execution)
    assert (told["status"], told["redriveStatus"]) == ("ABORTED", "REDRIVABLE")
    go.touch()
    assert redrive(machines, execution)["status"] == "SUCCEEDED"
    assert len(calls(note)) == 2


def test_a_stopped_map_starts_no_more_children(machines: Machines, tmp_path: Path) -> None:
    """The Express child at work ends, the Map Run is ABORTED, and a redrive does the rest."""
    go, note = tmp_path / "go", tmp_path / "note"
    child = task(machines.function(), Parameters={"wait": str(go), "note": str(note)})
    state = distributed(child, MaxConcurrency=1)
    execution = machines.start(machine(M=state), {"items": [1, 2, 3]})
    until(lambda: note.exists() or None)
    machines.states.stop_execution(executionArn=execution)
    go.touch()

    def aborted() -> bool | None:
        return machines.map_run(execution)["status"] == "ABORTED" or None

    until(aborted)
    assert len(calls(note)) == 1
    told = redrive(machines, execution)
    assert (told["status"], len(json.loads(told["output"]))) == ("SUCCEEDED", 3)
    assert len(calls(note)) == 3


def test_what_is_not_redrivable(machines: Machines, tmp_path: Path) -> None:
    """Running and succeeded executions, those of a deleted state machine, and unknown ones."""
    go = tmp_path / "go"
    execution = machines.start(machine(A=task(machines.function())), {"wait": str(go)})
    for reason in ("Execution is RUNNING", "Execution is SUCCEEDED"):
        with pytest.raises(machines.states.exceptions.ExecutionNotRedrivable, match=reason):
            machines.states.redrive_execution(executionArn=execution)
        go.touch()
        machines.wait(execution)
    failed = machines.start(machine(A={"Type": "Fail"}))
    arn = machines.wait(failed)["stateMachineArn"]
    machines.states.delete_state_machine(stateMachineArn=arn)
    with pytest.raises(machines.states.exceptions.ExecutionNotRedrivable, match="DELETING"):
        machines.states.redrive_execution(executionArn=failed)
    with pytest.raises(machines.states.exceptions.ExecutionDoesNotExist):
        machines.states.redrive_execution(executionArn=f"{failed}-gone")


def test_the_period_to_redrive(limited: Callable[[str, float], Machines]) -> None:
    """After 14 days, here none, an execution is not redrivable."""
    machines = limited("REDRIVABLE_SECONDS", 0)
    failed = machines.start(machine(A={"Type": "Fail"}))
    assert machines.wait(failed)["redriveStatus"] == "NOT_REDRIVABLE"
    with pytest.raises(machines.states.exceptions.ExecutionNotRedrivable, match="period"):
        machines.states.redrive_execution(executionArn=failed)


def test_the_definition_of_the_start_counts(machines: Machines) -> None:
    """An update in between does not change what a redrive runs."""
    failed = machines.start(machine(A={"Type": "Fail", "Error": "Old"}))
    arn = machines.wait(failed)["stateMachineArn"]
    changed = json.dumps(machine(A={"Type": "Pass", "End": True}))
    machines.states.update_state_machine(stateMachineArn=arn, definition=changed)
    assert redrive(machines, failed)["error"] == "Old"


@pytest.mark.parametrize("kind", ["Parallel", "Map"])
def test_only_branches_that_failed_run_again(machines: Machines, tmp_path: Path, kind: str) -> None:
    """The branch that succeeded keeps its output; the other continues at its second state."""
    mended, note = tmp_path / "mended", tmp_path / "note"
    function = machines.function()
    event = {"item.$": "$.item", "note": str(note)}
    first = {**task(function, Parameters=event, ResultPath=None), "Next": "Last"}
    del first["End"]
    last_event = {"fail.$": "$.fail", "give.$": "$.item", "mended": str(mended)}
    branch = machine(First=first, Last=task(function, Parameters=last_event))
    items = [{"item": "a", "fail": ""}, {"item": "b", "fail": "FinalError"}]
    around: dict[str, Any] = {"Type": kind, "End": True}
    if kind == "Map":
        around |= {"ItemsPath": "$.items", "ItemProcessor": branch}
    else:
        for n in range(2):
            chosen = json.loads(json.dumps(branch))
            chosen["States"]["First"]["InputPath"] = f"$.items[{n}]"
            chosen["States"]["Last"]["InputPath"] = f"$.items[{n}]"
            around.setdefault("Branches", []).append(chosen)
    execution = machines.start(machine(A=around), {"items": items})
    assert machines.wait(execution)["error"] == "FinalError"
    mended.touch()
    assert json.loads(redrive(machines, execution)["output"]) == ["a", "b"]
    assert sorted(calls(note)) == ["a", "b"]
