"""Events in and out: archives that were put or scanned, and the event of a finished run.

In: EventBridge's "Object Created" (key not encoded), S3's own notification (key URL-encoded, spaces
as "+") and GuardDuty's result of a scan. Each may be inside a message of SNS. Out: one EventBridge
event per run.

The rules of the malware gate (``ingest.scan``):

- The result of its scan starts the run of an archive. S3's own event starts nothing.
- The result names the version that was scanned. Only this version is opened: the run is pinned to
  it. A newer version has a scan and a result of its own.
- ``submit``, and the run after an archive was replaced, have no result. They read the tag with
  which GuardDuty marks the version. In a bucket without versioning, a tag may belong to an
  overwritten object, so it is not read.
- A version with any other result, or without one, is not opened. It is logged and counted.
- A result may come twice or late. The results of several versions may come in any order.

The form of a result: docs.aws.amazon.com/guardduty/latest/ug/
monitor-with-eventbridge-s3-malware-protection.html. The tag and its values:
monitor-enable-s3-object-tagging-malware-protection.html.
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
from s3unzip.aws.telemetry import logger, record_withheld
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.model import Location, Pin, Report, Request, Verdict
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail

if TYPE_CHECKING:  # the stubs are not deployed
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

T = TypeVar("T")

SOURCE = "s3unzip"
OWN_SENDERS = "s3unzip."  # the prefix of "source" in the events that commands queue
CLEAN = "NO_THREATS_FOUND"
SCAN_TAG = "GuardDutyMalwareScanStatus"
UNVERSIONED = (None, "null")  # version ids that an overwritten object keeps
MAX_KEY = 1_024  # bytes of UTF-8
ETAG = re.compile(r"[0-9a-f]{32}(-\d+)?")
CLOCK_SECONDS = 2  # tolerance between the time of an event and its object's Last-Modified
EVENT_TITLES = {
    Verdict.COMPLETED: "Archive Extracted",
    Verdict.COMPLETED_WITH_ERRORS: "Archive Extracted",
    Verdict.REJECTED: "Archive Rejected",
    Verdict.SOURCE_CHANGED: "Archive Failed",
    Verdict.FAILED: "Archive Failed",
}
EVENT_COUNTS = ("members", "extracted", "unchanged", "failed", "missing", "bytes_in", "bytes_out")
# An event has at most 256 KB. A message may quote members' names, whose length the archive decides.
MESSAGE_CHARACTERS = 1_000


def parse_field(event: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return the field `name` of an event, converted to the type `kind`."""
    if name not in event:
        raise UsageError(f"the event has no {name!r}; it has {sorted(event)}")
    try:
        return msgspec.convert(event[name], kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event's {name!r} is not a {kind.__name__}: {error}") from error


class ScanResult(NamedTuple):
    """The result of the malware scan of one version."""

    status: str  # NO_THREATS_FOUND, THREATS_FOUND, UNSUPPORTED, ACCESS_DENIED, FAILED
    threats: tuple[str, ...] = ()  # their names


def admit(source: Location, scan: ScanResult) -> bool:
    """Return whether an archive may be opened after its scan; log and count it if not."""
    if scan.status == CLEAN:
        return True
    record_withheld(source, scan.status, scan.threats)
    return False


def find_scan(source: Location, pin: Pin, config: LambdaConfig, calls: Calls) -> ScanResult:
    """Return the scan result in the tag of a version; its status is NOT_SCANNED without a tag."""
    status = "NOT_SCANNED"  # not a status of GuardDuty
    if pin.version_id not in UNVERSIONED:
        store = config.stores.source(source)
        status = calls.run("get", lambda: store.tags(source, pin)).get(SCAN_TAG, status)
    return ScanResult(status)


class ObjectEvent(NamedTuple):
    """An event of one object: it was put, or scanned."""

    bucket: str
    key: str
    time: float  # Unix seconds
    etag: str | None  # without quotes; None: the event has no valid ETag
    version_id: str | None
    sender: str  # aws.s3, aws.guardduty, s3unzip.submit, ...
    scan: ScanResult | None = None


class ArchivePut(NamedTuple):
    """An archive that an event names."""

    request: Request
    etag: str | None  # without quotes; None: the event has no valid ETag
    version_id: str | None  # None: the event does not name it
    scan: ScanResult | None = None  # of this version

    def is_of(self, pin: Pin) -> bool:
        """Return whether the event is of this version, by its version id and its ETag."""
        has_etag = self.etag == (pin.etag or "").strip('"')
        if self.version_id in UNVERSIONED or pin.version_id is None:
            return has_etag
        return self.version_id == pin.version_id and (self.etag is None or has_etag)

    def is_older(self, tail: Tail) -> bool:
        """Return whether the event's version is no longer the current one, which has this `tail`.

        Version ids are compared, else ETags. If the event has neither, its time is compared with
        the object's Last-Modified.
        """
        pin = tail.pin
        if self.version_id not in UNVERSIONED and pin.version_id is not None:
            return self.version_id != pin.version_id
        if self.etag is not None:
            return self.etag != (pin.etag or "").strip('"')
        put = self.request.event_time
        return put is not None and (tail.modified or 0.0) > put + CLOCK_SECONDS


def read_puts(body: str, config: LambdaConfig) -> Iterator[ArchivePut]:
    """Yield the archives in the body of one queue message; none for a test event.

    Raises:
        UsageError: the message is not an event, or one of its events cannot name an archive. The
            archives of its other events are yielded first.
    """
    try:
        events = list(_read_events(_unwrap(json.loads(body))))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"the message is not an S3 event: {error!r}") from error
    faults = []
    for event in events:
        if not config.covers(Location("s3", event.bucket, event.key)):
            continue
        fault = _find_fault(event)
        if fault is not None:
            faults.append(f"{event.key[:100]!r} {fault}")
        elif config.scan and event.scan is None and not event.sender.startswith(OWN_SENDERS):
            logger.info("archive waits for the result of its scan", key=event.key)
        else:
            yield ArchivePut(
                replace(config.request(event.key), event_time=event.time),
                event.etag,
                event.version_id,
                event.scan,
            )
    if faults:
        raise UsageError("; ".join(faults))


