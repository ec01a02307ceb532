"""The function `intake`, which extracts the archives of a batch of S3 events or starts their runs.

One request returns the end of an archive, with its version and size. A small archive is planned,
extracted and settled immediately: see `s3unzip.aws.small_runs`. A larger archive is extracted by
the state machine. It is planned here if its directory is in the bytes that were read; otherwise
the state Plan reads the directory.

The rules:

- A message is delivered at least once, and again after a fault or a kill. Two messages may be about
  the same put. Only the current version matters: it has one run, which writes the same objects each
  time. No lock is held.
- The report of a run is looked up first. A run with the verdict FAILED is resumed by an execution.
  Any other verdict is final. A redelivered message repeats the steps that follow the report,
  because the function might have been killed before these steps.
- If the store refuses to return an archive, for example because it must be restored, the verdict of
  the run is FAILED. If the function lacks a permission, the message is redelivered, and finally
  becomes a dead letter.
- With a malware gate, only the version that was scanned is opened: see `s3unzip.aws.events`.
- An attempt that was killed might have written members of a version that is now gone, or a report
  without publishing the event. When the message is redelivered, the end of that run is repeated,
  and the newest version is compared with the destination.
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
USAGE_WAIT = 1  # second; later attempts cannot handle such a message either
NEW_SECONDS = 600  # an older event comes from the dead-letter queue or was sent by hand
# From the Last-Modified of an archive to its event. The date of a multipart upload is that of its
# beginning.
UPLOAD_SECONDS = 120  # maximum time in between
REPORT_READERS = 16  # number of concurrent LISTs; each finds the reports of one second
BRIEF_SECONDS = 1.0  # a newer archive does not overtake a run that takes less time


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle each message of a batch; return the ids of the messages that SQS must redeliver.

    The format of the response is described in the Lambda developer guide ("Handling errors for an
    SQS event source in Lambda", ReportBatchItemFailures). An archive that fails is not an error of
    the function, because its run has a report.
    """
    return {
        "batchItemFailures": [
            {"itemIdentifier": message["messageId"]}
            for message in event["Records"]
            if not _take_message(message, context)
        ]
    }


def _take_message(message: dict[str, Any], lambda_context: LambdaContext) -> bool:
    """Handle the archives of one message; return False if SQS must redeliver the message."""
    attempts = int(message["attributes"]["ApproximateReceiveCount"])
    try:
        config = open_worker()
        for put in read_puts(message["body"], config):
            request = config.request(put.source.key, put.time)
            context = config.context(lambda_context, request)
            invocation = Invocation(config, context, context.calls())
            _take_archive(put, request, invocation, attempts)
    except Exception as error:  # noqa: BLE001 - only this message fails, not the batch
        wait = _choose_wait(attempts, error)
        logger.exception("archive not taken", attempts=attempts, next_seconds=wait)
        _redeliver_after(message["receiptHandle"], wait)
        return False
    return True


def _choose_wait(attempts: int, error: Exception) -> int:
    """Return the seconds until SQS redelivers a message that failed `attempts` times.

    With the default of five attempts, a message that always fails is in the dead-letter queue after
    215 s plus the time that the attempts take. Each wait is shortened at random by up to half, so
    that a burst of messages does not return at the same moment.
    """
    if isinstance(error, errors.UsageError):
        return USAGE_WAIT
    # 15, 30, 60, 110, 110, ... seconds; the 10 only keeps the shift small
    wait = min(MAX_WAIT, FIRST_WAIT << min(attempts - 1, 10))
    return round(wait * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def _redeliver_after(receipt: str, seconds: int) -> None:
    """Make SQS redeliver a message after some seconds, before its visibility timeout."""
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
    context: Context  # context for the route of the archive
    calls: Calls


def _take_archive(put: ArchivePut, request: Request, invocation: Invocation, attempts: int) -> None:
    """Extract the current version, or start its run; finish what earlier attempts left undone.

    Args:
        put: the archive, as identified by the event.
        request: the request for its run.
        invocation: the current invocation of the function.
        attempts: how often the message has been received, including this time.
    """
    if put.scan is not None and not admit(put.source, put.scan, put.threats):
        return
    # If the event is new, no function has begun to extract the archive.
    is_new = attempts == 1 and time.time() - put.time < NEW_SECONDS
    archive = find_archive(request, invocation.context, invocation.calls)
    if archive is not None:
        _take_version(put, archive, invocation, is_new=is_new)
    if is_new or (archive is not None and not put.is_older(archive.tail)):
        return
    # An earlier attempt might have begun to extract a version that is now gone.
    has_ended = _repeat_ends(put, invocation, other_than=archive and archive.run)
    version = put.version_id or put.etag
    # An event without a version comes from `submit`: before its first attempt, nothing was tried.
    if archive is not None and not has_ended and (attempts > 1 or version is not None):
        # The older version has no report. It might have overwritten members of the newest version.
        cause = f"{put.source} {put.time} {version or ''}"
        start_over_newest(request, cause, invocation.config, invocation.context)


def _take_version(
    put: ArchivePut, archive: ArrivedArchive, invocation: Invocation, *, is_new: bool
) -> None:
    """Extract a version, start its run or repeat its end, if the malware gate allows this."""
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
    """Return whether the malware gate allows the current version to be opened."""
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
    """End the run of an archive as FAILED, because the store refuses to return the archive."""
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
    """Resume a run that FAILED; for any other verdict, repeat the steps that follow the report.

    For a new message, nothing is repeated: it is a second event for the same put.
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

    The id of a run begins with the time at which its archive was put, which is near the time of the
    event.

    Args:
        other_than: the run of the current version, which is excluded; None: the archive is gone.
    """
    until = int(put.time) + 2  # the clocks of S3 and EventBridge may differ
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
    """Return the reports of archives with the stem of `source` that were put in a given second.

    Args:
        source: the location of an archive.
        stores: the stores that contain the records of runs.
        calls: the object for calls; its retries end before the time of the function is over.
        second: the time of the PUT, in Unix seconds.
    """
    day, _, prefix = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d/%H%M%S-}".partition("/")
    names = stores.run_store(day, calls).names(prefix + run_stem(source))
    # A name is "<run without its day>/report.json".
    runs = (f"{day}/{name.removesuffix(REPORT)[:-1]}" for name in names if name.endswith(REPORT))
    reports = (RunRecords.open(stores, run, calls).find_report() for run in runs)
    return [report for report in reports if report is not None]


def _plan_here(archive: ArrivedArchive, invocation: Invocation) -> None:
    """Plan an archive; then extract it if it is small, otherwise start its execution."""
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
