"""Function `intake`: a batch of S3 events; each archive is extracted here, or its run is started.

One request reads the end of an archive, and with it its version, size and directory. A small
archive is planned, extracted and settled at once: see `s3unzip.aws.small_runs`. Another archive is
planned here if its directory is in these bytes; the state Plan reads a larger directory. Then the
state machine extracts it.

The rules:

- A message comes at least once, and again after a fault or a kill. Two may be about the same put.
  The current version decides: it has one run, which writes the same objects each time. No lock is
  held.
- The report of a run is looked up first. An execution resumes a run that FAILED. Any other verdict
  is final. A redelivered message repeats the steps after the report, because its function may
  have been killed before them.
- If the store refuses to give an archive, for example because it must be restored, its run FAILED.
  If the function lacks a right, the message comes again, and becomes a dead letter in the end.
- With a malware gate only the version that was scanned is opened: see `s3unzip.aws.events`.
- An attempt that was killed may have written members of a version that is gone now, or its report
  without the event. The message comes again: then the end of that run is repeated, and the newest
  version is compared with the destination.
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
from s3unzip.aws.events import ArchivePut, admit, read_puts, read_scan_tag
from s3unzip.aws.executions import (
    ArrivedArchive,
    end_run,
    find_archive,
    start_over_newest,
    start_run,
)
from s3unzip.aws.small_runs import run_here
from s3unzip.aws.telemetry import bind_run, lambda_function, logger
from s3unzip.context import Context
from s3unzip.model import Location, Report, Request, Stop, Verdict
from s3unzip.run_ids import check_same_archive, run_stem
from s3unzip.runs.records import REPORT, RunRecords
from s3unzip.settling.loop import NOT_READABLE, look_up_run, settle_failed
from s3unzip.stores import Stores
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls

FIRST_WAIT = 15  # seconds before the second attempt of a message
MAX_WAIT = 110  # seconds: a fault is retried within 2 minutes
USAGE_WAIT = 1  # second: no later attempt can take such a message
NEW_SECONDS = 600  # seconds; an older event comes from the dead letters or by hand
# From the Last-Modified of an archive to its event. An upload in parts is dated by its beginning.
UPLOAD_SECONDS = 120  # at most
REPORT_READERS = 16  # LISTs at once; each finds the reports of one second
BRIEF_SECONDS = 1.0  # a run of at most this time is not overtaken by a newer archive


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Take each message of a batch; return the ids of those that SQS must deliver again.

    The form of the response is in the developer guide of Lambda ("Handling errors for an SQS event
    source in Lambda", ReportBatchItemFailures). An archive that fails is not an error of the
    function: its run has a report.
    """
    return {
        "batchItemFailures": [
            {"itemIdentifier": message["messageId"]}
            for message in event["Records"]
            if not _take_message(message, context)
        ]
    }


def _take_message(message: dict[str, Any], lambda_context: LambdaContext) -> bool:
    """Take the archives of one message; return False if SQS must deliver it again."""
    attempts = int(message["attributes"]["ApproximateReceiveCount"])
    try:
        config = open_worker()
        for put in read_puts(message["body"], config):
            request = config.request(put.source.key, put.time)
            context = config.context(lambda_context, request)
            invocation = Invocation(config, context, context.calls())
            _take_archive(put, request, invocation, attempts)
    except Exception as error:  # noqa: BLE001 - a message fails, not the batch
        wait = _choose_wait(attempts, error)
        logger.exception("archive not taken", attempts=attempts, next_seconds=wait)
        _redeliver_after(message["receiptHandle"], wait)
        return False
    return True


