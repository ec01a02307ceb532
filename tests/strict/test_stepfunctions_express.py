"""Express executions end after five minutes; here after one second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.strict.machines import distributed, machine, task, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict.machines import Machines


def test_an_express_child_times_out(
    limited: Callable[[str, float], Machines], tmp_path: Path
) -> None:
    """The child is TIMED_OUT while its function continues, and nothing retries it."""
    machines = limited("EXPRESS_SECONDS", 1)
    go, done, note = (tmp_path / name for name in ("go", "done", "note"))
    event = {"wait": str(go), "done": str(done), "note": str(note)}
    retry = [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 2, "IntervalSeconds": 1}]
    child = task(machines.function(), Parameters=event, Retry=retry)
    execution = machines.start(machine(M=distributed(child)), {"items": [1]})
    assert machines.wait(execution)["error"] == "States.ExceedToleratedFailureThreshold"
    run = machines.map_run(execution)
    assert run["executionCounts"]["timedOut"] == 1
    (listed,) = machines.states.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    told = machines.states.describe_execution(executionArn=listed["executionArn"])
    assert (told["status"], told["error"]) == ("TIMED_OUT", "States.Timeout")
    go.touch()
    until(lambda: done.exists() or None)
    assert note.read_text().count("\n") == 1


def test_a_place_is_free_after_a_timeout(
    limited: Callable[[str, float], Machines], tmp_path: Path
) -> None:
    """With MaxConcurrency 1 the next child starts while the first function still runs."""
    machines = limited("EXPRESS_SECONDS", 1)
    child = task(machines.function(), Parameters={"wait": str(tmp_path / "never")})
    state = distributed(child, MaxConcurrency=1, ToleratedFailurePercentage=100)
    execution = machines.start(machine(M=state), {"items": [1, 2]})
    assert machines.wait(execution)["status"] == "SUCCEEDED"
    assert machines.map_run(execution)["executionCounts"]["timedOut"] == 2
    (tmp_path / "never").touch()


def test_a_standard_child_goes_on(
    limited: Callable[[str, float], Machines], tmp_path: Path
) -> None:
    """The limit is not for Standard children."""
    machines = limited("EXPRESS_SECONDS", 1)
    go, note = tmp_path / "go", tmp_path / "note"
    child = task(machines.function(), Parameters={"wait": str(go), "note": str(note)})
    execution = machines.start(machine(M=distributed(child, "STANDARD")), {"items": [1]})
    until(lambda: note.exists() or None)
    time.sleep(1.5)
    assert machines.states.describe_execution(executionArn=execution)["status"] == "RUNNING"
    go.touch()
    assert machines.wait(execution)["status"] == "SUCCEEDED"


def test_an_express_state_machine(limited: Callable[[str, float], Machines]) -> None:
    """Its own executions time out too."""
    machines = limited("EXPRESS_SECONDS", 0.5)
    waiting = machine(W={"Type": "Wait", "Seconds": 2, "End": True})
    told = machines.wait(machines.start(waiting, type="EXPRESS"))
    assert (told["status"], told["error"]) == ("TIMED_OUT", "States.Timeout")


def test_timeout_of_a_state_machine(machines: Machines, tmp_path: Path) -> None:
    """TimeoutSeconds of a definition ends a Standard execution as TIMED_OUT."""
    never = tmp_path / "never"
    slow = {**machine(A=task(machines.function())), "TimeoutSeconds": 1}
    told = machines.run(slow, {"wait": str(never)})
    assert (told["status"], told["error"]) == ("TIMED_OUT", "States.Timeout")
    never.touch()
