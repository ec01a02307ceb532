"""Names of errors, and what Retry and Catch make of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.strict.machines import distributed, machine, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict.machines import Machines

DONE = {"Type": "Succeed"}


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        ("TransientError", "TransientError"),
        ("exit", "Lambda.Unknown"),
        ("NoSuchName", "KeyError"),  # which the function did not foresee
    ],
)
def test_errors_of_functions(machines: Machines, fail: str, error: str) -> None:
    """An exception has its class's name; a function that ended is Lambda.Unknown."""
    told = machines.run(machine(A=task(machines.function())), {"fail": fail})
    assert (told["status"], told["error"]) == ("FAILED", error)


def test_a_function_that_times_out(machines: Machines, tmp_path: Path) -> None:
    """Lambda.Unknown, which States.TaskFailed matches and States.Timeout does not."""
    slow = task(
        machines.function(timeout=1),
        Catch=[
            {"ErrorEquals": ["States.Timeout"], "Next": "Wrong"},
            {"ErrorEquals": ["States.TaskFailed"], "Next": "Done"},
        ],
    )
    told = machines.run(
        machine(A=slow, Wrong={"Type": "Fail"}, Done=DONE), {"wait": str(tmp_path / "never")}
    )
    assert json.loads(told["output"])["Error"] == "Lambda.Unknown"


def test_a_throttled_function(machines: Machines) -> None:
    """Lambda.TooManyRequestsException at its reserved concurrency."""
    function = machines.function()
    machines.functions.put_function_concurrency(
        FunctionName=function, ReservedConcurrentExecutions=0
    )
    told = machines.run(machine(A=task(function)))
    assert told["error"] == "Lambda.TooManyRequestsException"
    assert told["cause"].startswith("Rate Exceeded")


def test_a_function_that_is_not_there(machines: Machines) -> None:
    """Lambda.ResourceNotFoundException."""
    told = machines.run(machine(A=task(machines.function() + "-gone")))
    assert told["error"] == "Lambda.ResourceNotFoundException"


def test_the_first_retrier_that_matches_decides(machines: Machines, tmp_path: Path) -> None:
    """MaxAttempts 0 first means none, although a later retrier matches as well."""
    note = tmp_path / "note"
    retry = [
        {"ErrorEquals": ["FinalError"], "MaxAttempts": 0},
        {"ErrorEquals": ["States.TaskFailed"], "MaxAttempts": 2},
    ]
    function = task(machines.function(), Retry=retry)
    machines.run(machine(A=function), {"fail": "FinalError", "note": str(note)})
    assert note.read_text().count("\n") == 1
    machines.run(machine(A=function), {"fail": "TransientError", "note": str(note)})
    assert note.read_text().count("\n") == 1 + 3


@pytest.mark.parametrize("wild", ["States.TaskFailed", "States.ALL", "States.Runtime"])
def test_nothing_catches_runtime_errors(machines: Machines, wild: str) -> None:
    """A path that gives no number is States.Runtime, which ends the execution."""
    state = distributed(
        {"Type": "Pass"},
        MaxConcurrencyPath="$.text",
        Catch=[{"ErrorEquals": [wild], "Next": "Done"}],
    )
    told = machines.run(machine(M=state, Done=DONE), {"items": [1], "text": "no number"})
    assert (told["status"], told["error"]) == ("FAILED", "States.Runtime")


def test_task_failed_does_not_match_a_timeout(machines: Machines, tmp_path: Path) -> None:
    """States.Timeout of a task is caught by its name or by States.ALL."""
    slow = task(
        machines.function(),
        TimeoutSeconds=1,
        Catch=[
            {"ErrorEquals": ["States.TaskFailed"], "Next": "Wrong"},
            {"ErrorEquals": ["States.ALL"], "Next": "Done"},
        ],
    )
    never = tmp_path / "never"
    states = machine(A=slow, Wrong={"Type": "Fail"}, Done=DONE)
    told = machines.run(states, {"wait": str(never)})
    assert json.loads(told["output"])["Error"] == "States.Timeout"
    never.touch()


def test_a_retry_waits_at_most_its_max_delay(
    limited: Callable[[str, float], Machines], tmp_path: Path
) -> None:
    """MiniStack alone would wait a minute before each of the three retries."""
    machines = limited("EXPRESS_SECONDS", 300)  # the usual limit; waits take their whole time
    note = tmp_path / "note"
    retrier = {
        "ErrorEquals": ["States.ALL"],
        "IntervalSeconds": 60,
        "BackoffRate": 10,
        "MaxDelaySeconds": 1,
        "MaxAttempts": 3,
        "JitterStrategy": "FULL",
    }
    states = machine(A=task(machines.function(), Retry=[retrier]))
    machines.run(states, {"fail": "TransientError", "note": str(note)})
    assert note.read_text().count("\n") == 4
