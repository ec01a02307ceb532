"""The environment's intake queue: events of archives, sent as S3 would send them.

An event starts no second run: a run is known by its id.
"""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from s3unzip.aws.aws_faults import asking
from s3unzip.errors import ServiceFaultError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

    from s3unzip.model import Location

VISIBLE: Final = "ApproximateNumberOfMessages"
IN_FLIGHT: Final = "ApproximateNumberOfMessagesNotVisible"
MAX_BATCH = 10  # messages of one SendMessageBatch
ATTEMPTS = 8
LONGEST_WAIT = 10.0  # seconds


class ArchiveEvent(Struct, frozen=True):
    """An archive that is there, and since when (Unix seconds)."""

    source: Location
    put: float
    group: str = ""  # message group: messages of a group delay each other, not those of others


def send_events(
    client: SQSClient,
    queue: str,
    events: Iterable[ArchiveEvent],
    sender: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Queue the events of `events`, ten with one request; return how many.

    Args:
        client: of SQS.
        queue: its URL.
        events: in the order in which they are sent.
        sender: who sends them, as the events say: "reconcile", "submit".
        sleep: waits some seconds between two attempts.

    Raises:
        AccessDeniedError: sqs:SendMessage is missing.
        ServiceFaultError: SQS did not take a message, also after several attempts.
    """
    count, left = 0, iter(events)
    while some := list(islice(left, MAX_BATCH)):
        entries = [_entry(number, one, sender) for number, one in enumerate(some)]
        _send(client, queue, entries, sleep)
        count += len(some)
    return count


def read_depth(client: SQSClient, queue: str) -> tuple[int, int]:
    """Return how many messages of a queue wait, and how many are in flight."""
    answer = client.get_queue_attributes(QueueUrl=queue, AttributeNames=[VISIBLE, IN_FLIGHT])
    told = answer["Attributes"]
    return int(told.get(VISIBLE, "0")), int(told.get(IN_FLIGHT, "0"))


def _entry(number: int, event: ArchiveEvent, sender: str) -> SendMessageBatchRequestEntryTypeDef:
    """Return a message; messages with groups make the queue a fair queue.

    Developer guide of SQS, "How Amazon SQS fair queues work": a message without a group is a tenant
    of its own.
    """
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": str(number),
        "MessageBody": _body(event, sender),
    }
    if event.group:
        entry["MessageGroupId"] = event.group
    return entry


def _body(event: ArchiveEvent, sender: str) -> str:
    """Return the event in the form of EventBridge's "Object Created" of S3."""
    return json.dumps(
        {
            "detail-type": "Object Created",
            "source": f"s3unzip.{sender}",
            "time": datetime.fromtimestamp(event.put, UTC).isoformat(),
            "detail": {
                "bucket": {"name": event.source.bucket},
                "object": {"key": event.source.key},
            },
        }
    )


def _send(
    client: SQSClient,
    queue: str,
    entries: Sequence[SendMessageBatchRequestEntryTypeDef],
    sleep: Callable[[float], None],
) -> None:
    """Send one batch; messages that SQS refuses for now are sent again.

    API_SendMessageBatch: "can result in a combination of successful and unsuccessful actions".
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(random.uniform(0, min(LONGEST_WAIT, 0.1 * 2**attempt)))  # noqa: S311 - jitter
        with asking("sqs:SendMessage"):
            answer = client.send_message_batch(QueueUrl=queue, Entries=entries)
        failed = answer.get("Failed", [])
        if not failed:
            return
        refused = {one["Id"] for one in failed}
        entries = [entry for entry in entries if entry["Id"] in refused]
        last = failed[0]
        if last["SenderFault"]:
            break
    raise ServiceFaultError(
        f"the queue did not take {len(entries)} messages: {last['Code']}: {last.get('Message', '')}"
    )
