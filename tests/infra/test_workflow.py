"""The state machine's definition."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from infra.maps import LINES
from infra.retries import WAIT_SECONDS
from s3unzip.planning.lists import MAX_OVERLAP_SECONDS
from s3unzip.runs.rounds import MAX_WAIT, next_round

from infra.reasons import resources_of
from infra.workflow import RUN_DAYS
from s3unzip import errors, rates
from s3unzip.aws.executions import MAX_INPUT
from s3unzip.settings import EXPRESS_END, EXPRESS_SECONDS, Tuning
from tests.infra.templates import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.infra.templates import Synthesized

HISTORY = 25_000  # events of one execution (quotas of Step Functions)
# Map: entered, run started, run ended, exited; Task: entered, scheduled, started, succeeded,
# exited; Choice and Wait: entered, exited.
ROUND_EVENTS = 4 + 5 + 2 + 2
SNAPSHOT = Path(__file__).with_name("workflow.json")
THROTTLED = "Lambda.TooManyRequestsException"
SERVICE_ERRORS = {"States.TaskFailed", "States.ALL", THROTTLED}
WORKERS = {
    "Scan": "extract",
    "Rescan": "extract",
    "Extract": "extract",
    "Extract slices": "extract",
    "Scan beside": "extract",
    "Slices when linked": "extract",
    "Redo": "extract",
}
WAITING = "Slices when linked"  # its children wait for the link step
WARM_MAP = "Warm workers"
WARM = {"Warm worker": "Extract", "Warm report": "Report"}  # tasks that only start an environment
INLINE = {"Scan inline", "Extract inline", "Extract slices inline"}
# An iteration of an inline Map: started, task entered, task exited, the state for what is left
# entered and exited, succeeded; an attempt: scheduled, started, ended.
ITEM_EVENTS, ATTEMPT_EVENTS = 6, 3


def each_state(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and state of a definition, those of branches and Maps too."""
    for name, state in definition["States"].items():
        yield name, state
        inner = state.get("Branches", [])
        for one in [*inner, state["ItemProcessor"]] if "ItemProcessor" in state else inner:
            yield from each_state(one)


def states_of(made: Synthesized) -> dict[str, dict[str, Any]]:
    """Return all states of the state machine by their names."""
    return dict(each_state(made.definition()))


def maps_of(made: Synthesized, *, inline: bool = False) -> dict[str, dict[str, Any]]:
    """Return the Distributed or the inline Maps of the state machine by their names."""
    return {
        name: state
        for name, state in each_state(made.definition())
        if state["Type"] == "Map" and ("ItemReader" in state) is not inline and name != WARM_MAP
    }


def work_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return the task of a Map's child that calls a function."""
    (task,) = (
        one
        for one in state["ItemProcessor"]["States"].values()
        if one["Type"] == "Task" and "FunctionName" in one["Parameters"]
    )
    return dict(task)


def test_definition_is_the_one_on_record(dev: Synthesized) -> None:
    """A change of the state machine shows in its snapshot (UPDATE_SNAPSHOTS=1 writes it)."""
    text = json.dumps(dev.definition(), indent=2) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert SNAPSHOT.read_text() == text


def test_every_error_name_exists(dev: Synthesized) -> None:
    """What the state machine matches is raised under that name by the package, or by AWS."""
    names = {
        name
        for _, state in each_state(dev.definition())
        for retry in state.get("Retry", []) + state.get("Catch", [])
        for name in retry["ErrorEquals"]
    }
    for name in names - SERVICE_ERRORS:
        raised = getattr(errors, name)
        assert issubclass(raised, errors.S3UnzipError)
        # A worker that ran out of time has no more of it in the same child.
        assert not raised.retryable or raised is errors.DeadlineError


