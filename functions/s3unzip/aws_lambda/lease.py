"""Messages of the intake queue, kept hidden while they are worked on and no longer.

The queue hides a message for six times the function's time limit, which AWS
asks for (developer guide of Lambda, "Using Lambda with Amazon SQS"): for the
time before the function has it. From then on a thread renews a short lease. So
a long plan is not begun twice, and the message of a function that was killed
comes back when the lease ends. A message whose plan failed comes back after
the wait of `retry_wait`, for Lambda leaves its visibility as it is.
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
LEASE_SECONDS = 90  # what a killed function costs
BEAT_SECONDS = 30.0  # a lease survives two renewals that fail
FIRST_WAIT = 15  # seconds before the second attempt
MAX_WAIT = 110  # a fault is over within 2 minutes, or met again
USAGE_WAIT = 1  # before a message is read again that says nothing useful

log = logging.getLogger(__name__)


def retry_wait(attempts: int, error: Exception) -> int:
    """Return the seconds until a message comes back that failed `attempts` times.

    With the five attempts of the default a message that always fails is in the
    dead-letter queue after 215 s and the time of its attempts. Up to half of a
    wait is taken off by chance, so that a burst does not come back in step.
    """
    if isinstance(error, UsageError):
        return USAGE_WAIT
    if isinstance(error, ClaimedError):
        return math.ceil(error.seconds) + 1
    wait = min(MAX_WAIT, FIRST_WAIT << min(attempts - 1, 10))
    return round(wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


class Lease:
    """The messages that one invocation holds; made by `hold`."""

    def __init__(
        self, open_queue: Callable[[], SQSClient], url: str, receipts: Iterable[str]
    ) -> None:
        self._open_queue = open_queue
        self._url = url
        self._held = set(receipts)
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Hide the messages that are held for `LEASE_SECONDS` more."""
        with self._lock:
            self._hide(dict.fromkeys(self._held, LEASE_SECONDS))

    def release(self, receipt: str, seconds: int) -> None:
        """Let a message come back after `seconds`."""
        with self._lock:
            self._held.discard(receipt)
            self._hide({receipt: seconds})

    def _hide(self, waits: Mapping[str, int]) -> None:
        """Set visibilities; a fault leaves them as they are, and the next renewal is near."""
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
