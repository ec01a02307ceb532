"""Names, thresholds, concurrency and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.strict.machines import distributed, machine, task, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict.machines import Machines

EXCEEDED = "States.ExceedToleratedFailureThreshold"
PASS = {"Type": "Pass", "End": True}


@pytest.mark.parametrize("name", ["a" * 81, "a b", "a/b", "a:b", "a*", "a$", "a\u0085"])
def test_names_that_are_refused(machines: Machines, name: str) -> None:
    """InvalidName, of a state machine and of an execution."""
    states = machines.states
    arn = machines.create(machine(A=PASS))
    with pytest.raises(states.exceptions.InvalidName):
        states.start_execution(stateMachineArn=arn, name=name)
    role = "arn:aws:iam::000000000000:role/strict"
    with pytest.raises(states.exceptions.InvalidName):
        states.create_state_machine(name=name, roleArn=role, definition="{}")


def test_the_longest_name(machines: Machines) -> None:
    """80 characters, with signs that are allowed."""
    arn = machines.create(machine(A=PASS))
    machines.states.start_execution(stateMachineArn=arn, name="a-._+()=@!é" + "b" * 69)


def test_starting_twice(machines: Machines, tmp_path: Path) -> None:
    """The same name and input while it runs succeed again; all else is ExecutionAlreadyExists."""
    go, states = tmp_path / "go", machines.states
    arn = machines.create(machine(A=task(machines.function())))
    start: dict[str, Any] = {"stateMachineArn": arn, "name": "one"}
    text = f'{{"wait": "{go}"}}'
    first = states.start_execution(**start, input=text)
    again = states.start_execution(**start, input=text)
    assert again["executionArn"] == first["executionArn"]
    assert again["startDate"] == first["startDate"]
    with pytest.raises(states.exceptions.ExecutionAlreadyExists):
        states.start_execution(**start, input="{}")
    go.touch()
    machines.wait(first["executionArn"])
    with pytest.raises(states.exceptions.ExecutionAlreadyExists):
        states.start_execution(**start, input=text)


def test_a_name_of_long_ago(limited: Callable[[str, float], Machines]) -> None:
    """90 days, here none, after its end a name is free."""
    machines = limited("CLOSED_NAME_SECONDS", 0)
    arn = machines.create(machine(A=PASS))
    for _ in range(2):
        started = machines.states.start_execution(stateMachineArn=arn, name="one")
        machines.wait(started["executionArn"])


def test_input_that_is_no_json(machines: Machines) -> None:
    """InvalidExecutionInput."""
    arn = machines.create(machine(A=PASS))
    with pytest.raises(machines.states.exceptions.InvalidExecutionInput):
        machines.states.start_execution(stateMachineArn=arn, input="{")


def test_a_history_that_is_full(limited: Callable[[str, float], Machines]) -> None:
    """A loop in a Standard execution fails at the limit, which nothing catches."""
    machines = limited("HISTORY_EVENTS", 100)
    loop = machine(
        A={"Type": "Pass", "Next": "B"},
        B={
            "Type": "Parallel",
            "Branches": [machine(C=PASS)],
            "Next": "A",
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "A"}],
        },
    )
    execution = machines.start(loop)
    told = machines.wait(execution)
    assert (told["status"], told["error"]) == ("FAILED", "States.Runtime")
    assert "maximum number of history events" in told["cause"]
    assert len(machines.history(execution)) == 100
    assert told["redriveStatus"] == "NOT_REDRIVABLE"


@pytest.mark.parametrize(
    ("fields", "failing", "error"),
    [
        ({}, 1, EXCEEDED),
        ({"ToleratedFailurePercentage": 50}, 2, None),
        ({"ToleratedFailurePercentage": 50}, 3, EXCEEDED),
        ({"ToleratedFailureCount": 2}, 2, None),
        ({"ToleratedFailureCount": 2}, 3, EXCEEDED),
        ({"ToleratedFailurePercentagePath": "$.percentage"}, 4, None),
        ({"ToleratedFailurePercentage": 100, "ToleratedFailureCount": 0}, 1, EXCEEDED),
    ],
)
def test_tolerated_failures(
    machines: Machines, fields: dict[str, Any], failing: int, error: str | None
) -> None:
    """Of four children: the Map fails when either threshold is exceeded, not at it."""
    child = task(machines.function())
    items = [{"fail": "FinalError" if n < failing else ""} for n in range(4)]
    told = machines.run(
        machine(M=distributed(child, **fields)), {"items": items, "percentage": 100}
    )
    assert told.get("error") == error


def test_concurrency_of_a_distributed_map_from_a_path(machines: Machines, tmp_path: Path) -> None:
    """A limit of two from a path allows two concurrent children."""
    go, note = tmp_path / "go", tmp_path / "note"
    child = task(machines.function(), Parameters={"wait": str(go), "note": str(note)})
    state = distributed(child, MaxConcurrencyPath="$.at_once")
    execution = machines.start(machine(M=state), {"items": [1, 2, 3, 4], "at_once": 2})

    def two() -> dict[str, Any] | None:
        runs = machines.states.list_map_runs(executionArn=execution)["mapRuns"]
        counts = machines.map_run(execution)["executionCounts"] if runs else {}
        return counts if counts.get("running") == 2 else None

    assert until(two)["pending"] == 2
    until(lambda: (note.exists() and note.read_text().count("\n") == 2) or None)
    go.touch()
    assert machines.wait(execution)["status"] == "SUCCEEDED"
    assert note.read_text().count("\n") == 4


def test_an_inline_map_runs_40_at_once(machines: Machines) -> None:
    """Of 100 iterations that wait, at most 40 have begun when the first one ends."""
    state = {
        "Type": "Map",
        "ItemsPath": "$.items",
        "MaxConcurrency": 90,
        "ItemProcessor": machine(W={"Type": "Wait", "Seconds": 30, "Next": "P"}, P=PASS),
        "End": True,
    }
    execution = machines.start(machine(M=state), {"items": list(range(100))})
    machines.wait(execution)
    events = machines.history(execution)
    begun = events[: events.index("WaitStateExited")].count("WaitStateEntered")
    assert 1 <= begun <= 40
    assert events.count("PassStateEntered") == 100
