"""Function `intake`: a batch of S3 events; each archive is extracted here, or its run is started.

One request reads the end of an archive, and with it its version, size and directory. A small
archive is planned, extracted and settled at once, by the functions that do every other run, with
the records in memory: two objects of them stay. Any other is planned here where its directory is in
what was read, and handed to the state machine; a larger directory is read by its state Plan.

The rules:

- A message comes at least once, and again after a fault or a kill. Two may be about the same put.
  The version that is there now decides: it has one run, which makes the same objects each time. No
  lock is held.
- The report of a run is looked up before anything is done. A run that FAILED goes on by an
  execution. Any other verdict is final. A message that comes again repeats what follows the report,
  because its function may have been killed before that.
- A small run is in memory until it ends: see `s3unzip.aws.small_runs`.
- If the store refuses to give an archive, for example because it must be restored, its run FAILED.
  A missing right is a fault of the message: it comes again, and becomes a dead letter in the end.
- An invocation that does not complete a run leaves it to another one that has planned or ended it.
- With a malware gate only the version that was scanned is opened: see `s3unzip.aws.scans`.
- An attempt that was killed may have written members of a version that is not there any more, or
  its report without the event. The message comes again: then the end of that run is repeated, and
  the newest version is compared with what lies there.
"""

import random
import time
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip import errors
from s3unzip.aws.environment import LambdaConfig, open_client, open_worker
from s3unzip.aws.events import ArchivePut, read_puts
from s3unzip.aws.executions import end_run, start_over_newest, start_run
from s3unzip.aws.scans import admit, find_result
from s3unzip.aws.small_runs import SmallRun, count_held, tuned_for_one
from s3unzip.aws.telemetry import (
    bind_run,
    lambda_function,
    logger,
    record_handover,
)
from s3unzip.context import Context
from s3unzip.model import Location, Pin, Report, Request, Stop, Verdict
from s3unzip.planning.reading import read_tail
from s3unzip.run_ids import check_same_archive, run_id, run_stem
from s3unzip.runs.records import REPORT, RunRecords
from s3unzip.settling.loop import (
    NOT_READABLE,
    FailedExecution,
    Settled,
    look_up_run,
    settle_failed,
)
from s3unzip.stores import Stores
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail

