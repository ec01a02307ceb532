"""Messages of the intake queue, and the copies that keep their ids."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from moto import mock_aws
from s3unzip.aws.intake.messages import KEPT_ID, Message, is_replaced, read_message


def record(body: str, **attributes: str) -> dict[str, Any]:
    """Return a record as Lambda receives it."""
    found = {"ApproximateReceiveCount": "3", **attributes}
    return {"messageId": "new", "receiptHandle": "receipt", "body": body, "attributes": found}


def test_a_message_is_known_by_the_id_of_the_queue() -> None:
    """Its attempts and the group of its tenant are attributes."""
    body = json.dumps({"detail": 1})
    assert read_message(record(body, MessageGroupId="a/")) == Message("new", 3, body, "a/")


def test_a_copy_is_known_by_the_id_of_its_original() -> None:
    """It replaces a message at its second delivery; a copy is not replaced again."""
    with mock_aws():
        client = boto3.client("sqs", "us-east-1")
        url = client.create_queue(QueueName="intake")["QueueUrl"]
        original = Message("old", 2, json.dumps({"detail": 1}), "tenant")
        assert is_replaced(original, client, url)
        assert not is_replaced(original._replace(attempts=1), client, url)
        assert not is_replaced(original._replace(is_copy=True), client, url)
        (found,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert json.loads(found["Body"]) == {"detail": 1, KEPT_ID: "old"}
    group = found["Attributes"].get("MessageGroupId", "")
    assert read_message(record(found["Body"], MessageGroupId=group)) == Message(
        "old", 3, found["Body"], "tenant", is_copy=True
    )


@pytest.mark.parametrize(
    "body", [f"{KEPT_ID} is no JSON", json.dumps([KEPT_ID]), json.dumps({KEPT_ID: 5})]
)
def test_a_body_without_an_id_is_an_original(body: str) -> None:
    """Anybody who may write to the queue may write anything."""
    assert read_message(record(body)) == Message("new", 3, body)
