"""The plan function against moto's queue and state machine; stores are in memory."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from s3unzip.handlers import plan

from s3unzip.aws.environment import open_client, open_worker
from s3unzip.settings import Variable
from tests.patience import HANG_SECONDS
from tests.unit.aws.contexts import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


VARIABLES: dict[str, str] = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "POWERTOOLS_TRACE_DISABLED": "true",
    Variable.ENVIRONMENT: "test",
    Variable.WORK_BUCKET: "work",
    Variable.DESTINATION: "s3://out/",
    Variable.TRIGGER_BUCKET: "in",
    Variable.TRIGGER_SUFFIX: ".zip",
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Clients of a queue and a state machine, known to the function by its variables."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for cached in (open_client, open_worker):
        cached.cache_clear()
    with mock_aws():
        sqs, states = boto3.client("sqs"), boto3.client("stepfunctions")
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        redrive = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 2}
        queue = sqs.create_queue(
            QueueName="intake",
            Attributes={"VisibilityTimeout": "3600", "RedrivePolicy": json.dumps(redrive)},
        )["QueueUrl"]
        machine = states.create_state_machine(
            name="runs",
            definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}}),
            roleArn="arn:aws:iam::123456789012:role/any",
        )["stateMachineArn"]
        monkeypatch.setenv(Variable.QUEUE, queue)
        monkeypatch.setenv(Variable.STATE_MACHINE, machine)
        yield {"sqs": sqs, "states": states, "queue": queue, "dead": dead, "machine": machine}
    for cached in (open_client, open_worker):
        cached.cache_clear()


def receive(aws: dict[str, Any]) -> dict[str, Any]:
    """Return the event that Lambda makes of what is visible in the queue."""
    answer = aws["sqs"].receive_message(
        QueueUrl=aws["queue"], AttributeNames=["All"], MaxNumberOfMessages=10
    )
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:intake",
                "awsRegion": "us-east-1",
            }
            for message in answer.get("Messages", [])
        ]
    }


def test_a_message_that_says_nothing_is_soon_a_dead_letter(
    aws: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It returns to the queue at once, not after an hour; it is logged and is no error."""
    aws["sqs"].send_message(QueueUrl=aws["queue"], MessageBody="no event")
    for _ in range(2):
        event = until(lambda: receive(aws), lambda found: bool(found["Records"]))
        answer = plan.handler(event, Invocation())
        failed = [one["itemIdentifier"] for one in answer["batchItemFailures"]]
        assert failed == [event["Records"][0]["messageId"]]

    def dead() -> dict[str, Any]:
        receive(aws)
        answer: dict[str, Any] = aws["sqs"].receive_message(QueueUrl=aws["dead"])
        return answer

    assert "the message is not JSON" in caplog.text
    found = until(dead, lambda answer: bool(answer.get("Messages")))
    assert found["Messages"][0]["Body"] == "no event"


def test_an_event_of_something_else_is_consumed(aws: dict[str, Any]) -> None:
    """A message without a request causes no failure, and no metric is missing."""
    body = {"Event": "s3:TestEvent"}
    aws["sqs"].send_message(QueueUrl=aws["queue"], MessageBody=json.dumps(body))
    assert plan.handler(receive(aws), Invocation()) == {"batchItemFailures": []}


def until(
    look: Callable[[], dict[str, Any]], holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return what `look` finds, as soon as `holds` says that it is what is waited for."""
    deadline = time.monotonic() + HANG_SECONDS
    while not holds(found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