def _choose_wait(attempts: int, error: Exception) -> int:
    """Return the seconds until SQS redelivers a message that failed `attempts` times.

    With the default of five attempts, a message that always fails is in the dead-letter queue after
    215 s plus the time of its attempts. Each wait is shortened by up to half at random, so that a
    burst of messages does not return at the same moment.
    """
    if isinstance(error, errors.UsageError):
        return USAGE_WAIT
    # 15, 30, 60, 110, 110, ... seconds; 10 only keeps the shift small
    wait = min(MAX_WAIT, FIRST_WAIT << min(attempts - 1, 10))
    return round(wait * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def _redeliver_after(receipt: str, seconds: int) -> None:
    """Ask SQS to redeliver a message after some seconds, before its visibility timeout."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few need it

    try:
        open_client("sqs").change_message_visibility(
            QueueUrl=open_worker().queue, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )
    except (BotoCoreError, ClientError) as error:
        logger.warning("visibility of a message not changed: %s", error)


class Invocation(NamedTuple):
    """The settings and the stores of this invocation, for one archive."""

    config: LambdaConfig
    context: Context  # for the archive's route
    calls: Calls


def _take_archive(put: ArchivePut, request: Request, invocation: Invocation, attempts: int) -> None:
    """Extract the current version, or start its run, and finish what earlier attempts left.

    Args:
        put: the archive, as the event names it.
        request: of its run.
        invocation: of this function.
        attempts: how often the message was received, this time included.
    """
    if put.scan is not None and not admit(put.source, put.scan, put.threats):
        return
    # No function has begun to extract an archive whose event is new.
    is_new = attempts == 1 and time.time() - put.time < NEW_SECONDS
    archive = find_archive(request, invocation.context, invocation.calls)
    if archive is not None:
        _take_version(put, archive, invocation, is_new=is_new)
    if is_new or (archive is not None and not put.is_older(archive.tail)):
        return
    # An attempt before this one may have begun to extract a version that is gone now.
    has_ended = _repeat_ends(put, invocation, other_than=archive and archive.run)
    version = put.version_id or put.etag
    # A first attempt whose event names no version comes from `submit`: nothing was tried before it.
    if archive is not None and not has_ended and (attempts > 1 or version is not None):
        # The older version has no report. It may have written over members of the newest version.
        cause = f"{put.source} {put.time} {version or ''}"
        start_over_newest(request, cause, invocation.config, invocation.context)


def _take_version(
    put: ArchivePut, archive: ArrivedArchive, invocation: Invocation, *, is_new: bool
) -> None:
    """Extract a version, start its run or repeat its end, if the malware gate opens it."""
    if archive.refusal is None and not _may_open(put, archive, invocation):
        return
    bind_run(archive.run, str(put.source))
    if archive.refusal is not None:
        _report_unreadable(archive, archive.refusal, invocation)
        return
    report = RunRecords.open(invocation.context.stores, archive.run, invocation.calls).find_report()
    if report is None:
        _plan_here(archive, invocation)
    else:
        _take_reported(report, archive, invocation, is_new=is_new)


def _may_open(put: ArchivePut, archive: ArrivedArchive, invocation: Invocation) -> bool:
    """Return whether the malware gate opens the current version."""
    pin = archive.tail.pin
    if put.scan is None:
        return not invocation.config.scan or admit(
            put.source, read_scan_tag(put.source, pin, invocation.config, invocation.calls)
        )
    if not put.is_of(pin):
        logger.info("another version is there, which has a scan of its own", source=str(put.source))
        return False
    return True


def _report_unreadable(archive: ArrivedArchive, refusal: str, invocation: Invocation) -> None:
    """End the run of an archive as FAILED, because the store refuses to give it."""
    context = invocation.context
    run = archive.run
    recorded = look_up_run(RunRecords.open(context.stores, run, invocation.calls))
    report = recorded.report
    if recorded.plan is not None or (report is not None and report.verdict is not Verdict.FAILED):
        logger.info("run is known", run=run)
        return
    now = context.clock.now()
    settled = settle_failed(
        run,
        Stop(Verdict.FAILED, NOT_READABLE, refusal),
        context,
        began=now,
        ended=now,
        request=archive.request,
        pin=archive.tail.pin,
    )
    if settled is not None:
        report, is_first = settled
        end_run(report, invocation.config, context, is_first=is_first)


def _take_reported(
    report: Report, archive: ArrivedArchive, invocation: Invocation, *, is_new: bool = False
) -> None:
    """Resume a run that FAILED; if it has another verdict, repeat what follows its report.

    A new message repeats nothing: it is a second event for the same put.
    """
    check_same_archive(report.run, archive.request.source, archive.tail.pin, report)
    if report.verdict is Verdict.FAILED:
        start_run(invocation.config, archive, report=report)
    elif is_new:
        logger.info("run is known", run=report.run)
    else:
        end_run(report, invocation.config, invocation.context, is_first=False)


def _repeat_ends(put: ArchivePut, invocation: Invocation, other_than: str | None) -> bool:
    """Repeat the end of each run of an older version; return whether there is such a run.

    The id of a run begins with the time at which its archive was put, which is near the event's.

    Args:
        other_than: the run of the current version, which is left out; None: the archive is gone.
    """
    until = int(put.time) + 2  # the clocks of S3 and EventBridge differ
    find = partial(_find_reports, put.source, invocation.context.stores, invocation.context.calls())
    seconds = range(until - UPLOAD_SECONDS, until)
    reports = [
        report
        for report in chain.from_iterable(map_ahead(find, seconds, REPORT_READERS))
        if report.source == put.source.public and report.run != other_than
    ]
    for report in reports:
        end_run(report, invocation.config, invocation.context, is_first=False)
    return bool(reports)


def _find_reports(source: Location, stores: Stores, calls: Calls, second: int) -> list[Report]:
    """Return the reports of the archives with the stem of `source` that were put in a Unix second.

    Args:
        source: of an archive.
        stores: which have the records of runs.
        calls: whose retries end before the function's time is over.
        second: the time of the PUT.
    """
    day, _, prefix = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d/%H%M%S-}".partition("/")
    names = stores.run_store(day, calls).names(prefix + run_stem(source))
    # A name is "<run without its day>/report.json".
    runs = (f"{day}/{name.removesuffix(REPORT)[:-1]}" for name in names if name.endswith(REPORT))
    reports = (RunRecords.open(stores, run, calls).find_report() for run in runs)
    return [report for report in reports if report is not None]


def _plan_here(archive: ArrivedArchive, invocation: Invocation) -> None:
    """Plan an archive, and extract it if it is small; otherwise start its execution."""
    config = invocation.config
    small_run = run_here(archive, invocation.context, invocation.calls)
    if small_run is None:
        start_run(config, archive)
        return
    report = small_run.settled.report
    if report is None:
        start_run(config, archive, state=small_run.settled.next)
    elif not small_run.is_own:
        _take_reported(report, archive, invocation)
    else:
        is_brief = report.finished - report.started < BRIEF_SECONDS and not report.requests.retries
        end_run(
            report,
            config,
            invocation.context,
            check_replaced=not is_brief,
            is_first=small_run.settled.is_first,
        )
