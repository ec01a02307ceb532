"""Whether a recheck may begin: when the archive's own run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.ending.recheck import Recheck
from s3unzip.aws.environment import open_client, open_worker
from s3unzip.aws.events import queue_recheck
from s3unzip.aws.telemetry import logger
from s3unzip.model import Verdict, run_id
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Pin, Request
    from s3unzip.stores.calls import Calls

AGAIN_SECONDS = 30  # until a recheck that came too early is delivered again
MAX_START_SECONDS = 900.0  # that the archive's own run may take to begin


def begin_recheck(request: Request, pin: Pin, context: Context, calls: Calls) -> Request | None:
    """Return the request if it may begin now; a recheck that comes too early is queued again.

    Args:
        request: of any archive; the event of a recheck is the end of the older run.
        pin: of the archive that lies there.
        context: of the invocation.
        calls: so far.

    Returns:
        The request, a recheck with the time of now: how long it waited says nothing of its speed.
        None: it was queued again, or there is nothing to compare.

    Raises:
        StorageError, ServiceFaultError: the records or the ledger cannot be read.
    """
    if request.recheck_after is None:
        return request
    config, key, now = open_worker(), request.source.key, context.clock.now()
    own, asked = run_id(config.request(key), pin), request.event_time or now
    report = RunRecords.open(config.stores, own, calls).find_report()
    if report is not None:
        return None if report.verdict is Verdict.REJECTED else replace(request, event_time=now)
    if now > asked + MAX_START_SECONDS and not open_door(context).is_at_work(own):
        return replace(request, event_time=now)  # the archive has lost its event
    logger.info("recheck is put off", run=own)
    recheck = Recheck(key, request.recheck_after, asked)
    queue_recheck(open_client("sqs"), config, recheck, AGAIN_SECONDS)
    return None