def test_retries_back_off_with_jitter(dev: Synthesized) -> None:
    """Every task that is tried again waits longer each time, and not in step with others."""
    tasks = [(name, s) for name, s in each_state(dev.definition()) if s["Type"] == "Task"]
    assert len(tasks) == 20
    for name, task in tasks:
        if name in WARM:
            assert "Retry" not in task
            continue
        for retry in task["Retry"]:
            if name.endswith(": linked?"):  # all slices begin at the same time anyway
                assert (retry["IntervalSeconds"], retry["BackoffRate"]) == (1, 1)
            elif retry["MaxAttempts"]:
                assert retry["JitterStrategy"] == "FULL"
                assert retry["BackoffRate"] > 1


def test_maps_read_lines_and_keep_nothing(dev: Synthesized) -> None:
    """Maps are distributed with Express children, read JSON lines and discard results."""
    maps = maps_of(dev)
    assert set(maps) == set(WORKERS)
    for state in maps.values():
        processor = state["ItemProcessor"]["ProcessorConfig"]
        assert processor == {"Mode": "DISTRIBUTED", "ExecutionType": "EXPRESS"}
        assert state["ItemReader"]["ReaderConfig"] == {"InputType": "JSONL"}
        assert state["ResultPath"] is None
        assert "MaxConcurrencyPath" in state
    tolerated = {name: state.get("ToleratedFailurePercentage") for name, state in maps.items()}
    assert not tolerated.pop("Redo")
    assert not tolerated.pop("Rescan")
    assert set(tolerated.values()) == {100}


def test_short_lists_go_through_inline_maps(dev: Synthesized) -> None:
    """Each list of the first round has an inline Map, which the input's list chooses."""
    maps = maps_of(dev, inline=True)
    assert set(maps) == INLINE
    for name, state in maps.items():
        assert state["ItemProcessor"]["ProcessorConfig"] == {"Mode": "INLINE"}
        assert "MaxConcurrencyPath" in state
        assert state["ResultPath"] is None
        other = name.removesuffix(" inline")
        choice = states_of(dev)[f"{other}: a short list?"]
        (short,) = choice["Choices"]
        assert (short["Variable"], short["IsPresent"]) == (state["ItemsPath"], True)
        assert (short["Next"], choice["Default"]) == (name, other)
        assert state["Next"] == maps_of(dev)[other]["Next"]


def test_an_inline_map_tolerates_every_failure(dev: Synthesized) -> None:
    """Each iteration ends without a failure; its worker is retried as that of a child is."""
    for name, state in maps_of(dev, inline=True).items():
        iteration = state["ItemProcessor"]
        task = iteration["States"][iteration["StartAt"]]
        (caught,) = task["Catch"]
        assert caught["ErrorEquals"] == ["States.ALL"]
        assert iteration["States"][caught["Next"]]["Type"] == "Pass"
        assert task["Retry"] == work_of(maps_of(dev)[name.removesuffix(" inline")])["Retry"]
        assert "entered.$" not in task["Parameters"]["Payload"]  # no child, no end of it
        for end in (one for one in iteration["States"].values() if one.get("End")):
            assert end["OutputPath"] is None


def test_no_result_is_too_large_for_a_state(dev: Synthesized) -> None:
    """What children return is written below the run; a state never carries it.

    Without a ResultWriter the result of a Map is an array of what all children
    returned, and the execution dies when that is more than 256 KiB.
    """
    for name, state in maps_of(dev).items():
        writer = state["ResultWriter"]
        assert writer["Resource"].endswith(":states:::s3:putObject")
        assert writer["Parameters"] == {"Bucket.$": "$.work.bucket", "Prefix.$": "$.work.maps"}
        assert writer["WriterConfig"] == {"OutputType": "JSONL", "Transformation": "COMPACT"}
        ends = [s for s in state["ItemProcessor"]["States"].values() if s.get("End")]
        assert len(ends) == (3 if name == WAITING else 2)
        for end in ends:
            assert end["OutputPath"] is None  # {}


