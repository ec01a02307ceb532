"""Incoming events about uploaded or scanned archives, and outgoing events about ended runs.

Incoming: EventBridge's "Object Created" (key not encoded), S3's own notification (key URL-encoded,
spaces as "+") and GuardDuty's scan result. Each of these events may be wrapped in an SNS message. A
topic may also carry other S3 events, for example about deletions. These events start no runs.
Outgoing: one EventBridge event per run.

Rules for the malware gate (``ingest.scan``):

- The run of an archive is started by the result of its scan. S3's own event starts no run.
- The result names the version that was scanned. Only this version is opened, and the run is pinned
  to it. A newer version has its own scan and result.
- A run that ``submit`` queues, or that follows the replacement of an archive, is not started by a
  result. For such a run, the result is read from the tag that GuardDuty adds to the version. In a
  bucket without versioning, the tag might belong to an overwritten object, so it is not read.
- A version is opened only if its result is NO_THREATS_FOUND. Every other version is logged, and
  counted in the metric ArchivesWithheld.
- A result may arrive twice or late. The results for several versions may arrive in any order.

The format of a result: docs.aws.amazon.com/guardduty/latest/ug/
monitor-with-eventbridge-s3-malware-protection.html. The tag and its values:
monitor-enable-s3-object-tagging-malware-protection.html.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_plus

from s3unzip.aws.environment import LambdaConfig, load_config, open_client
from s3unzip.aws.telemetry import add_metrics, logger
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.model import Location, Pin, Report, Verdict
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail

if TYPE_CHECKING:  # the stubs are not deployed
    from mypy_boto3_events import EventBridgeClient

SOURCE = "s3unzip"
OWN_SENDERS = "s3unzip."  # prefix of the "source" of events that commands queue
# GuardDuty's statuses are NO_THREATS_FOUND, THREATS_FOUND, UNSUPPORTED, ACCESS_DENIED and FAILED.
CLEAN = "NO_THREATS_FOUND"
NOT_SCANNED = "NOT_SCANNED"  # our own status for a version without a scan result
SCAN_TAG = "GuardDutyMalwareScanStatus"
# Version ids that do not identify a version: an event may lack the id, and in a bucket
# without versioning, every version has the id "null".
UNVERSIONED = (None, "null")
MAX_KEY = 1_024  # maximum size of a key in UTF-8, in bytes
# The exceptions that are raised for JSON that is not an event.
MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
ETAG = re.compile(r"[0-9a-f]{32}(-\d+)?")
CLOCK_SECONDS = 2  # tolerance between the time of an event and the Last-Modified of its object
FIRST_WAIT = 15  # seconds before the second attempt to handle a message
MAX_WAIT = 110  # maximum wait in seconds, so that each retry follows within 2 minutes
USAGE_WAIT = 1  # seconds before the next attempt if every fault is a `UsageError`
EVENT_TITLES = {
    Verdict.COMPLETED: "Archive Extracted",
    Verdict.COMPLETED_WITH_ERRORS: "Archive Extracted",
    Verdict.REJECTED: "Archive Rejected",
    Verdict.SOURCE_CHANGED: "Archive Failed",
    Verdict.FAILED: "Archive Failed",
}
EVENT_COUNTS = ("members", "extracted", "unchanged", "failed", "missing", "bytes_in", "bytes_out")
# Maximum length of a report's message in an event; EventBridge limits an event to 256 KB. The
# message may quote names of members, and these can be as long as the archive allows.
MESSAGE_CHARACTERS = 1_000


def passes_scan(source: Location, status: str, threats: Sequence[str] = ()) -> bool:
    """Return whether an archive with this scan status may be opened; if not, log and count it."""
    if status == CLEAN:
        return True
    add_metrics(ArchivesWithheld=1)
    logger.error("archive is not opened", source=str(source), scan=status, threats=list(threats))
    return False


def read_scan_tag(source: Location, pin: Pin, config: LambdaConfig, calls: Calls) -> str:
    """Return the status in the scan tag of a version, or NOT_SCANNED if no tag can be read.

    Without versioning, the tag may belong to an object that was overwritten, so it is not read.
    """
    if pin.version_id in UNVERSIONED:
        return NOT_SCANNED
    tags = calls.run("get", lambda: config.stores.source(source).tags(source, pin))
    return tags.get(SCAN_TAG, NOT_SCANNED)


class ArchivePut(NamedTuple):
    """An event about an archive that was uploaded or scanned."""

    source: Location
    time: float  # time of the event, in Unix seconds
    etag: str | None  # without quotes; None if the event contains no valid ETag
    version_id: str | None  # None if the event does not contain the version
    sender: str  # source of the event: aws.s3, aws.guardduty, s3unzip.submit, ...
    scan: str | None = None  # status of the scan of this version; None in other events
    threats: tuple[str, ...] = ()  # names of the threats that were found

    def is_of(self, pin: Pin) -> bool:
        """Return whether the event is about this version.

        The version ids must be equal. If the event contains an ETag, the ETags must be equal, too.
        If the event or the pin lacks a version id, only the ETags are compared.
        """
        is_etag_equal = self.etag == (pin.etag or "").strip('"')  # only a pin's ETag has quotes
        if self.version_id in UNVERSIONED or pin.version_id is None:
            return is_etag_equal
        return self.version_id == pin.version_id and (self.etag is None or is_etag_equal)

    def is_older(self, tail: Tail) -> bool:
        """Return whether the event is about an older version than the current one.

        `tail` describes the current version. If both the event and the tail have a version id, or
        the event has an ETag, any difference means that the event is older. Otherwise the time of
        the event is compared with the Last-Modified of the object.
        """
        both_have_id = self.version_id not in UNVERSIONED and tail.pin.version_id is not None
        if both_have_id or self.etag is not None:
            return not self.is_of(tail.pin)
        return (tail.modified or 0.0) > self.time + CLOCK_SECONDS


def read_puts(body: str, config: LambdaConfig) -> tuple[list[ArchivePut], list[Exception]]:
    """Return the archive events in the body of a queue message, and the faults in it.

    Archives that no trigger covers, or that wait for the result of their scan, are left out. Other
    S3 events, such as deletions, are ignored. A fault is a message or a record that is not an
    event, or an event with an invalid key or scan result.
    """
    puts: list[ArchivePut] = []
    faults: list[Exception] = []
    try:
        events = _list_events(json.loads(body))
    except MALFORMED as error:
        return puts, [UsageError(f"the message is not an S3 event: {error!r}")]
    for event in events:
        try:
            put = _read_event(event)
            if put is not None and _may_start_run(put, config):
                puts.append(put)
        except MALFORMED as error:
            # An error about invalid Unicode quotes the whole text, so the error is shortened.
            faults.append(UsageError(f"the message is not an S3 event: {error!r:.500}"))
    return puts, faults


def _may_start_run(put: ArchivePut, config: LambdaConfig) -> bool:
    """Return whether the event may start a run in this environment; log it if not.

    The rules for keys are in the S3 user guide ("object-keys").

    Raises:
        ValueError: the event cannot refer to an archive.
    """
    # The topic `ingest.topic` may announce other objects, and an event may be older than the last
    # deployment.
    if not config.covers(put.source):
        logger.info("archive is outside the scope of this environment", source=str(put.source))
        return False
    key = put.source.key
    size = len(key.encode())  # raises `ValueError` if the key has half of a surrogate pair
    if size > MAX_KEY:
        raise ValueError(f"{key[:100]}: a key can have at most {MAX_KEY:,} bytes, not {size:,}")
    if put.scan is not None and put.etag is None and put.version_id is None:
        raise ValueError(f"{key}: the scan result does not name a version")
    # An event from a command contains no scan result: the intake function reads it from a tag.
    if config.scan and put.scan is None and not put.sender.startswith(OWN_SENDERS):
        logger.info("archive waits for the result of its scan", key=key)
        return False
    return True


def _list_events(message: Any) -> list[Any]:
    """Return the records of S3's own notification, or the one event of an EventBridge message.

    A notification or an event can be wrapped in an SNS message, unless raw message delivery is
    enabled. The format of an SNS message:
    docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html.
    """
    match message:
        case {"Type": "Notification", "TopicArn": str(), "Message": str(event)}:
            return _list_events(json.loads(event))
        case {"Records": list(records)}:
            return records
    return [message]


def _read_event(event: Any) -> ArchivePut | None:
    """Return the archive in an EventBridge message, or in a record of S3's own notification.

    Returns None for an event that is not about a created or scanned object.
    """
    match event:
        case {"detail-type": "Object Created", "detail": detail}:
            stored = detail["object"]
            return ArchivePut(
                source=Location("s3", detail["bucket"]["name"], stored["key"]),
                time=_parse_time(event["time"]),
                etag=_read_etag(stored.get("etag")),
                version_id=stored.get("version-id"),
                sender=str(event.get("source")),
            )
        case {
            "detail-type": "GuardDuty Malware Protection Object Scan Result",
            "source": "aws.guardduty",
            "detail": detail,
        }:
            return _read_scan(detail, event["time"])
        case {"eventName": str(name)} if name.startswith("ObjectCreated:"):
            return _read_record(event)
        case (
            {"Event": "s3:TestEvent"}
            | {"eventName": str()}
            | {"source": "aws.s3", "detail-type": str()}
        ):
            return None  # S3 tests the notification, or reports a deletion, a restore or a tag
    raise ValueError(f"its fields are {sorted(event)}")


def _read_scan(detail: dict[str, Any], time: str) -> ArchivePut:
    scanned = detail["s3ObjectDetails"]
    result = detail["scanResultDetails"]
    return ArchivePut(
        source=Location("s3", scanned["bucketName"], scanned["objectKey"]),
        time=_parse_time(time),
        etag=_read_etag(scanned.get("eTag")),
        version_id=scanned.get("versionId"),
        sender="aws.guardduty",
        scan=result["scanResultStatus"],
        threats=tuple(threat["name"] for threat in result.get("threats") or ()),
    )


def _read_record(record: dict[str, Any]) -> ArchivePut:
    """Return the archive in a record of S3's own notification.

    The format is in the S3 user guide, "notification-content-structure".
    """
    stored = record["s3"]["object"]
    return ArchivePut(
        source=Location(
            "s3",
            record["s3"]["bucket"]["name"],
            unquote_plus(stored["key"], errors="strict"),  # keys in S3 are always UTF-8
        ),
        time=_parse_time(record["eventTime"]),
        etag=_read_etag(stored.get("eTag")),
        version_id=stored.get("versionId"),
        sender="aws.s3",
    )


def _read_etag(text: object) -> str | None:
    """Return an ETag without quotes, or None if the text does not have the form of an S3 ETag."""
    etag = str(text).strip('"')
    if ETAG.fullmatch(etag):
        return etag
    return None


def _parse_time(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def redeliver_later(
    receipt: str, attempts: int, faults: Sequence[tuple[Exception, str | None]]
) -> None:
    """Log why a message could not be handled; make SQS deliver it again after some seconds.

    By default, a message is attempted five times. After the fifth wait, SQS moves the message to
    the dead-letter queue. The five waits take at most 325 s.

    Args:
        receipt: the receipt handle of the message.
        attempts: how many times the message has been received, including this time.
        faults: the errors of this attempt, each with the id of its run, or with None if there is no
            run.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - rarely needed

    seconds = USAGE_WAIT
    if not all(isinstance(fault, UsageError) for fault, _ in faults):  # a retry may help
        seconds = _choose_wait(attempts)
    for fault, run in faults:
        logger.error(
            "archive not taken",
            exc_info=fault,
            correlation_id=run,
            attempts=attempts,
            next_seconds=seconds,
        )
    try:
        open_client("sqs").change_message_visibility(
            QueueUrl=load_config().queue, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )
    except (BotoCoreError, ClientError) as fault:
        logger.warning("the visibility of a message could not be changed: %s", fault)


