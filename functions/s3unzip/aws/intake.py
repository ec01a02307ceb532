"""Function `intake`: a batch of S3 events; each archive is extracted here, or its run is started.

One request reads the end of an archive, and with it its version, size and directory. A small
archive is planned, extracted and settled at once, by the functions that do every other run, with
the records in memory: two objects of them stay. Any other is planned here where its directory is in
what was read, and handed to the state machine; a larger directory is read by its state Plan.

The rules:

- A message comes at least once, and again after a fault or a kill; two may tell the same put. What
  counts is what is there now: its version is the run, and makes the same objects. No lock is held.
- The report of a run is looked up before anything is done. FAILED goes on by an execution; any
  other verdict is final. A message that comes again repeats what follows the report, for its
  function may have been killed before that.
- A small run is in memory until it ends. Its outcomes are on record before its report, and neither
  takes the place of what another invocation has recorded, unless that is worse.
- An archive that the store refuses to give, for it must be restored perhaps, has a run that FAILED.
  A missing right is a fault of the message: it comes again, and is a dead letter in the end.
- Who does not complete a run leaves it to whoever has planned or ended it meanwhile.
- With a malware gate only the version that was scanned is opened: see `s3unzip.aws.scans`.
- An attempt that was killed may have written members of a version that is not there any more, or
  its report without the event. The message comes again: then the end of that run is repeated, and
  the newest version is compared with what lies there.
"""

import random
import time
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.aws.environment import LambdaConfig, open_client, open_worker
from s3unzip.aws.events import ArchivePut, read_puts
from s3unzip.aws.executions import end_run, start_over_newest, start_run
from s3unzip.aws.scans import admit, find_result
from s3unzip.aws.telemetry import (
    bind_run,
    lambda_function,
    logger,
    record_handover,
    record_plan,
    record_task,
)
from s3unzip.context import Context
from s3unzip.extraction.task import ATTEMPT_FAULTS, run_task
from s3unzip.model import (
    Pin,
    Report,
    Request,
    Stop,
    TaskKind,
    Verdict,
    check_same_archive,
    run_id,
    run_stem,
)
from s3unzip.planning.reading import read_tail
from s3unzip.rates import DIRECT_MEMBER_BYTES
from s3unzip.runs.records import OUTCOMES, PAGE, REPORT, RecordedReport, RunRecords
from s3unzip.settings import Tuning
from s3unzip.settling.loop import (
    NOT_READABLE,
    FailedExecution,
    KnownArchive,
    Settled,
    begin,
    look_up_run,
    settle,
    settle_failed,
)
from s3unzip.settling.nested import has_nested
from s3unzip.settling.verdicts import may_replace, write_verdict
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.held import HeldStores
from s3unzip.stores.memory import MemoryRunStore
from s3unzip.stores.ports import Tail

