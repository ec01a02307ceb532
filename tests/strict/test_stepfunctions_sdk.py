"""Tasks that call S3 by its SDK: what they return, and the names of their errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.strict.machines import machine

if TYPE_CHECKING:
    from tests.strict.machines import Machines


def ask(action: str = "headObject", **more: Any) -> dict[str, Any]:
    """Return a task that calls S3 for the object that its input names."""
    resource = f"arn:aws:states:::aws-sdk:s3:{action}"
    parameters = {"Bucket.$": "$.bucket", "Key.$": "$.key"}
    return {"Type": "Task", "Resource": resource, "Parameters": parameters, "End": True, **more}


def test_an_object_that_is_there(machines: Machines) -> None:
    """The task has the answer of HEAD."""
    bucket = machines.bucket()
    machines.s3.put_object(Bucket=bucket, Key="a/b.json", Body=b"four")
    told = machines.run(machine(A=ask()), {"bucket": bucket, "key": "a/b.json"})
    assert json.loads(told["output"])["ContentLength"] == 4


def test_an_object_that_is_missing(machines: Machines) -> None:
    """NoSuchKeyException, which States.TaskFailed matches: the task tries again."""
    given = {"bucket": machines.bucket(), "key": "none"}
    assert machines.run(machine(A=ask()), given)["error"] == "S3.NoSuchKeyException"
    retry = [{"ErrorEquals": ["States.TaskFailed"], "MaxAttempts": 1, "IntervalSeconds": 1}]
    again = machines.start(machine(A=ask(Retry=retry)), given)
    assert machines.wait(again)["error"] == "S3.NoSuchKeyException"
    assert machines.history(again).count("TaskFailed") == 2


def test_other_calls_are_refused(machines: Machines) -> None:
    """Nobody has compared them with AWS, so they are not taken for true."""
    told = machines.run(machine(A=ask("deleteObject")), {"bucket": "b", "key": "k"})
    assert told["error"] == "States.Runtime"