def _choose_wait(attempts: int) -> int:
    """Return how many seconds a message waits after this many attempts.

    Each wait is shortened at random by up to half, so that the messages of a burst do not return at
    the same moment.
    """
    # 15, 30, 60, 110, 110, ... seconds. The exponent is bounded, because `attempts` is not.
    longest: int = min(MAX_WAIT, FIRST_WAIT * 2 ** min(attempts - 1, 10))
    return round(longest * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def publish_run_event(client: EventBridgeClient, config: LambdaConfig, report: Report) -> None:
    """Publish the event for a run that has ended."""
    # PutEvents succeeds even if it refuses an event.
    response = client.put_events(
        Entries=[
            {
                "Source": SOURCE,
                "DetailType": EVENT_TITLES[report.verdict],
                "Detail": json.dumps(event_detail(config, report)),
                "Resources": [
                    f"arn:{client.meta.partition}:s3:::{report.source.bucket}/{report.source.key}"
                ],
                "EventBusName": config.event_bus,
            }
        ]
    )
    if response["FailedEntryCount"]:
        raise ServiceFaultError(
            "EventBridge did not accept the event: {ErrorCode}, {ErrorMessage}".format_map(
                response["Entries"][0]
            )
        )


def event_detail(config: LambdaConfig, report: Report) -> dict[str, Any]:
    """Return the content of the event for a run: verdict, totals and the location of the report."""
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
