"""The queue's messages, and the copy of a message that keeps the id of the original.

The claim of a direct run names the message that has the run. If the run could not be
announced, a later delivery of that message announces it. SQS gives a dead letter that is moved
back to the queue another id ("StartMessageMoveTask", API reference of SQS), so its function
would take it for a duplicate. Therefore a message that is delivered a second time is replaced by
a copy before anything else. The body of the copy has the id, and a dead letter keeps its body.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sqs import SQSClient

KEPT_ID = "s3unzip-message"  # field of a copy's body: the id of the original


class Message(NamedTuple):
    """The queue's message that an invocation works on."""

    id: str  # of the original
    attempts: int  # this one included
    body: str = ""
    group: str = ""  # the message group of a tenant
    is_copy: bool = False


def read_message(record: Mapping[str, Any]) -> Message:
    """Return the message of a record that Lambda received from SQS."""
    body, attributes = record["body"], record["attributes"]
    kept = _kept_id(body)
    return Message(
        kept or record["messageId"],
        int(attributes["ApproximateReceiveCount"]),
        body,
        attributes.get("MessageGroupId", ""),
        bool(kept),
    )


def is_replaced(message: Message, client: SQSClient, queue: str) -> bool:
    """Queue a copy in place of a message that was delivered before; say whether that was done.

    Args:
        message: with the event of an archive.
        client: of SQS.
        queue: its URL.

    Raises:
        BotoCoreError, ClientError: SQS did not take the copy.
    """
    if message.is_copy or message.attempts == 1:
        return False
    body = json.dumps({**json.loads(message.body), KEPT_ID: message.id})
    if message.group:
        client.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId=message.group)
    else:
        client.send_message(QueueUrl=queue, MessageBody=body)
    return True


def _kept_id(body: str) -> str:
    if KEPT_ID not in body:  # no second parse of a usual message
        return ""
    try:
        kept = json.loads(body).get(KEPT_ID, "")
    except (ValueError, AttributeError):
        return ""
    return kept if isinstance(kept, str) else ""