FIRST_WAIT = 15  # seconds before the second attempt of a message
MAX_WAIT = 110  # a fault is retried within 2 minutes
USAGE_WAIT = 1  # of a message without a valid event
FIRST_PUTS = 16  # at once: one worker begins, and not a thousand together
TASK_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*ATTEMPT_FAULTS, errors.RunStoppedError)
NEW_SECONDS = 600  # an older event has come before: from the dead letters, or by hand
# Between the Last-Modified of an archive and its event: of an upload in parts it is its beginning.
UPLOAD_SECONDS = 120
READERS = 16  # of the seconds in which a run may have begun
BRIEF_SECONDS = 1.0  # a run that took no longer cannot have been overtaken by a newer archive


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Process a batch of the queue; return the messages that must be delivered again.

    The response has the form of the developer guide of Lambda ("Handling errors for an SQS event
    source in Lambda", ReportBatchItemFailures). A failed archive is not an error of the function.
    """
    failed = [one["messageId"] for one in event["Records"] if not _take_message(one, context)]
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}


def _take_message(record: dict[str, Any], invocation: LambdaContext) -> bool:
    """Take the archives of one message; say whether that succeeded. Else it comes again soon."""
    attempts = int(record["attributes"]["ApproximateReceiveCount"])
    try:
        config = open_worker()
        for put in read_puts(record["body"], config):
            take_archive(put, config, config.context(invocation, put.request), attempts)
    except Exception as error:  # noqa: BLE001 - a message fails, not the batch
        wait = retry_wait(attempts, error)
        logger.exception("archive not taken", attempts=attempts, next_seconds=wait)
        _come_again(record["receiptHandle"], wait)
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


def _come_again(receipt: str, seconds: int) -> None:
    """Make a message visible again; without it the queue's own timeout holds."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few need it

    queue = open_worker().queue
    try:
        open_client("sqs").change_message_visibility(
            QueueUrl=queue, ReceiptHandle=receipt, VisibilityTimeout=seconds
        )
    except (BotoCoreError, ClientError) as error:
        logger.warning("visibility of a message not changed: %s", error)


def take_archive(
    put: ArchivePut, config: LambdaConfig, context: Context, attempts: int = 1
) -> None:
    """Extract what is there now, whatever the event said, or start its run.

    Args:
        attempts: how often the message was received, this time included.
    """
    request = put.request
    if put.scan is not None and not admit(request.source, put.scan):
        return
    is_new = attempts == 1 and time.time() - (request.event_time or 0) < NEW_SECONDS
    calls = context.calls()
    source = context.stores.source(request.source)
    run = None
    try:
        tail = read_tail(source, request.source, context, calls)
    except errors.NotFoundError:
        logger.info("archive is gone", source=str(request.source))
    except errors.AccessDeniedError:  # a right can be given before the message comes again
        raise
    except errors.StorageError as refusal:
        tail = calls.run("head", lambda: source.stat(request.source))
        run = run_id(request, tail.pin, tail.modified)
        _report_unreadable(run, request, tail.pin, refusal, config, context)
    else:
        if _may_open(put, tail.pin, config, calls):
            run = run_id(request, tail.pin, tail.modified)
            bind_run(run, str(request.source))
            report = RunRecords.open(context.stores, run, calls).find_report()
            if report is None:
                _plan_here(request, run, tail, config, context, calls)
            else:
                _take_known(report, request, tail.pin, config, context, is_new=is_new)
    if not is_new and (run is None or put.is_older(tail)):
        ended = _repeat_ends(put, config, context, other_than=run)
        if run is not None and not ended and (attempts > 1 or put.names_version):
            version = put.version_id or put.etag or ""
            cause = f"{request.source} {request.event_time} {version}"
            start_over_newest(request, cause, config, context)


def _may_open(put: ArchivePut, pin: Pin, config: LambdaConfig, calls: Calls) -> bool:
    """Return whether the version that is there may be opened, by the rules of `scans`."""
    source = put.request.source
    if put.scan is None:
        return not config.scan or admit(source, find_result(source, pin, config, calls))
    if not put.is_of(pin):
        logger.info("another version is there, which has a scan of its own", source=str(source))
        return False
    return True


def _report_unreadable(
    run: str,
    request: Request,
    pin: Pin,
    refusal: errors.StorageError,
    config: LambdaConfig,
    context: Context,
) -> None:
    """End a run whose archive the store does not give, and would not later."""
    bind_run(run, str(request.source))
    recorded = look_up_run(RunRecords.open(context.stores, run, context.calls()))
    report = recorded.report
    if recorded.plan is not None or (report is not None and report.verdict is not Verdict.FAILED):
        logger.info("run is known", run=run)
        return
    now = context.clock.now()
    stop = Stop(Verdict.FAILED, NOT_READABLE, str(refusal))
    failed = FailedExecution(run, stop, began=now, ended=now, request=request, pin=pin)
    settled = settle_failed(failed, context)
    if settled is not None and settled.report is not None:
        end_run(settled.report, config, context, is_first=settled.is_first)


def _take_known(
    report: Report,
    request: Request,
    pin: Pin,
    config: LambdaConfig,
    context: Context,
    *,
    is_new: bool = False,
) -> None:
    """Let a run go on that FAILED; else repeat what follows its end, if the message is not new."""
    check_same_archive(report.run, request.source, pin, report)
    if report.verdict is Verdict.FAILED:
        start_run(config, report.run, request, pin, reported=report.finished)
    elif is_new:
        logger.info("run is known", run=report.run)
    else:
        end_run(report, config, context, is_first=False)


def _repeat_ends(
    put: ArchivePut, config: LambdaConfig, context: Context, other_than: str | None
) -> bool:
    """Repeat the end of each run of an older version of the archive; say whether there was one.

    The id of a run begins with the time at which its archive was put, to which that of the event is
    near.
    """
    source = put.request.source
    if put.request.event_time is None:
        return False
    until = int(put.request.event_time) + 2

    def find(second: int) -> list[Report]:
        day, _, prefix = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d/%H%M%S-}".partition("/")
        names = context.stores.run_store(day).names(prefix + run_stem(source))
        runs = (
            f"{day}/{name.removesuffix(REPORT)[:-1]}" for name in names if name.endswith(REPORT)
        )
        reports = (RunRecords.open(context.stores, run).find_report() for run in runs)
        return [report for report in reports if report is not None]

    seconds = range(until - UPLOAD_SECONDS, until)
    reports = [
        report
        for report in chain.from_iterable(map_ahead(find, seconds, READERS))
        if report.source == source.public and report.run != other_than
    ]
    for report in reports:
        end_run(report, config, context, is_first=False)
    return bool(reports)


def _count_held(tail: Tail, context: Context) -> int | None:
    """Return how many members the directory in an archive's last bytes has; None: not all there."""
    try:
        next(tail.locate_directory(context.policy))
    except StopIteration as done:
        return None if done.value.missing.length else done.value.entries
    except errors.RejectedError:  # the plan says so again, and how
        return 0
    return None  # it asks for what is before these bytes


