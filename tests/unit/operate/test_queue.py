"""Events are queued ten at a time; what SQS refuses for now is sent again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location
from s3unzip.operate.queue import ATTEMPTS, LONGEST_WAIT, ArchiveEvent, send_events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_sqs import SQSClient

    from tests.account import Account

Refusals = list[tuple[str, bool]]  # the key of a message, and whether the sender is to blame


@dataclass
class Queue:
    """SendMessageBatch of a queue that refuses some messages.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
    """

    refuse: Callable[[int, Sequence[str]], Refusals]  # by attempt and keys
    batches: list[list[str]] = field(default_factory=list)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> Any:  # noqa: N803 - boto3's names
        """Take a batch; answer which messages were refused."""
        assert QueueUrl == "queue"
        ids = {_key(entry): entry["Id"] for entry in Entries}
        self.batches.append(list(ids))
        refused = self.refuse(len(self.batches), list(ids))
        failed = [
            {"Id": ids[key], "SenderFault": blamed, "Code": "Busy", "Message": key}
            for key, blamed in refused
        ]
        return {"Successful": [], "Failed": failed} if failed else {"Successful": []}


def _key(entry: dict[str, str]) -> str:
    key: str = json.loads(entry["MessageBody"])["detail"]["object"]["key"]
    return key


def send(queue: Queue, count: int) -> list[float]:
    """Send so many events; return the seconds of each pause."""
    slept: list[float] = []
    events = (ArchiveEvent(Location("s3", "b", f"{n}.zip"), float(n)) for n in range(count))
    sent = send_events(cast("SQSClient", queue), "queue", events, "submit", sleep=slept.append)
    assert sent == count
    return slept


def test_ten_messages_are_one_request() -> None:
    """Twenty-one messages are three requests, without a pause."""
    queue = Queue(lambda _, __: [])
    assert send(queue, 21) == []
    assert [len(batch) for batch in queue.batches] == [10, 10, 1]


def test_only_refused_messages_are_sent_again() -> None:
    """After a pause, until all are taken."""
    queue = Queue(lambda attempt, keys: [(key, False) for key in keys[attempt:]])
    slept = send(queue, 4)
    assert queue.batches == [
        ["0.zip", "1.zip", "2.zip", "3.zip"],
        ["1.zip", "2.zip", "3.zip"],
        ["3.zip"],
    ]
    assert len(slept) == 2
    assert all(0 <= seconds <= LONGEST_WAIT for seconds in slept)


def test_it_gives_up() -> None:
    """After all attempts it says how many messages were not taken, and why."""
    queue = Queue(lambda _, __: [("3.zip", False)])
    with pytest.raises(ServiceFaultError, match=r"did not take 1 messages: Busy: 3\.zip"):
        send(queue, 5)
    assert [len(batch) for batch in queue.batches] == [5] + [1] * (ATTEMPTS - 1)


def test_a_fault_of_the_sender_is_not_tried_again() -> None:
    """The same message would be refused again."""
    queue = Queue(lambda _, __: [("1.zip", True)])
    with pytest.raises(ServiceFaultError, match="did not take 1 messages"):
        send(queue, 3)
    assert len(queue.batches) == 1


def test_groups_go_with_messages(account: Account) -> None:
    """A message with a group has it in the queue, another has none."""
    url = account.make_queue("intake")
    client = account.client("sqs")
    source = Location("s3", "b", "a.zip")
    events = [ArchiveEvent(source, 1.0, "acme/"), ArchiveEvent(source, 2.0)]
    assert send_events(client, url, events, "submit") == 2
    told = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
    groups = {one["Attributes"].get("MessageGroupId") for one in told["Messages"]}
    assert groups == {"acme/", None}
