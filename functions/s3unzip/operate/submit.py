"""Queues the events of archives that are already in the ingest bucket, as S3 would send them.

An event starts no second run, because a run is known by its id: a submission can be repeated.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from msgspec import Struct

from s3unzip.api.extraction import (
    SUFFIX,
    fixed_part,
    list_objects,
    names_object,
    names_several,
)
from s3unzip.aws.environment import Trigger
from s3unzip.errors import NotFoundError, ServiceFaultError, UsageError
from s3unzip.model import Location
from s3unzip.operate.control_plane import asking
from s3unzip.operate.runs import DeployedRuns
from s3unzip.stores import Stores
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.locations import parse_source, split_bucket

VISIBLE: Final = "ApproximateNumberOfMessages"
IN_FLIGHT: Final = "ApproximateNumberOfMessagesNotVisible"
MAX_BATCH = 10  # messages of one SendMessageBatch
SENDERS = 8  # requests to the queue at once
ATTEMPTS = 8
LONGEST_WAIT = 10.0  # seconds


class Submission(Struct):
    """What ``s3unzip submit`` found and queued."""

    environment: str
    archives: int
    size: int  # bytes
    outside: int  # archives that the environment does not take; they are left out
    dollars: float  # expected, estimated by the sizes
    queued: int = 0


def find_archives(words: Sequence[str], runs: DeployedRuns) -> tuple[dict[str, int], int]:
    """List the archives that `words` name: keys, prefixes, globs.

    Return their sizes by their keys, and how many the environment does not take.
    """
    trigger, sizes, outside = runs.defaults.trigger, dict[str, int](), set[str]()
    for word in words:
        _check(word, trigger, runs.environment)
    for word in words:
        found = dict(_list(word, runs.stores))
        taken = {key: size for key, size in found.items() if trigger.covers(trigger.bucket, key)}
        others = {key for key in found if key.lower().endswith(SUFFIX)} - taken.keys()
        if not taken and not others:
            raise NotFoundError(f"{word}: no archive is there that {runs.environment} takes")
        sizes |= taken
        outside |= others
    return sizes, len(outside)


def send_events(
    client: Any,
    queue: str,
    events: Sequence[tuple[Location, float]],
    sender: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """Queue events, ten with one request and several requests at once; yield how many are sent.

    Args:
        events: archives, and the times that their events tell (Unix seconds).
        sender: who sends them, as the events say: "reconcile", "submit".
        sleep: waits some seconds between two attempts.
    """

    def send(start: int) -> int:
        entries = [
            {"Id": str(number), "MessageBody": _body(*event, sender)}
            for number, event in enumerate(events[start : start + MAX_BATCH])
        ]
        _send(client, queue, entries, sleep)
        return len(entries)

    yield from accumulate(map_ahead(send, range(0, len(events), MAX_BATCH), SENDERS))


def read_depth(runs: DeployedRuns, queue: str) -> tuple[int, int]:
    """Return how many messages of a queue wait, and how many are in flight."""
    names = [VISIBLE, IN_FLIGHT]
    answer = runs.ask("sqs:GetQueueAttributes", QueueUrl=queue, AttributeNames=names)
    waiting, flying = (int(answer["Attributes"].get(name, "0")) for name in names)
    return waiting, flying


def _check(word: str, trigger: Trigger, environment: str) -> None:
    """Check that the environment may take what a word names."""
    scheme, separator, rest = word.partition("://")
    bucket, key = split_bucket(rest)
    if not separator or scheme.lower() != "s3" or not bucket:
        raise UsageError(f"{word}: archives of an environment are in S3: s3://bucket/prefix/")
    if names_several(word):
        start = fixed_part(key)
        inside = trigger.prefix.startswith(start) or start.startswith(trigger.prefix)
    else:
        inside = trigger.covers(bucket, key)
    if bucket != trigger.bucket or not inside:
        takes = f"s3://{trigger.bucket}/{trigger.prefix}*{trigger.suffix}"
        raise UsageError(
            f"{word}: the environment {environment} takes only {takes}; copy the "
            "archives there, or extract them on this machine with s3unzip run"
        )


def _list(word: str, stores: Stores) -> Iterator[tuple[str, int]]:
    """Yield keys and sizes of the objects that a word names; a name wins over a glob."""
    if names_several(word) and not names_object(word, stores):
        yield from ((one.key, one.size) for one in list_objects(word, stores))
        return
    source = parse_source(word)
    with contextlib.suppress(NotFoundError):
        yield source.key, stores.source(source).head(source).size


def _body(source: Location, put: float, sender: str) -> str:
    """Return the event in the form of EventBridge's "Object Created" of S3."""
    event = {
        "detail-type": "Object Created",
        "source": f"s3unzip.{sender}",
        "time": datetime.fromtimestamp(put, UTC).isoformat(),
        "detail": {"bucket": {"name": source.bucket}, "object": {"key": source.key}},
    }
    return json.dumps(event)


def _send(
    client: Any, queue: str, entries: Sequence[dict[str, str]], sleep: Callable[[float], None]
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
