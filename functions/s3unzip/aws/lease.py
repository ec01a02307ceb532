"""Keeps messages of the intake queue hidden while a function works on them, and no longer.

The queue hides a message for six times the function's time limit, as AWS recommends (developer
guide of Lambda, "Using Lambda with Amazon SQS"). This covers the time before the function has the
message. From then on a thread renews a short lease. So a long plan does not begin twice, and the
message of a killed function returns when the lease ends. A message whose plan failed returns after
`retry_wait`, because Lambda does not change its visibility.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from s3unzip.errors import ClaimedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import ChangeMessageVisibilityBatchRequestEntryTypeDef

FIRST_SECONDS = 1.0  # until the lease is taken; before, the queue's own timeout holds
LEASE_SECONDS = 90  # the delay after a killed function
BEAT_SECONDS = 30.0  # a lease survives two failed renewals
FIRST_WAIT = 15  # seconds before the second attempt
MAX_WAIT = 110  # a fault is retried within 2 minutes
USAGE_WAIT = 1  # the delay of a message without a valid event

log = logging.getLogger(__name__)


def retry_wait(attempts: int, error: Exception) -> int:
    """Return the seconds until a message returns that failed `attempts` times.

    With the default of five attempts, a message that always fails is in the dead-letter queue after
    215 s plus the time of its attempts. Each wait is shortened by up to half at random, so that a
    burst of messages does not return at the same moment.
    """
    if isinstance(error, UsageError):
        return USAGE_WAIT
    if isinstance(error, ClaimedError):
        return math.ceil(error.seconds) + 1
    wait = min(MAX_WAIT, FIRST_WAIT << min(attempts - 1, 10))
    return round(wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


class Lease:
    """The messages that one invocation holds; created by `hold`."""

    def __init__(
        self, open_queue: Callable[[], SQSClient], url: str, receipts: Iterable[str]
    ) -> None:
        self._open_queue = open_queue
        self._url = url
        self._held = set(receipts)
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Hide the held messages for another `LEASE_SECONDS`."""
        with self._lock:
            self._hide(dict.fromkeys(self._held, LEASE_SECONDS))

    def release(self, receipt: str, seconds: int) -> None:
        """Make a message visible again after `seconds`."""
        with self._lock:
            self._held.discard(receipt)
            self._hide({receipt: seconds})

    def _hide(self, waits: Mapping[str, int]) -> None:
        """Set visibilities; a fault changes nothing, and the next renewal comes soon."""
        entries: list[ChangeMessageVisibilityBatchRequestEntryTypeDef] = [
            {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
            for number, (receipt, seconds) in enumerate(waits.items())
        ]
        if not entries:
            return
        try:
            answer = self._open_queue().change_message_visibility_batch(
                QueueUrl=self._url, Entries=entries
            )
        except (BotoCoreError, ClientError) as error:
            log.warning("visibility of messages not changed: %s", error)
            return
        for failed in answer.get("Failed", ()):
            log.warning("visibility of a message not changed: %s", failed.get("Message"))


@contextmanager
def hold(
    open_queue: Callable[[], SQSClient],
    url: str,
    receipts: Iterable[str],
    beat: float = BEAT_SECONDS,
    first: float = FIRST_SECONDS,
) -> Iterator[Lease]:
    """Hold messages; a thread renews their lease every `beat` seconds until the end.

    It takes the lease after `first` seconds, by which a small archive is done.
    """
    lease = Lease(open_queue, url, receipts)
    over = threading.Event()

    def renew() -> None:
        wait = first
        while not over.wait(wait):
            lease.renew()
            wait = beat

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        over.set()
        thread.join()