def _find_fault(event: ObjectEvent) -> str | None:
    """Return why an event cannot name an archive; None: it can.

    The rules for keys are in the user guide of S3 ("object-keys").
    """
    try:
        size = len(event.key.encode())
    except UnicodeEncodeError as error:
        return f"is not a valid S3 key: character {error.start + 1} is half of a surrogate pair"
    if size > MAX_KEY:
        return f"is not a valid S3 key: it has {size:,} bytes, at most {MAX_KEY:,} are allowed"
    if event.scan is not None and (event.etag or event.version_id) is None:
        return "has a scan result that does not name a version"
    return None


def _unwrap(message: Any) -> Any:
    """Return the event inside a message of SNS, or any other message unchanged.

    The form: docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html. With raw message
    delivery the queue gets the event alone.
    """
    match message:
        case {"Type": "Notification", "TopicArn": str(), "Message": str(event)}:
            return json.loads(event)
        case _:
            return message


def _read_events(message: Mapping[str, Any]) -> Iterator[ObjectEvent]:
    """Yield the events of objects in a message of EventBridge, or in S3's own notification."""
    match message:
        case {"Event": "s3:TestEvent"}:
            return
        case {"detail-type": "Object Created", "detail": detail}:
            stored = detail["object"]
            yield ObjectEvent(
                bucket=detail["bucket"]["name"],
                key=stored["key"],
                time=_unix(message["time"]),
                etag=_read_etag(stored.get("etag")),
                version_id=stored.get("version-id"),
                sender=message.get("source", ""),
            )
        case {
            "detail-type": "GuardDuty Malware Protection Object Scan Result",
            "source": "aws.guardduty" as sender,
            "detail": detail,
        }:
            scanned = detail["s3ObjectDetails"]
            scan = detail["scanResultDetails"]
            threats = tuple(threat["name"] for threat in scan.get("threats") or ())
            yield ObjectEvent(
                bucket=scanned["bucketName"],
                key=scanned["objectKey"],
                time=_unix(message["time"]),
                etag=_read_etag(scanned.get("eTag")),
                version_id=scanned.get("versionId"),
                sender=sender,
                scan=ScanResult(scan["scanResultStatus"], threats),
            )
        case {"Records": list(records)}:
            yield from map(_read_record, records)
        case _:
            raise UsageError(f"the message is not an S3 event; it has {sorted(message)}")


def _read_record(record: Mapping[str, Any]) -> ObjectEvent:
    """Return the event in one record of S3's own notification.

    The form: notification-content-structure in the user guide of S3.
    """
    stored = record["s3"]["object"]
    return ObjectEvent(
        bucket=record["s3"]["bucket"]["name"],
        key=unquote_plus(stored["key"]),
        time=_unix(record["eventTime"]),
        etag=_read_etag(stored.get("eTag")),
        version_id=stored.get("versionId"),
        sender="aws.s3",
    )


def _read_etag(text: object) -> str | None:
    """Return an ETag without quotes; None: the text is not an ETag that S3 makes."""
    if isinstance(text, str):
        etag = text.strip('"')
        if ETAG.fullmatch(etag):
            return etag
    return None


def _unix(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def announce(client: EventBridgeClient, config: LambdaConfig, report: Report) -> None:
    """Publish the event of a run that ended."""
    run_ended: PutEventsRequestEntryTypeDef = {
        "Source": SOURCE,
        "DetailType": EVENT_TITLES[report.verdict],
        "Detail": json.dumps(event_detail(config, report)),
        "Resources": [
            f"arn:{client.meta.partition}:s3:::{report.source.bucket}/{report.source.key}"
        ],
        "EventBusName": config.event_bus,
    }
    # PutEvents succeeds even if it refuses an event.
    answer = client.put_events(Entries=[run_ended])
    if answer["FailedEntryCount"]:
        why = "{ErrorCode}, {ErrorMessage}".format_map(answer["Entries"][0])
        raise ServiceFaultError(f"EventBridge did not accept the event: {why}")


def event_detail(config: LambdaConfig, report: Report) -> dict[str, Any]:
    """Return the content of a run's event: verdict, totals, and where the report is."""
    return {
        "run": report.run,
        "environment": config.environment,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "message": (report.message or "")[:MESSAGE_CHARACTERS],
        "source": str(report.source),
        "route": report.route and report.route.name,
        "version_id": report.pin and report.pin.version_id,
        "destination": str(report.destination),
        "report": f"s3://{config.work.bucket}/{config.work.key}runs/{report.run}/report.json",
        **{name: getattr(report, name) for name in EVENT_COUNTS},
        "seconds": round(report.finished - (report.event_time or report.started), 3),
    }