FIRST_WAIT = 15  # seconds before the second attempt of a message
MAX_WAIT = 110  # a fault is retried within 2 minutes
USAGE_WAIT = 1  # of a message without a valid event
NEW_SECONDS = 600  # an older event has come before: from the dead letters, or by hand
# Between the Last-Modified of an archive and its event: of an upload in parts it is its beginning.
UPLOAD_SECONDS = 120
REPORT_READERS = 16  # of the seconds in which a run may have begun
BRIEF_SECONDS = 1.0  # a run that took no longer cannot have been overtaken by a newer archive


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Take each message of a batch; return those that failed and must be delivered again.

    The response has the form of the developer guide of Lambda ("Handling errors for an SQS event
    source in Lambda", ReportBatchItemFailures). A failed archive is not an error of the function.
    """
    failed = [
        message["messageId"] for message in event["Records"] if not _take_message(message, context)
    ]
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def _take_message(record: dict[str, Any], invocation: LambdaContext) -> bool:
    """Take the archives of one message; return False if that failed: it comes again soon."""
    attempts = int(record["attributes"]["ApproximateReceiveCount"])
    try:
        config = open_worker()
        for put in read_puts(record["body"], config):
            take_archive(put, config, config.context(invocation, put.request), attempts)
    except Exception as error:  # noqa: BLE001 - a message fails, not the batch
        wait = retry_wait(attempts, error)
        logger.exception("archive not taken", attempts=attempts, next_seconds=wait)
        _redeliver_after(record["receiptHandle"], wait)
        return False
    return True


def retry_wait(attempts: int, error: Exception) -> int:
    """Return the seconds until a message returns that failed `attempts` times.

    With the default of five attempts, a message that always fails is in the dead-letter queue after
    215 s plus the time of its attempts. Each wait is shortened by up to half at random, so that a
    burst of messages does not return at the same moment.
    """
    if isinstance(error, errors.UsageError):
        return USAGE_WAIT
    wait = min(MAX_WAIT, FIRST_WAIT << min(attempts - 1, 10))
    return round(wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _redeliver_after(receipt: str, seconds: int) -> None:
    """Let the queue deliver a message again soon; if that fails, it does after its own timeout."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few need it

    queue = open_worker().queue
    try:
        open_client("sqs").change_message_visibility(
            QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )
    except (BotoCoreError, ClientError) as error:
        logger.warning("visibility of a message not changed: %s", error)


class IntakeContext(NamedTuple):
    """What one invocation works with."""

    config: LambdaConfig
    context: Context
    calls: Calls


class ArrivedArchive(NamedTuple):
    """The current version of an archive, and its run."""

    request: Request
    run: str
    tail: Tail


def take_archive(
    put: ArchivePut, config: LambdaConfig, context: Context, attempts: int = 1
) -> None:
    """Extract the version that is there now, or start its run, and end what older attempts left.

    Args:
        put: what the event says of the archive.
        config: of the environment.
        context: of the invocation, for the archive's route.
        attempts: how often the message was received, this time included.
    """
    request = put.request
    if put.scan is not None and not admit(request.source, put.scan):
        return
    is_new = attempts == 1 and time.time() - (request.event_time or 0) < NEW_SECONDS
    at = IntakeContext(config, context, context.calls())
    source = context.stores.source(request.source)
    archive = None
    try:
        tail = read_tail(source, request.source, context, at.calls)
    except errors.NotFoundError:
        logger.info("archive is gone", source=str(request.source))
    except errors.AccessDeniedError:  # a right can be given before the message comes again
        raise
    except errors.StorageError as refusal:
        archive = _report_unreadable(request, refusal, at)
    else:
        archive = _take_version(put, tail, at, is_new=is_new)
    # An earlier attempt at the message may have been at an older version, and cut off.
    if not is_new and (archive is None or put.is_older(archive.tail)):
        has_ended = _repeat_ends(put, config, context, other_than=archive and archive.run)
        if archive is not None and not has_ended and (attempts > 1 or put.names_version):
            _mend_older(put, at)


def _mend_older(put: ArchivePut, at: IntakeContext) -> None:
    """Extract the newest version over members that a killed attempt may have left of an older one.

    That attempt left no report, so no end of its run could be repeated.
    """
    request = put.request
    version = put.version_id or put.etag or ""
    cause = f"{request.source} {request.event_time} {version}"
    start_over_newest(request, cause, at.config, at.context)


def _may_open(put: ArchivePut, pin: Pin, config: LambdaConfig, calls: Calls) -> bool:
    """Return whether the version that is there may be opened, by the rules of `scans`."""
    source = put.request.source
    if put.scan is None:
        return not config.scan or admit(source, find_result(source, pin, config, calls))
    if not put.is_of(pin):
        logger.info("another version is there, which has a scan of its own", source=str(source))
        return False
    return True


def _take_version(
    put: ArchivePut, tail: Tail, at: IntakeContext, *, is_new: bool
) -> ArrivedArchive:
    """Return the version that is there; extract it or start its run, if it may be opened."""
    request = put.request
    archive = ArrivedArchive(request, run_id(request, tail.pin, tail.modified), tail)
    if not _may_open(put, tail.pin, at.config, at.calls):
        return archive
    bind_run(archive.run, str(request.source))
    report = RunRecords.open(at.context.stores, archive.run, at.calls).find_report()
    if report is None:
        _plan_here(archive, at)
    else:
        _take_known(report, archive, at, is_new=is_new)
    return archive


def _report_unreadable(
    request: Request, refusal: errors.StorageError, at: IntakeContext
) -> ArrivedArchive:
    """End the run of an archive that the store does not give, and would not later."""
    context = at.context
    source = context.stores.source(request.source)
    tail = at.calls.run("head", lambda: source.stat(request.source))
    run = run_id(request, tail.pin, tail.modified)
    archive = ArrivedArchive(request, run, tail)
    bind_run(run, str(request.source))
    recorded = look_up_run(RunRecords.open(context.stores, run, context.calls()))
    report = recorded.report
    if recorded.plan is not None or (report is not None and report.verdict is not Verdict.FAILED):
        logger.info("run is known", run=run)
        return archive
    now = context.clock.now()
    stop = Stop(Verdict.FAILED, NOT_READABLE, str(refusal))
    failed = FailedExecution(run, stop, began=now, ended=now, request=request, pin=tail.pin)
    settled = settle_failed(failed, context)
    if settled is not None and settled.report is not None:
        end_run(settled.report, at.config, context, is_first=settled.is_first)
    return archive


def _take_known(
    report: Report, archive: ArrivedArchive, at: IntakeContext, *, is_new: bool = False
) -> None:
    """Let a run go on that FAILED; else repeat what follows its end, if the message is not new."""
    request = archive.request
    pin = archive.tail.pin
    check_same_archive(report.run, request.source, pin, report)
    if report.verdict is Verdict.FAILED:
        start_run(at.config, report.run, request, pin, reported=report.finished)
    elif is_new:
        logger.info("run is known", run=report.run)
    else:
        end_run(report, at.config, at.context, is_first=False)


def _repeat_ends(
    put: ArchivePut, config: LambdaConfig, context: Context, other_than: str | None
) -> bool:
    """Repeat the end of each run of an older version of the archive; return False: there is none.

    The id of a run begins with the time at which its archive was put, which is near the event's.

    Args:
        other_than: the run of the version that is there now; None: it has none.
    """
    source = put.request.source
    if put.request.event_time is None:
        return False
    until = int(put.request.event_time) + 2
    seconds = range(until - UPLOAD_SECONDS, until)
    find = partial(_find_reports, source, context.stores, context.calls())
    reports = [
        report
        for report in chain.from_iterable(map_ahead(find, seconds, REPORT_READERS))
        if report.source == source.public and report.run != other_than
    ]
    for report in reports:
        end_run(report, config, context, is_first=False)
    return bool(reports)


def _find_reports(source: Location, stores: Stores, calls: Calls, second: int) -> list[Report]:
    """Return the reports of runs of archives named like `source` that were put in a Unix second.

    Args:
        calls: end their retries before the function's time is over.
    """
    day, _, prefix = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d/%H%M%S-}".partition("/")
    names = stores.run_store(day, calls).names(prefix + run_stem(source))
    runs = (f"{day}/{name.removesuffix(REPORT)[:-1]}" for name in names if name.endswith(REPORT))
    reports = (RunRecords.open(stores, run, calls).find_report() for run in runs)
    return [report for report in reports if report is not None]


