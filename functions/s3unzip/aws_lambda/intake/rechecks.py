"""Whether a recheck may begin: when the archive's own run has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws_lambda.admission.opening import open_door
from s3unzip.aws_lambda.ending.recheck import Recheck
from s3unzip.aws_lambda.environment import open_client, open_worker
from s3unzip.aws_lambda.events import queue_recheck
from s3unzip.aws_lambda.telemetry import logger
from s3unzip.model import Verdict, run_id
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Pin, Request
    from s3unzip.stores.calls import Calls

AGAIN_SECONDS = 30  # until a recheck that came too early is delivered again
MAX_START_SECONDS = 900.0  # that the archive's own run may take to begin


def is_put_off(request: Request, pin: Pin, context: Context, calls: Calls) -> bool:
    """Say whether a recheck must not begin now; one that comes too early is queued again.

    Args:
        request: of any archive.
        pin: of the archive that lies there.
        context: of the invocation.
        calls: so far.

    Raises:
        StorageError, ServiceFaultError: the records or the ledger cannot be read.
    """
    if request.recheck_after is None:
        return False
    config, key, asked = open_worker(), request.source.key, request.event_time or 0.0
    own = run_id(config.request(key), pin)
    report = RunRecords.open(config.stores, own, calls).find_report()
    if report is not None:
        return report.verdict is Verdict.REJECTED  # nothing is extracted of it
    is_late = context.clock.now() > asked + MAX_START_SECONDS
    if is_late and not open_door(context).is_at_work(own):
        return False  # it has lost its event
    logger.info("recheck is put off", run=own)
    recheck = Recheck(key, request.recheck_after, asked)
    queue_recheck(open_client("sqs"), config, recheck, AGAIN_SECONDS)
    return True