class _SmallRun:
    """A run whose records are in memory, and the end of its archive, too."""

    def __init__(self, run: str, tail: Tail, context: Context, tuning: Tuning) -> None:
        self._began = context.clock.now()
        self._known = KnownArchive(run, tail.pin, tail)
        self._context = context
        self._memory = MemoryRunStore()
        stores = HeldStores(context.stores, tail, self._memory)
        platform = context.platform and replace(context.platform, direct=True)
        self.context = replace(
            context, tuning=tuning, stores=stores, platform=platform, first_calls=FIRST_PUTS
        )
        self.records = RunRecords(self._memory)

    def begin(self, request: Request, calls: Calls) -> Settled:
        """Plan the run; `calls` are of the invocation so far."""
        return begin(request, self.context, self._known, calls)

    def is_small(self, settled: Settled) -> bool:
        """Say whether this function does the planned run itself."""
        if settled.report is not None:
            return True
        plan, tuning = self.records.read_plan(), self.context.tuning
        return (
            settled.next.next == "few"
            and plan.selected <= tuning.max_direct_members
            and max(plan.bytes_in, plan.bytes_out) <= tuning.max_direct_bytes
            and all(task.kind is TaskKind.BATCH for task in settled.next.tasks)
        )

    def work(self, settled: Settled) -> Settled:
        """Do the rounds of the run until it ends, or the time of the function is nearly over."""
        context = self.context
        while settled.report is None and context.clock.remaining() > context.tuning.margin_seconds:
            run = self.records.read_plan().run
            for task in settled.next.tasks:
                try:
                    record_task(run_task(run, task, context))
                except TASK_FAULTS as fault:  # it is in the next round
                    logger.warning("task failed", task=task.id, error=str(fault))
            settled = settle(settled.next, context)
        return settled

    def leave(self, request: Request, settled: Settled) -> Settled | None:
        """Write the records to the run store, the report last; return what came of the run.

        That may be the report of another invocation. None: the run has another plan. Of a run that
        is COMPLETED the outcomes and the report stay: nothing is left to resume.
        """
        run, report = settled.next.run, settled.report
        real = RunRecords.open(self._context.stores, run, self._context.calls())
        is_done = report is not None and report.verdict is Verdict.COMPLETED
        if not is_done:
            recorded = look_up_run(real)
            check_same_archive(run, request.source, self._known.pin, recorded.run)
            earlier = recorded.report
            if earlier and not (report and may_replace(report, earlier, self._began)):
                return settled._replace(report=earlier, is_first=False)
            if recorded.plan is not None:
                return None
        objects = dict(self._memory.objects)
        objects.pop(REPORT, None)
        page = objects.pop(PAGE, None)
        plan = self.records.find_plan()
        if plan is not None:
            record_plan(plan)
        if report and is_done and not has_nested(report) and not report.archive_left:
            objects = {name: objects[name] for name in objects if name.startswith(OUTCOMES)}
            page = None
        for name, data in objects.items():
            real.keep(name, data)
        if report is None:
            return settled
        written = write_verdict(
            lambda _: report,
            real,
            self._began,
            looked_up=RecordedReport() if is_done else None,
            page_for=None if page is None else self.context,
        )
        return Settled(settled.next, *written)


def _plan_here(
    request: Request, run: str, tail: Tail, config: LambdaConfig, context: Context, calls: Calls
) -> None:
    """Plan an archive; do it at once if it is small, else leave it to the state machine."""
    tuning, members = context.tuning, _count_held(tail, context)
    if members is None:
        start_run(config, run, request, tail.pin)
        return
    is_small = members <= tuning.max_direct_members and tail.pin.size <= tuning.max_direct_bytes
    one_batch = replace(  # all members are PUTs of one worker
        tuning,
        small_member=max(tuning.small_member, DIRECT_MEMBER_BYTES),
        batch_min_seconds=tuning.batch_seconds,
        max_workers=1,
    )
    planned = _SmallRun(run, tail, context, one_batch if is_small else tuning)
    settled = planned.begin(request, calls)
    if is_small and not planned.is_small(settled):  # then it is cut into tasks as any other
        is_small, planned = False, _SmallRun(run, tail, context, tuning)
        settled = planned.begin(request, calls)
    if is_small:
        settled = planned.work(settled)
    ended = planned.leave(request, settled)
    report = ended and ended.report
    if ended is None or report is None:
        if ended and is_small:
            record_handover()
        start_run(config, run, request, tail.pin, following=ended and ended.next)
    elif report != settled.report:  # another invocation was quicker
        _take_known(report, request, tail.pin, config, context)
    else:
        is_brief = report.finished - report.started < BRIEF_SECONDS and not report.requests.retries
        check = not is_brief
        # The records are complete in memory only.
        end_run(report, config, planned.context, check_replaced=check, is_first=ended.is_first)