def test_a_throttled_child_does_not_fail(dev: Synthesized) -> None:
    """A child without a free worker succeeds in time, and a later round repeats its task."""
    for name, state in maps_of(dev).items():
        child, task = state["ItemProcessor"], work_of(state)
        (caught,) = task["Catch"]
        assert caught["ErrorEquals"] == [THROTTLED]
        assert child["States"][caught["Next"]]["Type"] == "Pass"
        (retry,) = (one for one in task["Retry"] if one["ErrorEquals"] == [THROTTLED])
        waits = [
            min(retry["MaxDelaySeconds"], retry["IntervalSeconds"] * retry["BackoffRate"] ** n)
            for n in range(retry["MaxAttempts"])
        ]
        made = dev.properties("AWS::Lambda::Function", f"Functions{WORKERS[name].title()}")
        work = made["Timeout"]
        if name == WAITING:  # only short slices wait
            work = MAX_OVERLAP_SECONDS + WAIT_SECONDS
        assert sum(waits) + work <= EXPRESS_SECONDS - EXPRESS_END


def test_a_worker_knows_when_its_child_ends(dev: Synthesized) -> None:
    """Each worker gets the start time of its child, and is not retried after the child's end."""
    for name, state in maps_of(dev).items():
        task = work_of(state)
        first = "$$.Execution.StartTime" if name == WAITING else "$$.State.EnteredTime"
        assert task["Parameters"]["Payload"]["entered.$"] == first
        (final,) = (one for one in task["Retry"] if "DeadlineError" in one["ErrorEquals"])
        assert final["MaxAttempts"] == 0


def test_steps_wait_long_for_a_worker(dev: Synthesized) -> None:
    """Link and report of a throttled account are tried again for more than a day."""
    for name in ("Link", "Link again", "Link anyway", "Report", "Report again"):
        state = states_of(dev)[name]
        (retry,) = (one for one in state["Retry"] if one["ErrorEquals"] == [THROTTLED])
        assert retry["MaxAttempts"] * retry["MaxDelaySeconds"] / 2 > 86_400  # half: full jitter
        assert retry["MaxAttempts"] * 3 < HISTORY / 4


def test_what_is_left_is_repeated_until_nothing_is(dev: Synthesized) -> None:
    """After each round with unfinished tasks the run waits and continues; no state gives up."""
    states = dev.definition()["States"]
    assert not any(state["Type"] == "Fail" for state in states.values())
    walked = ["Report"]
    for _ in range(7):
        state = states[walked[-1]]
        walked.append(state["Default"] if state["Type"] == "Choice" else state["Next"])
    assert walked[1:4] == ["Anything left?", "Redo", "Report again"]
    assert walked[4:] == ["All done?", "Wait for workers", "Redo", "Report again"]
    assert states["Wait for workers"]["SecondsPath"] == "$.settled.wait"
    for name in ("Anything left?", "All done?"):
        (done,) = states[name]["Choices"]
        assert (done["Variable"], done["NumericEquals"]) == ("$.settled.left", 0)
        assert done["Next"] == "Done"
    assert states["Report again"]["Parameters"]["Payload"]["earlier.$"] == "$.settled"


def test_scans_without_a_worker_are_repeated(dev: Synthesized) -> None:
    """Scans are repeated like tasks; after one that fails, the members are linked without it."""
    states = states_of(dev)
    walked = ["Scan"]
    for _ in range(7):
        state = states[walked[-1]]
        walked.append(state["Default"] if state["Type"] == "Choice" else state["Next"])
    assert walked[1:5] == ["Link", "All scanned?", "Wait for scanners", "Rescan"]
    assert walked[5:] == ["Link again", "All scanned now?", "Wait for scanners"]
    (caught,) = states["Rescan"]["Catch"]
    assert (caught["ErrorEquals"], caught["Next"]) == (["States.ALL"], "Link anyway")
    assert states["Link anyway"]["Parameters"]["Payload"]["anyway"] is True
    assert states["Link anyway"]["Next"] == "Extract slices: a short list?"


