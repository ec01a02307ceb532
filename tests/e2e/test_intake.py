"""Faults before and after a run, on the embedded AWS: how soon they are met again, and told."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from s3unzip.model import Verdict
from s3unzip.settings import Variable
from tests.patience import HANG_SECONDS
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from embedded.pipeline import DeployedPipeline

FAULT_SECONDS = 120.0  # after which a fault of the plan is met again, at the latest
NEXT = re.compile(r'"plan failed".*?"next_seconds": ?([0-9.]+)')


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not in {HANG_SECONDS:.0f} s"
        time.sleep(0.1)


def function_name(pipeline: DeployedPipeline, part: str) -> str:
    """Return the name of the function whose logical id has `part` in it."""
    functions = pipeline.client("lambda").list_functions()["Functions"]
    (name,) = (one["FunctionName"] for one in functions if part in one["FunctionName"])
    return str(name)


def set_variable(pipeline: DeployedPipeline, function: str, name: str, value: str) -> str:
    """Change a variable of a function; return what it was."""
    client = pipeline.client("lambda")
    told = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    before = told[name]
    client.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**told, name: value}}
    )
    return str(before)


def test_a_fault_of_the_plan_is_met_again_within_two_minutes(pipeline: DeployedPipeline) -> None:
    """The queue hides a message for half an hour; after a fault it comes back much sooner."""
    plan = pipeline.outputs["PlanFunction"]
    bucket = set_variable(pipeline, plan, Variable.WORK_BUCKET, "no-such-bucket")
    try:
        pipeline.put("late.zip", build(Entry("a", b"a" * 500)))
        wait_for("a failed plan", lambda: "no-such-bucket" in pipeline.logs())
    finally:
        set_variable(pipeline, plan, Variable.WORK_BUCKET, bucket)
    wait_for("a run", lambda: pipeline.find_run("late.zip") is not None)
    assert pipeline.wait("late.zip").verdict is Verdict.COMPLETED
    waits = [float(found[1]) for found in NEXT.finditer(pipeline.logs())]
    assert waits
    assert max(waits) < FAULT_SECONDS


def test_a_message_that_always_fails_is_soon_a_dead_letter(pipeline: DeployedPipeline) -> None:
    """The queue's alarm notifies a person."""
    sqs = pipeline.client("sqs")
    sqs.send_message(QueueUrl=pipeline.outputs["QueueUrl"], MessageBody="no event")

    def is_dead() -> bool:
        return pipeline.waiting("DeadLettersUrl") == 1

    wait_for("a dead letter", is_dead)
    dead = sqs.get_queue_attributes(
        QueueUrl=pipeline.outputs["DeadLettersUrl"], AttributeNames=["QueueArn"]
    )
    assert dead["Attributes"]["QueueArn"] == pipeline.outputs["DeadLettersArn"]
    sqs.purge_queue(QueueUrl=pipeline.outputs["DeadLettersUrl"])


def test_an_event_that_cannot_be_reported_is_kept(pipeline: DeployedPipeline) -> None:
    """After three attempts the complete event is in the queue of failed reports."""
    report = function_name(pipeline, "FunctionsReport")
    detail = {"name": "nothing-of-that-name", "status": "FAILED"}
    pipeline.client("lambda").invoke(
        FunctionName=report, InvocationType="Event", Payload=json.dumps({"detail": detail})
    )
    found: list[dict[str, Any]] = []

    def is_kept() -> bool:
        queue = pipeline.outputs["FailedReportsUrl"]
        found.extend(pipeline.client("sqs").receive_message(QueueUrl=queue).get("Messages", []))
        return bool(found)

    wait_for("a failed report", is_kept)
    kept = json.loads(found[0]["Body"])
    assert kept["requestPayload"] == {"detail": detail}
