"""Small state machines on an embedded AWS, and one function that does as its event says."""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from typing import TYPE_CHECKING, Any, TypeVar

from embedded.deploy import make_client
from tests.patience import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embedded.ministack import EmbeddedAws

Found = TypeVar("Found")

ROLE = "arn:aws:iam::000000000000:role/strict"

# `note` gets a line for each call; `wait` is a file that the call waits for.
FUNCTION = """
import os, pathlib, time

class TransientError(Exception):
    pass

class FinalError(Exception):
    pass

def handler(event, context):
    if event.get("note"):
        with open(event["note"], "a") as note:
            note.write(str(event.get("item")) + "\\n")
    if event.get("wait"):
        while not pathlib.Path(event["wait"]).exists():
            time.sleep(0.02)
    if event.get("fail") and not pathlib.Path(event.get("mended") or "none").exists():
        if event["fail"] == "exit":
            os._exit(3)
        raise globals()[event["fail"]]("as asked")
    if event.get("done"):
        pathlib.Path(event["done"]).touch()
    return event.get("give", "x" * event.get("size", 0))
"""


class Machines:
    """State machines on one embedded AWS."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.states: Any = make_client("stepfunctions", aws.environment)
        self.s3: Any = make_client("s3", aws.environment)
        self.functions: Any = make_client("lambda", aws.environment)
        self.cloudformation: Any = make_client("cloudformation", aws.environment)

    def function(self, *, timeout: int = 60) -> str:
        """Create the function; return its ARN."""
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("code.py", FUNCTION)
        answer = self.functions.create_function(
            FunctionName=f"f{uuid.uuid4().hex}",
            Runtime="python3.11",
            Role=ROLE,
            Handler="code.handler",
            Timeout=timeout,
            Code={"ZipFile": code.getvalue()},
        )
        return str(answer["FunctionArn"])

    def create(self, definition: Mapping[str, Any], **given: Any) -> str:
        """Create a state machine; return its ARN."""
        answer = self.states.create_state_machine(
            name=f"m{uuid.uuid4().hex}", definition=json.dumps(definition), roleArn=ROLE, **given
        )
        return str(answer["stateMachineArn"])

    def start(self, definition: Mapping[str, Any], given: Any = None, **more: Any) -> str:
        """Create a state machine and start it with the input `given`; return the execution."""
        answer = self.states.start_execution(
            stateMachineArn=self.create(definition, **more), input=json.dumps(given or {})
        )
        return str(answer["executionArn"])

    def run(self, definition: Mapping[str, Any], given: Any = None) -> dict[str, Any]:
        """Start, wait for the end, return what DescribeExecution tells."""
        return self.wait(self.start(definition, given))

    def wait(self, execution: str) -> dict[str, Any]:
        """Return what DescribeExecution tells when the execution has ended."""

        def ended() -> dict[str, Any] | None:
            told: dict[str, Any] = self.states.describe_execution(executionArn=execution)
            return None if told["status"] == "RUNNING" else told

        return until(ended)

    def map_run(self, execution: str) -> dict[str, Any]:
        """Return what DescribeMapRun tells of the execution's only Map Run."""
        (run,) = self.states.list_map_runs(executionArn=execution)["mapRuns"]
        return dict(self.states.describe_map_run(mapRunArn=run["mapRunArn"]))

    def history(self, execution: str) -> list[str]:
        """Return the types of the execution's events."""
        pages = self.states.get_paginator("get_execution_history")
        found = pages.paginate(executionArn=execution)
        return [event["type"] for page in found for event in page["events"]]

    def bucket(self) -> str:
        """Create a bucket; return its name."""
        name = f"b{uuid.uuid4().hex}"
        self.s3.create_bucket(Bucket=name)
        return name

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the objects of a bucket."""
        found = self.s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        keys = [one["Key"] for one in found]
        return {key: self.s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def until(look: Callable[[], Found | None]) -> Found:
    """Return what `look` finds, as soon as it does."""
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing in {HANG_SECONDS:.0f} s")


def machine(**states: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of these states, which begins at the first."""
    return {"StartAt": next(iter(states)), "States": states}


def distributed(child: Mapping[str, Any], kind: str = "EXPRESS", **fields: Any) -> dict[str, Any]:
    """Return a Distributed Map over the array ``$.items``, whose children are one state."""
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": kind},
        "StartAt": "One",
        "States": {"One": {"End": True, **child}},
    }
    return {
        "Type": "Map",
        "End": True,
        "ItemsPath": "$.items",
        "ItemProcessor": processor,
        **fields,
    }


def task(function: str, **fields: Any) -> dict[str, Any]:
    """Return a state that calls `function` with its input and puts out what that returns."""
    return {"Type": "Task", "Resource": function, "End": True, **fields}


def invocation(function: str, event: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a state that invokes `function` with `event`; `kind` is Lambda's InvocationType."""
    given = {"FunctionName": function, "Payload": event, "InvocationType": kind}
    return task("arn:aws:states:::lambda:invoke", Parameters=given)
