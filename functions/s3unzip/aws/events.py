"""Events in and out: the requests of S3 events, and the event of a finished run.

In: EventBridge's "Object Created" (key as it is) and S3's own notification
(key URL-encoded, spaces as "+"). Out: one EventBridge event a run.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import msgspec
from msgspec import structs

from s3unzip.aws.ending.recheck import Recheck
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.model import Report, Request, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef
    from mypy_boto3_sqs import SQSClient

    from s3unzip.aws.environment import LambdaConfig

SOURCE = "s3unzip"
TITLES = {
    Verdict.COMPLETED: "Archive Extracted",
    Verdict.COMPLETED_WITH_ERRORS: "Archive Extracted",
    Verdict.REJECTED: "Archive Rejected",
    Verdict.SOURCE_CHANGED: "Archive Failed",
    Verdict.FAILED: "Archive Failed",
}
# Of messages from s3unzip itself: an archive that a run extracted, and one that replaced the
# archive of a run before the run had ended.
NESTED = "s3unzip-nested"
RECHECK = "s3unzip-recheck"
MESSAGE_CHARACTERS = 1_000  # an event may have 256 KB, and the archive chooses the names of members


def read_requests(body: str, worker: LambdaConfig, now: float) -> Iterator[Request]:
    """Yield the requests in the body of one queue message; nothing for a test event.

    Raises:
        UsageError: the pipeline does not know this event.
    """
    try:
        event = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the message is not JSON: {error}") from error
    if isinstance(event, dict) and NESTED in event:
        yield _read_nested(event[NESTED], worker, now)
        return
    if isinstance(event, dict) and RECHECK in event:
        yield _read_recheck(event[RECHECK], worker, now)
        return
    for bucket, key, time in _puts(event):
        if worker.trigger.covers(bucket, key):
            yield structs.replace(worker.request(key), event_time=time, received_time=now)


def queue_nested(client: SQSClient, worker: LambdaConfig, requests: Iterable[Request]) -> int:
    """Queue requests for archives that a run extracted; return how many.

    A repeated call queues them again, but starts nothing, because their runs are known.
    """
    count = 0
    for request in requests:
        body = json.dumps({NESTED: msgspec.to_builtins(request)})
        client.send_message(QueueUrl=worker.queue, MessageBody=body)
        count += 1
    return count


def queue_recheck(
    client: SQSClient, worker: LambdaConfig, recheck: Recheck, seconds: int = 0
) -> None:
    """Queue a recheck, to be delivered after so many `seconds`.

    A repeated call queues it again, but starts nothing, because its run is known.
    """
    body = json.dumps({RECHECK: msgspec.to_builtins(recheck)})
    client.send_message(QueueUrl=worker.queue, MessageBody=body, DelaySeconds=seconds)


def _read_recheck(value: Any, worker: LambdaConfig, now: float) -> Request:
    """Return the request of a message of `queue_recheck`.

    Members that are right stay as they are, so most of its requests are HEADs.
    """
    try:
        recheck = msgspec.convert(value, Recheck)
    except msgspec.ValidationError as error:
        raise UsageError(f"the message asks for a recheck, but {error}") from error
    if not worker.trigger.covers(worker.trigger.bucket, recheck.key):
        raise UsageError(f"recheck: {recheck.key} is not in the trigger's scope")
    return structs.replace(recheck.request(worker.request(recheck.key)), received_time=now)


def _read_nested(value: Any, worker: LambdaConfig, now: float) -> Request:
    """Return the request of a message of `queue_nested`, if the environment allows it."""
    try:
        request = msgspec.convert(value, Request)
    except msgspec.ValidationError as error:
        raise UsageError(f"the message asks for a nested archive, but {error}") from error
    ours = worker.destination
    for where in (request.source, request.destination):
        inside = (where.scheme, where.bucket) == (ours.scheme, ours.bucket)
        if not inside or not where.key.startswith(ours.key):
            raise UsageError(f"nested archive {request.source}: {where} is not below {ours}")
    depth = request.options.nested_depth
    if request.options.nested_budget is None or not 0 <= depth < worker.options.nested_depth:
        raise UsageError(f"nested archive {request.source}: it has no budget, or depth {depth}")
    return structs.replace(request, received_time=now)


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


def announce(client: EventBridgeClient, worker: LambdaConfig, report: Report) -> None:
    """Put the event of a run that ended.

    Raises:
        ServiceFaultError: EventBridge did not accept it.
    """
    entry: PutEventsRequestEntryTypeDef = {
        "Source": SOURCE,
        "DetailType": TITLES[report.verdict],
        "Detail": json.dumps(event_detail(worker, report)),
        "Resources": [
            f"arn:{client.meta.partition}:s3:::{report.source.bucket}/{report.source.key}"
        ],
        "EventBusName": worker.event_bus,
    }
    answer = client.put_events(Entries=[entry])
    if answer["FailedEntryCount"]:
        failed = answer["Entries"][0]
        raise ServiceFaultError(
            f"EventBridge did not take the event: {failed.get('ErrorCode')}, "
            f"{failed.get('ErrorMessage')}"
        )


def event_detail(worker: LambdaConfig, report: Report) -> dict[str, Any]:
    """Return the content of a run's event: verdict, totals, and the place of the report."""
    work = worker.work
    return {
        "run": report.run,
        "environment": worker.environment,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "message": (report.message or "")[:MESSAGE_CHARACTERS],
        "source": str(report.source),
        "version_id": report.pin.version_id if report.pin is not None else None,
        "destination": str(report.destination),
        "report": f"s3://{work.bucket}/{work.key}runs/{report.run}/report.json",
        "members": report.members,
        "extracted": report.extracted,
        "unchanged": report.unchanged,
        "failed": report.failed,
        "missing": report.missing,
        "bytes_in": report.bytes_in,
        "bytes_out": report.bytes_out,
        "seconds": round(report.finished - (report.event_time or report.started), 3),
    }
