"""Tasks that invoke a function asynchronously: they do not wait for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.strict.machines import invocation, machine, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.strict.machines import Machines


def test_a_task_ends_when_its_event_is_queued(machines: Machines, tmp_path: Path) -> None:
    """The execution ends while the function waits; its history is as long as with an answer."""
    function, release, done = machines.function(), tmp_path / "release", tmp_path / "done"
    event = {"wait": str(release), "done": str(done)}
    execution = machines.start(machine(A=invocation(function, event, "Event")))
    told = machines.wait(execution)
    assert told["status"] == "SUCCEEDED"
    answer = json.loads(told["output"])
    assert (answer["StatusCode"], answer["Payload"]) == (202, "")
    assert not done.exists()
    release.touch()
    until(lambda: done.exists() or None)
    waited = machines.start(machine(A=invocation(function, event, "RequestResponse")))
    assert json.loads(machines.wait(waited)["output"])["StatusCode"] == 200
    history = machines.history(execution)
    assert {"TaskScheduled", "TaskSucceeded"} <= set(history)
    assert history == machines.history(waited)


@pytest.mark.parametrize("kind", ["Event", "RequestResponse"])
def test_a_task_of_a_function_that_is_not_there(machines: Machines, kind: str) -> None:
    """Lambda.ResourceNotFoundException: Lambda takes no event for it either."""
    gone = machines.function() + "-gone"
    told = machines.run(machine(A=invocation(gone, {}, kind)))
    assert (told["status"], told["error"]) == ("FAILED", "Lambda.ResourceNotFoundException")
