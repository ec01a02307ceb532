"""Concurrency is shared out as Lambda does, and what finds none free is throttled."""

from __future__ import annotations

import datetime as dt
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from embedded.ministack import EmbeddedAws
from tests.strict.places import Place, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.strict.places import Queue

# Says that it runs, then waits until its gate, a queue, has a message.
HELD = (
    "import botocore.session, json\n"
    "sqs = botocore.session.get_session().create_client('sqs')\n"
    "def handler(event, context):\n"
    "    told = json.loads(event['Records'][0]['body']) if 'Records' in event else event\n"
    "    sqs.send_message(QueueUrl=told['started'], MessageBody='started')\n"
    "    while not sqs.receive_message(QueueUrl=told['gate'], WaitTimeSeconds=1).get('Messages'):\n"
    "        pass\n"
    "    return 'done'\n"
)


@dataclass(frozen=True, slots=True)
class Held:
    """An invocation that runs until its gate is opened."""

    thread: threading.Thread
    gate: Queue

    def finish(self) -> None:
        """Let it end and wait for it."""
        self.gate.send("go")
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def small() -> Iterator[Place]:
    """An account of two concurrent invocations, one of which stays unreserved."""
    variables = {"LAMBDA_ACCOUNT_CONCURRENCY": "2", "LAMBDA_UNRESERVED_CONCURRENCY": "1"}
    with EmbeddedAws(variables=variables) as aws:
        yield Place(aws)


def start(place: Place, function: str) -> Held:
    """Invoke a `HELD` function in the background and return once it runs."""
    gate, started = place.queue(VisibilityTimeout="60"), place.queue()
    event = {"gate": gate.url, "started": started.url}
    thread = threading.Thread(target=place.invoke, args=(function, event), daemon=True)
    thread.start()
    until(lambda: started.receive(1), "the invocation to begin")
    return Held(thread, gate)


def throttle(place: Place, function: str) -> Any:
    """Invoke a function that has no room; return the answer."""
    with pytest.raises(ClientError) as refused:
        place.invoke(function)
    assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    return refused.value.response


def test_reserved_concurrency_throttles(place: Place) -> None:
    """One more invocation than reserved is answered with 429 and the reason; later it runs."""
    name = place.function(HELD, Timeout=60)
    place.client("lambda").put_function_concurrency(
        FunctionName=name, ReservedConcurrentExecutions=1
    )
    held = start(place, name)
    answer = throttle(place, name)
    assert answer["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    held.finish()
    start(place, name).finish()


def test_the_account_has_a_thousand(place: Place, small: Place) -> None:
    """The quota is AWS's 1,000 unless the variable sets another."""
    for where, quota in ((place, 1_000), (small, 2)):
        limit = where.client("lambda").get_account_settings()["AccountLimit"]
        assert limit["ConcurrentExecutions"] == quota


def test_a_hundred_stay_unreserved(place: Place) -> None:
    """A reservation that leaves fewer than 100 unreserved is refused, by API and template."""
    name = place.function("def handler(event, context): ...\n")
    functions = place.client("lambda")
    with pytest.raises(ClientError, match=r"below its minimum value of \[100\]"):
        functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=950)
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=800)
    functions.delete_function(FunctionName=name)


def test_a_template_reserves(place: Place) -> None:
    """ReservedConcurrentExecutions of a template counts; too much of it fails the stack."""
    formation = place.client("cloudformation")
    formation.create_stack(StackName="good", TemplateBody=template(300))
    formation.get_waiter("stack_create_complete").wait(StackName="good", WaiterConfig={"Delay": 1})
    got = place.client("lambda").get_function_concurrency(FunctionName="reserved-300")
    assert got["ReservedConcurrentExecutions"] == 300
    formation.create_stack(StackName="bad", TemplateBody=template(700))
    until(lambda: "minimum value" in events_of(formation, "bad"), "the stack to fail")
    formation.delete_stack(StackName="good")


def template(reserved: int) -> str:
    """Return a template of one function."""
    properties = {
        "FunctionName": f"reserved-{reserved}",
        "Runtime": "python3.13",
        "Handler": "index.handler",
        "Role": "arn:aws:iam::000000000000:role/anybody",
        "Code": {"ZipFile": "def handler(event, context): ...\n"},
        "ReservedConcurrentExecutions": reserved,
    }
    resource = {"Type": "AWS::Lambda::Function", "Properties": properties}
    return json.dumps({"Resources": {"Function": resource}})


def events_of(formation: Any, stack: str) -> str:
    """Return what a stack's events say."""
    found = formation.describe_stack_events(StackName=stack)["StackEvents"]
    return " ".join(one.get("ResourceStatusReason", "") for one in found)


def test_what_is_reserved_is_nobody_elses(small: Place) -> None:
    """A function without a reservation finds only what is left of the account."""
    common, reserving = small.function(HELD, Timeout=60), small.function(HELD, Timeout=60)
    small.client("lambda").put_function_concurrency(
        FunctionName=reserving, ReservedConcurrentExecutions=1
    )
    held = start(small, common)
    assert throttle(small, common)["Reason"] == "ConcurrentInvocationLimitExceeded"
    start(small, reserving).finish()
    held.finish()


def test_a_throttled_queue_tries_again(place: Place) -> None:
    """An event source with more pollers than its function has room: the message comes back.

    It does so after its visibility timeout, and counts as received once more.
    """
    queue = place.queue(VisibilityTimeout="2")
    name = place.function("def handler(event, context): return 'never throttled'\n", Timeout=2)
    functions = place.client("lambda")
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    queue.send("one")
    functions.create_event_source_mapping(FunctionName=name, EventSourceArn=queue.arn, BatchSize=1)
    until(lambda: metric(place, name, "Throttles") >= 2, "two throttled tries of one message")
    assert queue.count() == 1
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    until(lambda: queue.count() == 0, "the message to be worked on")


def metric(place: Place, function: str, name: str) -> float:
    """Return the sum of a function's metric since the Lambda was made."""
    now = dt.datetime.now(dt.UTC)
    got = place.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/Lambda",
        MetricName=name,
        Dimensions=[{"Name": "FunctionName", "Value": function}],
        StartTime=now - dt.timedelta(hours=1),
        EndTime=now + dt.timedelta(hours=1),
        Period=3_600,
        Statistics=["Sum"],
    )
    return float(sum(point["Sum"] for point in got["Datapoints"]))


def test_an_event_source_has_its_maximum(place: Place) -> None:
    """At most MaximumConcurrency batches run concurrently."""
    queue, gate = place.queue(VisibilityTimeout="60"), place.queue(VisibilityTimeout="60")
    started = place.queue()
    name = place.function(HELD, Timeout=60)
    for _ in range(3):
        queue.send(json.dumps({"gate": gate.url, "started": started.url}))
    place.client("lambda").create_event_source_mapping(
        FunctionName=name,
        EventSourceArn=queue.arn,
        BatchSize=1,
        ScalingConfig={"MaximumConcurrency": 2},
    )
    until(lambda: started.count() == 2, "two batches at work")
    assert started.receive(3)  # long enough for a third to begin
    assert (started.count(), queue.count()) == (2, 3)
    for _ in range(3):
        gate.send("go")
    until(lambda: queue.count() == 0, "all done")
    assert started.count() == 3
