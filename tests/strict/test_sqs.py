"""Queues: visibility, receive counts, dead letters, moves, and event sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.strict.places import until

if TYPE_CHECKING:
    from tests.strict.places import Place, Queue


def queue_with_dead_letters(place: Place, receives: int, **attributes: str) -> tuple[Queue, Queue]:
    """Return a queue and its dead-letter queue."""
    dead = place.queue()
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": receives})
    return place.queue(RedrivePolicy=policy, **attributes), dead


def test_a_received_message_is_invisible_until_told(place: Place) -> None:
    """A message in flight is not received again until its visibility is made zero."""
    queue = place.queue(VisibilityTimeout="600")
    queue.send("one")
    (first,) = queue.receive()
    assert queue.receive() == []
    queue.sqs.change_message_visibility(
        QueueUrl=queue.url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    (second,) = queue.receive()
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert second["MessageId"] == first["MessageId"]


def test_a_message_comes_back_after_its_visibility_timeout(place: Place) -> None:
    """A message that is not deleted is received again, not before its timeout."""
    queue = place.queue(VisibilityTimeout="1")
    queue.send("one")
    queue.receive()
    (again,) = until(queue.receive, "the message to come back")
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_too_many_receives_are_dead_letters_and_can_be_moved_back(place: Place) -> None:
    """After maxReceiveCount a message is in the dead-letter queue; a move brings it back as new."""
    queue, dead = queue_with_dead_letters(place, 2, VisibilityTimeout="0")
    queue.send("poison")
    assert [len(queue.receive()) for _ in range(3)] == [1, 1, 0]
    (message,) = until(lambda: dead.receive(1), "the dead letter")
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == queue.arn
    dead.sqs.change_message_visibility(
        QueueUrl=dead.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    queue.sqs.start_message_move_task(SourceArn=dead.arn)
    (result,) = queue.sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (result["Status"], result["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
    (again,) = queue.receive()
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("poison", "1")
    assert dead.count() == 0


def test_only_dead_letters_of_queues_can_be_moved(place: Place) -> None:
    """A queue that is no queue's dead-letter queue cannot be moved."""
    queue = place.queue()
    with pytest.raises(ClientError, match="must be configured as a Dead Letter Queue"):
        queue.sqs.start_message_move_task(SourceArn=queue.arn)


def test_a_message_of_no_queue_fails_the_move(place: Place) -> None:
    """What EventBridge or Lambda put there has no queue to go back to; with one named it moves."""
    _queue, dead = queue_with_dead_letters(place, 2)
    other = place.queue()
    dead.send("of EventBridge")
    dead.sqs.start_message_move_task(SourceArn=dead.arn)
    (result,) = dead.sqs.list_message_move_tasks(SourceArn=dead.arn)["Results"]
    assert (result["Status"], result["FailureReason"]) == (
        "FAILED",
        "CouldNotDetermineMessageSource",
    )
    assert dead.count() == 1
    dead.sqs.start_message_move_task(SourceArn=dead.arn, DestinationArn=other.arn)
    assert (dead.count(), other.count()) == (0, 1)


def test_an_event_source_needs_a_visibility_timeout(place: Place) -> None:
    """A queue whose visibility timeout is less than the function's cannot be its source."""
    name = place.function("def handler(event, context): ...\n", Timeout=31)
    functions = place.client("lambda")
    message = "Queue visibility timeout: 30 seconds is less than Function timeout: 31 seconds"
    with pytest.raises(ClientError, match=message) as refused:
        functions.create_event_source_mapping(FunctionName=name, EventSourceArn=place.queue().arn)
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValueException"
    enough = place.queue(VisibilityTimeout="31")
    functions.create_event_source_mapping(FunctionName=name, EventSourceArn=enough.arn)


def test_a_template_needs_it_too(place: Place) -> None:
    """The same event source in a template fails its stack."""
    name = place.function("def handler(event, context): ...\n", Timeout=31)
    properties = {"FunctionName": name, "EventSourceArn": place.queue().arn}
    resource = {"Type": "AWS::Lambda::EventSourceMapping", "Properties": properties}
    formation = place.client("cloudformation")
    body = json.dumps({"Resources": {"Source": resource}})
    formation.create_stack(StackName="source", TemplateBody=body)

    def said() -> bool:
        events = formation.describe_stack_events(StackName="source")["StackEvents"]
        return any("less than" in one.get("ResourceStatusReason", "") for one in events)

    until(said, "the stack to fail")


def test_reported_failures_alone_come_back(place: Place) -> None:
    """Of a batch with ReportBatchItemFailures only the items reported stay in the queue."""
    queue, dead = queue_with_dead_letters(place, 1, VisibilityTimeout="3")
    name = place.function(
        "def handler(event, context):\n"
        "    bad = [one for one in event['Records'] if one['body'] == 'bad']\n"
        "    return {'batchItemFailures': [{'itemIdentifier': one['messageId']} for one in bad]}\n"
    )
    for body in ("good", "bad", "good"):
        queue.send(body)
    subscribe(place, name, queue, FunctionResponseTypes=["ReportBatchItemFailures"])
    (message,) = until(lambda: dead.receive(1), "the one that was reported")
    assert message["Body"] == "bad"
    assert queue.count() == 0


def test_a_failing_batch_comes_back_whole(place: Place) -> None:
    """If a function raises, its complete batch is received again, then moved to dead letters."""
    queue, dead = queue_with_dead_letters(place, 2, VisibilityTimeout="3")
    name = place.function("def handler(event, context): raise ValueError('no')\n")
    queue.send("poison")
    subscribe(place, name, queue)
    (message,) = until(lambda: dead.receive(1), "the dead letter")
    assert message["Body"] == "poison"
    assert int(message["Attributes"]["ApproximateReceiveCount"]) == 3  # twice there, once here


def subscribe(place: Place, function: str, queue: Queue, **settings: Any) -> None:
    """Make a queue the function's event source."""
    place.client("lambda").create_event_source_mapping(
        FunctionName=function, EventSourceArn=queue.arn, **settings
    )