def test_a_redrive_repeats_what_failed(dev: Synthesized) -> None:
    """Every state that can fail is a Map or a task, which a redrive runs again.

    A Fail state would only fail again (developer guide of Step Functions,
    "Restarting executions with redrive").
    """
    kinds = {state["Type"] for _, state in each_state(dev.definition())}
    assert kinds == {"Choice", "Map", "Parallel", "Pass", "Succeed", "Task", "Wait"}


def test_small_members_do_not_wait_for_huge_ones(dev: Synthesized) -> None:
    """One branch extracts whole members, the other one scans, links and extracts slices."""
    work = states_of(dev)["Work"]
    whole, split, _ = (set(dict(each_state(branch))) for branch in work["Branches"])
    assert {"Extract", "Extract inline"} <= whole
    assert {"Scan", "Scan inline", "Link", "Rescan", "Extract slices"} <= split
    assert work["Next"] == "Report"


@pytest.mark.parametrize(("name", "function"), WARM.items())
def test_a_call_that_warms_may_fail(dev: Synthesized, name: str, function: str) -> None:
    """It is given nothing to do and little time, is not retried, and no error leaves it.

    A worker is called asynchronously, so nobody waits for its cold start. The report function's
    asynchronous events are those of failed executions, which are kept if they fail.
    """
    task = states_of(dev)[name]
    kind = {"InvocationType": "Event"} if function == "Extract" else {}
    assert task["Parameters"] == {
        "FunctionName": f"Functions{function}.Arn",
        "Payload": {"warm": True},
        **kind,
    }
    assert (task["TimeoutSeconds"], "Retry" in task) == (30, False)
    (caught,) = task["Catch"]
    assert caught["ErrorEquals"] == ["States.ALL"]
    assert states_of(dev)[caught["Next"]]["Type"] == "Pass"


def test_cold_starts_run_beside_other_work(dev: Synthesized) -> None:
    """Workers start while the planner is at work, the report while tasks are."""
    prepare, work = (states_of(dev)[name] for name in ("Prepare", "Work"))
    assert [branch["StartAt"] for branch in prepare["Branches"]] == ["Plan", "Any workers?"]
    assert (prepare["OutputPath"], prepare["Next"]) == ("$[0]", "Refused?")  # the planner's answer
    assert work["Branches"][-1]["StartAt"] == "Warm report"
    workers = states_of(dev)[WARM_MAP]
    assert workers["ItemProcessor"]["StartAt"] == "Warm worker"
    (given,) = states_of(dev)["Any workers?"]["Choices"]
    assert (given["Variable"], given["IsPresent"]) == (workers["ItemsPath"], True)


def test_events_of_workers_are_soon_dropped(dev: Synthesized) -> None:
    """Only "Warm worker" calls asynchronously; its events are tried once and live for a minute."""
    called = {
        name
        for name, state in states_of(dev).items()
        if state["Type"] == "Task" and state["Parameters"].get("InvocationType") == "Event"
    }
    assert called == {"Warm worker"}
    config = dev.properties("AWS::Lambda::EventInvokeConfig", "FunctionsExtractEventInvokeConfig")
    assert config["FunctionName"]["Ref"].startswith("FunctionsExtract")
    assert config["Qualifier"] == "$LATEST"
    assert config["MaximumRetryAttempts"] == 0
    assert config["MaximumEventAgeInSeconds"] == 60  # Lambda's minimum
    assert "DestinationConfig" not in config  # a lost event costs a cold start, nothing else


