"""Events in and out: archives that were put, by S3's events, and the event of a finished run.

In: EventBridge's "Object Created" (key as it is) and S3's own notification
(key URL-encoded, spaces as "+"), also inside of a message of SNS. Out: one EventBridge event a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote_plus

import msgspec
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.model import Report, Request, Verdict
from s3unzip.stores.ports import Tail

if TYPE_CHECKING:  # stubs
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

T = TypeVar("T")

SOURCE = "s3unzip"
TITLES = {
    Verdict.COMPLETED: "Archive Extracted",
    Verdict.COMPLETED_WITH_ERRORS: "Archive Extracted",
    Verdict.REJECTED: "Archive Rejected",
    Verdict.SOURCE_CHANGED: "Archive Failed",
    Verdict.FAILED: "Archive Failed",
}
COUNTS = ("members", "extracted", "unchanged", "failed", "missing", "bytes_in", "bytes_out")
MAX_KEY = 1_024  # bytes of UTF-8
ETAG = re.compile(r"[0-9a-f]{32}(-\d+)?")
CLOCK_SECONDS = 2  # between the time of an event and the Last-Modified of its object
MESSAGE_CHARACTERS = 1_000  # an event may have 256 KB, and the archive chooses the names of members


def parse_field(event: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return the value `name` of an event as a `kind`."""
    if name not in event:
        raise UsageError(f"the event has no {name!r}; it has {sorted(event)}")
    try:
        return msgspec.convert(event[name], kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event's {name!r} is not a {kind.__name__}: {error}") from error


class ArchivePut(NamedTuple):
    """What one event tells of an archive."""

    request: Request
    etag: str | None  # without quotes, as events have it; None: the event does not tell
    version_id: str | None  # likewise

    @property
    def names_version(self) -> bool:
        """Whether the event tells which version was put."""
        return (self.etag or self.version_id) is not None

    def is_older(self, tail: Tail) -> bool:
        """Return whether another version than that of the event is there now."""
        pin = tail.pin
        if self.version_id is not None and pin.version_id is not None:
            return self.version_id != pin.version_id
        if self.etag is not None:
            return self.etag != (pin.etag or "").strip('"')
        put = self.request.event_time
        return put is not None and (tail.modified or 0.0) > put + CLOCK_SECONDS


def read_puts(body: str, config: LambdaConfig) -> Iterator[ArchivePut]:
    """Yield the archives in the body of one queue message; nothing for a test event.

    `UsageError`, after the other archives: the message or a key in it never names an archive, so no
    later attempt can take it.
    """
    try:
        puts = list(_puts(_unwrap(json.loads(body))))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"the message is no S3 event: {error!r}") from error
    faults = []
    for bucket, key, stored, time in puts:
        if not config.trigger.covers(bucket, key):
            continue
        fault = _find_key_fault(key)
        if fault is None:
            request = replace(config.request(key), event_time=time)
            etag = stored.get("etag")
            is_etag = isinstance(etag, str) and ETAG.fullmatch(etag)
            yield ArchivePut(request, etag if is_etag else None, stored.get("version-id"))
        else:
            faults.append(f"{key[:100]!r} is no key of S3: {fault}")
    if faults:
        raise UsageError("; ".join(faults))


def _find_key_fault(key: str) -> str | None:
    """Return why S3 cannot have an object of this key; None: it can (object-keys, user guide)."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        return f"character {error.start + 1} is half of a surrogate pair"
    return f"{size:,} bytes, {MAX_KEY:,} are allowed" if size > MAX_KEY else None


def _unwrap(message: Any) -> Any:
    """Return the event that SNS delivered, or the message itself, which SNS did not deliver.

    The form: docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html. With raw message
    delivery the queue gets the event alone.
    """
    match message:
        case {"Type": "Notification", "TopicArn": str(), "Message": str(event)}:
            return json.loads(event)
        case _:
            return message


def _puts(event: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], float]]:
    """Yield bucket, key, version and Unix time of each put in `event`.

    The version has EventBridge's names: etag and version-id.
    """
    match event:
        case {"Event": "s3:TestEvent"}:
            return
        case {"detail-type": "Object Created", "detail": detail, "time": time}:
            stored = detail["object"]
            yield detail["bucket"]["name"], stored["key"], stored, _unix(time)
        case {"Records": list(records)}:
            for record in records:
                stored = record["s3"]["object"]
                key = unquote_plus(stored["key"])
                version = {"etag": stored.get("eTag"), "version-id": stored.get("versionId")}
                yield record["s3"]["bucket"]["name"], key, version, _unix(record["eventTime"])
        case _:
            raise UsageError(f"the message is no S3 event; it has {sorted(event)}")


def _unix(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def announce(client: EventBridgeClient, config: LambdaConfig, report: Report) -> None:
    """Put the event of a run that ended."""
    entry: PutEventsRequestEntryTypeDef = {
        "Source": SOURCE,
        "DetailType": TITLES[report.verdict],
        "Detail": json.dumps(event_detail(config, report)),
        "Resources": [
            f"arn:{client.meta.partition}:s3:::{report.source.bucket}/{report.source.key}"
        ],
        "EventBusName": config.event_bus,
    }
    answer = client.put_events(Entries=[entry])
    if answer["FailedEntryCount"]:
        why = "{ErrorCode}, {ErrorMessage}".format_map(answer["Entries"][0])
        raise ServiceFaultError(f"EventBridge did not take the event: {why}")


def event_detail(config: LambdaConfig, report: Report) -> dict[str, Any]:
    """Return the content of a run's event: verdict, totals, and the place of the report."""
    work = config.work
    return {
        "run": report.run,
        "environment": config.environment,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "message": (report.message or "")[:MESSAGE_CHARACTERS],
        "source": str(report.source),
        "version_id": report.pin.version_id if report.pin is not None else None,
        "destination": str(report.destination),
        "report": f"s3://{work.bucket}/{work.key}runs/{report.run}/report.json",
        **{name: getattr(report, name) for name in COUNTS},
        "seconds": round(report.finished - (report.event_time or report.started), 3),
    }