def _plan_here(archive: ArrivedArchive, at: IntakeContext) -> None:
    """Plan an archive; do it at once if it is small, else leave it to the state machine."""
    context = at.context
    tuning = context.tuning
    tail = archive.tail
    members = count_held(tail, context)
    if members is None:
        start_run(at.config, archive.run, archive.request, tail.pin)
        return
    is_small = members <= tuning.max_direct_members and tail.pin.size <= tuning.max_direct_bytes
    if is_small:
        small_run = SmallRun(archive.run, tail, context, tuned_for_one(tuning))
        settled = small_run.begin(archive.request, at.calls)
        is_small = small_run.is_small(settled)
    if is_small:
        settled = small_run.work(settled)
    else:  # it is cut into tasks as any large one
        small_run = SmallRun(archive.run, tail, context, tuning)
        settled = small_run.begin(archive.request, at.calls)
    _leave_run(small_run, settled, archive, at, is_small=is_small)


def _leave_run(
    small_run: SmallRun,
    settled: Settled,
    archive: ArrivedArchive,
    at: IntakeContext,
    *,
    is_small: bool,
) -> None:
    """Write the records of a run; do what follows its end, or start its execution."""
    ended = small_run.leave(archive.request, settled)
    if ended is None:  # another invocation has planned the run
        start_run(at.config, archive.run, archive.request, archive.tail.pin)
        return
    report = ended.report
    if report is None:
        if is_small:
            record_handover()
        start_run(at.config, archive.run, archive.request, archive.tail.pin, state=ended.next)
    elif report != settled.report:  # another invocation was quicker
        _take_known(report, archive, at)
    else:
        is_brief = report.finished - report.started < BRIEF_SECONDS and not report.requests.retries
        end_run(
            report,
            at.config,
            at.context,
            check_replaced=not is_brief,
            is_first=ended.is_first,
        )