def test_slices_wait_for_the_link_step_without_a_worker(dev: Synthesized) -> None:
    """Their children ask S3 each second; one that waited too long ends without a failure."""
    states = states_of(dev)
    together = states["Scan and slices"]
    scans, link, slices = together["Branches"]
    assert (scans["StartAt"], slices["StartAt"]) == ("Scan beside", WAITING)
    child = slices["States"][WAITING]["ItemProcessor"]
    look = child["States"][child["StartAt"]]
    assert look["Resource"].endswith(":aws-sdk:s3:headObject")
    assert child["States"][look["Next"]] == work_of(slices["States"][WAITING])
    (retry,), (caught,) = look["Retry"], look["Catch"]
    assert (retry["ErrorEquals"], caught["ErrorEquals"]) == (["States.TaskFailed"], ["States.ALL"])
    assert child["States"][caught["Next"]]["Type"] == "Pass"
    # The link step waits less for the scans than the slices for the link step.
    patience = link["States"]["Link when scanned"]["Parameters"]["Payload"]["patience"]
    assert patience < retry["MaxAttempts"] * retry["IntervalSeconds"] == WAIT_SECONDS
    (linked,) = states["Linked in time?"]["Choices"]
    assert (linked["Next"], states["Linked in time?"]["Default"]) == ("Slices extracted", "Link")


def test_rounds_fit_into_the_history(dev: Synthesized) -> None:
    """Of seven days full of rounds the history has room, after inline Maps with every retry."""
    attempts = max(
        1 + sum(retry["MaxAttempts"] for retry in state["Retry"])
        for name, state in each_state(dev.definition())
        if name.endswith(" inline one")
    )
    inline = Tuning().max_inline_tasks * (ITEM_EVENTS + attempts * ATTEMPT_EVENTS)
    inline += rates.MAP_INLINE_AT_ONCE * (ITEM_EVENTS + ATTEMPT_EVENTS)  # workers that are warmed
    for progress in (0, 1):
        seconds, rounds, round_ = 0, 0, next_round(10**9, None)
        while seconds < RUN_DAYS * 86_400:
            seconds += round_.wait
            rounds += 1
            round_ = next_round(round_.left - progress, round_)
        assert inline + rounds * ROUND_EVENTS < HISTORY * 0.95
        assert round_.wait == MAX_WAIT


def test_children_outlive_their_function(dev: Synthesized) -> None:
    """An Express child has five minutes: a worker's timeout leaves it time for its end."""
    made = dev.properties("AWS::Lambda::Function", "FunctionsExtract")
    assert made["Timeout"] < 300


def test_state_machine_has_exact_rights_in_the_work_bucket(dev: Synthesized) -> None:
    """It reads what Maps need, looks for the link, and writes results below a run's folder."""
    rights = {
        (action, resource)
        for statement in dev.statements("WorkflowRunsRole")
        for action in listed(statement["Action"])
        for resource in resources_of(statement)
        if action.startswith("s3:")
    }
    work = next(name for name in dev.resources("AWS::S3::Bucket") if name.startswith("StorageWork"))
    runs = f"<{work}.Arn>/runs/*"
    assert rights == {
        *(("s3:GetObject", f"{runs}/{name}.jsonl") for name in LINES),
        ("s3:GetObject", f"{runs}/link.json"),
        ("s3:GetObject", f"{runs}/maps/*"),
        ("s3:PutObject", f"{runs}/maps/*"),
        ("s3:ListMultipartUploadParts", f"{runs}/maps/*"),
        ("s3:AbortMultipartUpload", f"{runs}/maps/*"),
    }


def test_state_machine_may_redrive_its_maps(dev: Synthesized) -> None:
    """A redriven run may redrive its map runs."""
    statements = dev.statements("WorkflowRunsDistributedMapPolicy")
    (redrive,) = (one for one in statements if one["Action"] == "states:RedriveExecution")
    redriven = json.dumps(redrive["Resource"])
    assert all(f"/{name.replace(' ', '')}:*" in redriven for name in WORKERS)


def test_input_is_bounded() -> None:
    """What the plan hands over is far below what Step Functions takes."""
    assert MAX_INPUT <= 262_144 // 8
