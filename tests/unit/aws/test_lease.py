"""Messages are hidden while they are worked on, and come back soon after a fault."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from s3unzip.aws.lease import LEASE_SECONDS, hold, retry_wait

from s3unzip.errors import AccessDeniedError, ServiceFaultError, UsageError
from tests.patience import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_sqs import SQSClient

DEFAULT_ATTEMPTS = 5  # `intake.attempts`


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SQSClient, str]]:
    """A queue with one message, visible to all as soon as it is received."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("sqs", region_name="us-east-1")
        made = client.create_queue(QueueName="intake", Attributes={"VisibilityTimeout": "0"})
        client.send_message(QueueUrl=made["QueueUrl"], MessageBody="a")
        yield client, made["QueueUrl"]


def receive(client: SQSClient, url: str) -> list[str]:
    """Return the receipt handles of what is visible."""
    messages = client.receive_message(QueueUrl=url).get("Messages", [])
    return [message["ReceiptHandle"] for message in messages]


def wait_until_hidden(client: SQSClient, url: str) -> None:
    """Wait for the thread's first renewal."""
    deadline = time.monotonic() + HANG_SECONDS
    while receive(client, url):
        assert time.monotonic() < deadline


def test_a_message_is_hidden_while_it_is_held(queue: tuple[SQSClient, str]) -> None:
    """No other function gets the message, with any timeout of the queue."""
    client, url = queue
    with hold(lambda: client, url, receive(client, url)):
        wait_until_hidden(client, url)
    assert receive(client, url) == []  # Lambda deletes it now


def test_a_message_comes_back_when_it_is_released(queue: tuple[SQSClient, str]) -> None:
    """After a fault the wait is the requested one, and no renewal makes it longer."""
    client, url = queue
    (receipt,) = receive(client, url)
    with hold(lambda: client, url, [receipt]) as lease:
        wait_until_hidden(client, url)
        lease.release(receipt, 0)
        lease.renew()
        assert len(receive(client, url)) == 1


class CountingQueue:
    """A queue that counts renewals, and refuses every second one."""

    def __init__(self, wanted: int) -> None:
        self.renewals: list[int] = []
        self.enough = threading.Event()
        self._wanted = wanted

    def change_message_visibility_batch(
        self,
        QueueUrl: str,  # noqa: N803 - boto3's name
        Entries: list[dict[str, Any]],  # noqa: N803 - boto3's name
    ) -> dict[str, Any]:
        """Note the timeouts that are asked for."""
        self.renewals += [entry["VisibilityTimeout"] for entry in Entries]
        if len(self.renewals) >= self._wanted:
            self.enough.set()
        if len(self.renewals) % 2:
            return {"Failed": [{"Id": "0", "Message": "not now"}]}
        raise ClientError({"Error": {"Code": "RequestThrottled"}}, "ChangeMessageVisibilityBatch")


def test_a_long_plan_renews_its_lease() -> None:
    """However long it takes; a renewal that fails is not the last one."""
    queue: Any = CountingQueue(wanted=6)
    with hold(lambda: queue, "url", ["a"], beat=0.001):
        assert queue.enough.wait(HANG_SECONDS)
    count = len(queue.renewals)
    assert set(queue.renewals) == {LEASE_SECONDS}
    assert not any(thread.name == "lease" for thread in threading.enumerate())
    assert len(queue.renewals) == count


def test_a_fault_is_met_again_within_two_minutes() -> None:
    """Each wait is below two minutes, and all of them leave most of 15 minutes for attempts."""
    fault = ServiceFaultError("not now")
    waits = [
        max(retry_wait(attempt, fault) for _ in range(200))
        for attempt in range(1, DEFAULT_ATTEMPTS)
    ]
    assert max(waits) < 120
    assert sum(waits) < 4 * 60
    assert min(retry_wait(1, fault) for _ in range(200)) >= 7
    assert retry_wait(1_000, AccessDeniedError("no")) < 120


def test_a_message_that_says_nothing_is_not_waited_for() -> None:
    """It reaches the dead-letter queue within seconds."""
    assert retry_wait(4, UsageError("no event")) == 1
