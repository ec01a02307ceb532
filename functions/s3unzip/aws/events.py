"""Events in and out: the requests of S3 events, and the event of a finished run.

In: EventBridge's "Object Created" (key as it is) and S3's own notification
(key URL-encoded, spaces as "+"), also inside of a message of SNS. Out: one EventBridge event a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_plus

import msgspec
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.model import Report, Request, Verdict

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
MESSAGE_CHARACTERS = 1_000  # an event may have 256 KB, and the archive chooses the names of members


def parse_field(event: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return the value `name` of an event as a `kind`."""
    if name not in event:
        raise UsageError(f"the event has no {name!r}; it has {sorted(event)}")
    try:
        return msgspec.convert(event[name], kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event's {name!r} is not a {kind.__name__}: {error}") from error


def read_requests(body: str, config: LambdaConfig) -> Iterator[Request]:
    """Yield the requests in the body of one queue message; nothing for a test event.

    `UsageError`, after the other requests: the message or a key in it never names an archive, so no
    later attempt can take it.
    """
    try:
        puts = list(_puts(_unwrap(json.loads(body))))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"the message is no S3 event: {error!r}") from error
    faults = []
    for bucket, key, time in puts:
        if not config.trigger.covers(bucket, key):
            continue
        fault = _find_key_fault(key)
        if fault is None:
            yield replace(config.request(key), event_time=time)
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


def _puts(event: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield bucket, key and Unix time of each put object in `event`."""
    match event:
        case {"Event": "s3:TestEvent"}:
            return
        case {"detail-type": "Object Created", "detail": detail, "time": time}:
            yield detail["bucket"]["name"], detail["object"]["key"], _unix(time)
        case {"Records": list(records)}:
            for record in records:
                found = record["s3"]
                key = unquote_plus(found["object"]["key"])
                yield found["bucket"]["name"], key, _unix(record["eventTime"])
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
