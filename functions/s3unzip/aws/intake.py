"""The function `intake`, which extracts the archives of a batch of S3 events or starts their runs.

One request returns the end of an archive, with its version and size. A small archive is planned,
extracted and settled immediately, by the same code as any other run, but with its records in
memory. A larger archive is extracted by the state machine. The archive is planned here if its
directory is in the bytes that were read; otherwise the Plan state reads the directory.

The rules:

- A message is delivered at least once, and again if the function fails or is killed. Two messages
  may be about the same put. Only the current version matters. This version has one run, which
  writes the same objects each time, so no lock is needed.
- The report of a run is looked up first. A run with the verdict FAILED is resumed by an execution.
  Any other verdict is final. A redelivered message repeats the steps that follow the report,
  because the function might have been killed before these steps.
- If the store refuses to return an archive, for example because it must be restored, the verdict of
  the run is FAILED. If the function lacks a permission, the message is redelivered, and eventually
  moves to the dead-letter queue.
- With a malware gate, only the version that was scanned is opened: see `s3unzip.aws.events`.
- An attempt that was killed might have written members of a version that is now gone, or a report
  without publishing its event. When the message is redelivered, the steps after the report of that
  run are repeated, and the newest version is compared with the destination.

Rules for a run whose records are in memory (`_MemoryRun`):

- The records stay in memory until the function stops working on the run. The function then
  writes the outcomes, and last the report. Records of another invocation are replaced only if the
  verdict of that invocation is worse.
- For a COMPLETED run, only the outcomes and the report are written, because nobody resumes the run.
  The plan and the HTML page are also written if a later step needs the plan.
- A run that another invocation has planned or ended is left to that invocation. Exception: the
  verdict COMPLETED is always written.
- If the plan shows that the run is not small, the function leaves the run to the state machine.
"""

import time
from functools import partial
from itertools import chain
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.aws.environment import LambdaConfig, load_config
from s3unzip.aws.events import (
    CLOCK_SECONDS,
    OWN_SENDERS,
    ArchivePut,
    passes_scan,
    read_puts,
    read_scan_tag,
    redeliver_later,
)
from s3unzip.aws.executions import (
    ArrivedArchive,
    end_run,
    extract_current_version,
    find_archive,
    is_extracted_again,
    start_run,
)
from s3unzip.aws.telemetry import (
    add_metrics,
    add_plan_metrics,
    add_task_metrics,
    bind_run,
    lambda_function,
    logger,
)
from s3unzip.context import Context
from s3unzip.extraction.task import ATTEMPT_FAULTS, run_task
from s3unzip.model import Report, Request, Stop, TaskKind, Verdict
from s3unzip.rates import DIRECT_MEMBER_BYTES
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import OUTCOMES, PAGE, REPORT, RunRecords
from s3unzip.settling.loop import KnownArchive, StepResult, begin_run, look_up_run, settle
from s3unzip.settling.nested import has_nested
from s3unzip.settling.report import (
    NOT_READABLE,
    find_reports,
    may_replace,
    report_unplanned,
    write_report,
)
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.run_store import MemoryRunStore

NEW_SECONDS = 600  # an older event comes from the dead-letter queue or was sent by hand
# Maximum time from the Last-Modified of an archive to its event. The Last-Modified of a multipart
# upload is the time at which the upload began.
UPLOAD_SECONDS = 120
REPORT_READERS = 16  # number of concurrent LISTs; each lists the runs of one second
BRIEF_SECONDS = 1.0  # after a shorter run, nothing checks whether the archive was replaced

TASK_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*ATTEMPT_FAULTS, errors.RunStoppedError)


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Handle each message of a batch; return the ids of the messages that SQS must redeliver.

    The format of the response is described in the Lambda developer guide ("Handling errors for an
    SQS event source in Lambda", ReportBatchItemFailures). An archive that fails is not an error of
    the function, because its run has a report.
    """
    return {
        "batchItemFailures": [
            {"itemIdentifier": message["messageId"]}
            for message in event["Records"]
            if not _handle_message(message, invocation)
        ]
    }


def _handle_message(message: dict[str, Any], invocation: LambdaContext) -> bool:
    """Handle each archive in one message; return False if SQS must redeliver the message."""
    attempts = int(message["attributes"]["ApproximateReceiveCount"])
    config = load_config()
    puts, event_faults = read_puts(message["body"], config)
    faults: list[tuple[Exception, str | None]] = [(fault, None) for fault in event_faults]
    for put in puts:
        try:
            request = config.request(put.source.key, put.time)
            _handle_put(
                put, request, config, config.context(invocation, request), attempts=attempts
            )
        except Exception as error:  # noqa: BLE001 - only this archive fails
            faults.append((error, logger.get_correlation_id()))  # the run's id, set by `bind_run`
        logger.set_correlation_id(None)  # the next line may be about another archive
    if faults:
        redeliver_later(message["receiptHandle"], attempts, faults)
    return not faults


def _handle_put(
    put: ArchivePut, request: Request, config: LambdaConfig, context: Context, *, attempts: int
) -> None:
    """Extract the current version, or start its run; finish what earlier attempts left undone.

    Earlier attempts may have begun to extract an older version that is gone, so `end_run` is called
    again for the runs of that version. If none of these runs has a report, the current version
    is extracted again, because the older version might have overwritten its members.

    Args:
        put: the archive, as identified by the event.
        request: the request for the run of the archive.
        config: the configuration of the environment.
        context: the context for the route of the archive.
        attempts: how many times the message has been received, including this time.
    """
    if put.scan is not None and not passes_scan(put.source, put.scan, put.threats):
        return
    # If the event is new, no earlier attempt has begun to extract the archive.
    is_new = attempts == 1 and time.time() - put.time < NEW_SECONDS
    archive = find_archive(request, context)
    if archive is not None:
        _handle_version(put, archive, config, context, is_new=is_new)
    is_current = archive is not None and not put.is_older(archive.tail)
    if is_new or is_current:  # no attempt for this event has begun to extract an older version
        return
    has_report = _finish_older_runs(put, config, context, archive and archive.run)
    # If there is a report, `end_run` has extracted the current version if necessary.
    if archive is None or has_report or not is_extracted_again(config, put.source, request.options):
        return
    version = put.version_id or put.etag
    # `attempts` omits the attempts before a dead-letter queue. An event made by hand had no such
    # attempts.
    is_made_by_hand = version is None and not put.sender.startswith(OWN_SENDERS)
    if attempts > 1 or not is_made_by_hand:
        cause = f"{put.source} {put.time} {version or ''}"
        extract_current_version(request, cause, config, context)


def _handle_version(
    put: ArchivePut,
    archive: ArrivedArchive,
    config: LambdaConfig,
    context: Context,
    *,
    is_new: bool,
) -> None:
    """Extract the current version, or start, resume or end its run, if the malware gate allows it.

    Args:
        is_new: whether this is the first delivery of a recent event.
    """
    if archive.refusal is not None:  # reported even if the malware gate would not allow the run
        _report_unreadable(archive, archive.refusal, config, context)
        return
    if not _may_open(put, archive, config):
        return
    bind_run(archive.run, str(put.source))  # all later log lines name the run
    report = RunRecords.open(context.stores, archive.run, archive.calls).find_report()
    if report is None:
        _begin_run(archive, config, context)
    else:
        _resume_or_repeat_end(report, archive, config, context, is_new=is_new)


def _may_open(put: ArchivePut, archive: ArrivedArchive, config: LambdaConfig) -> bool:
    """Return whether the malware gate allows the current version to be opened; log it if not."""
    pin = archive.tail.pin
    if put.scan is not None and not put.is_of(pin):
        logger.info("the scan is of another version", source=str(put.source))
        return False
    # `_handle_put` has checked the result in an event. Without a malware gate, no scan is needed.
    if put.scan is not None or not config.scan:
        return True
    return passes_scan(put.source, read_scan_tag(put.source, pin, config, archive.calls))


def _report_unreadable(
    archive: ArrivedArchive, refusal: str, config: LambdaConfig, context: Context
) -> None:
    """End the run of an archive as FAILED, because the store refuses to return its bytes.

    A HEAD has returned the version, so the run has an id.
    """
    run = archive.run
    bind_run(run, str(archive.request.source))
    records = RunRecords.open(context.stores, run, archive.calls)
    recorded = look_up_run(records)
    report = recorded.report
    # If the run has a plan, an execution settles the run. A verdict other than FAILED is final.
    if recorded.plan is not None or (report is not None and report.verdict is not Verdict.FAILED):
        logger.info("run is known", run=run)
        return
    now = context.clock.now()
    failed = report_unplanned(
        run, archive.request, archive.tail.pin, Stop(Verdict.FAILED, NOT_READABLE, refusal), now=now
    )
    report, is_first = write_report(failed, records, now, renderer=context)
    end_run(report, config, context, is_first=is_first)


def _resume_or_repeat_end(
    report: Report,
    archive: ArrivedArchive,
    config: LambdaConfig,
    context: Context,
    *,
    is_new: bool = False,
) -> None:
    """Resume a FAILED run; for any other verdict, repeat the steps that follow the report.

    Args:
        is_new: whether this is the first delivery of a recent event. The report then comes from
            another event about the same put, and the invocation for that event takes these steps.
    """
    check_same_archive(report.run, archive.request.source, archive.tail.pin, report)
    if report.verdict is Verdict.FAILED:
        start_run(config, archive, report=report)
    elif is_new:
        logger.info("run is known", run=report.run)
    else:
        end_run(report, config, context, is_first=False)


def _finish_older_runs(
    put: ArchivePut, config: LambdaConfig, context: Context, current_run: str | None
) -> bool:
    """Repeat `end_run` for each report about an older version; return whether there are any.

    An earlier attempt may have stopped after it wrote the report.

    Args:
        current_run: the current version's run, which is left out; None if the archive is gone.
    """
    # The id of a run begins with the Last-Modified of its archive. `find_reports` lists the runs of
    # one second. An upload begins at most `UPLOAD_SECONDS` before its event, and clocks may differ
    # by `CLOCK_SECONDS`.
    upload_times = range(int(put.time) - UPLOAD_SECONDS, int(put.time) + CLOCK_SECONDS + 1)
    find = partial(find_reports, put.source, context.stores, context.calls())
    reports = [
        report
        for report in chain.from_iterable(map_ahead(find, upload_times, REPORT_READERS))
        if report.source == put.source.public and report.run != current_run
    ]
    for report in reports:
        end_run(report, config, context, is_first=False)
    return bool(reports)


def _begin_run(archive: ArrivedArchive, config: LambdaConfig, context: Context) -> None:
    """Plan an archive; extract it if it is small, or else start an execution."""
    recorded = _plan_in_memory(archive, context)
    if recorded is None:  # an execution plans the run, or continues a plan of another invocation
        start_run(config, archive)
        return
    report = recorded.report
    if report is None:
        start_run(config, archive, state=recorded.next)
    elif not recorded.is_own:  # another invocation has ended the run
        _resume_or_repeat_end(report, archive, config, context)
    else:
        # This invocation ended the run. In a brief run, a replacement of the archive is unlikely.
        is_brief = report.finished - report.started < BRIEF_SECONDS and not report.requests.retries
        end_run(
            report,
            config,
            context,
            check_replaced=not is_brief,
            is_first=recorded.is_first,
        )


def _plan_in_memory(archive: ArrivedArchive, context: Context) -> StepResult | None:
    """Plan an archive if its directory is in its tail; if it is small, also extract and settle it.

    Returns the next round, or the report if the run has ended. Returns None if the Plan state must
    plan the run, or if another invocation has planned it.
    """
    members = archive.tail.count_members(context.policy)
    if members is None:
        return None
    if (
        members <= context.tuning.max_direct_members
        and archive.tail.pin.size <= context.tuning.max_direct_bytes
    ):
        run = _MemoryRun(archive, context, has_one_worker=True)
        planned = run.begin()
        if run.is_small(planned):
            recorded = run.write_records(run.work(planned))
            if recorded is not None and recorded.report is None:
                add_metrics(DirectHandovers=1)  # the state machine must finish the archive
            return recorded
    # The archive is too large for this function: plan it anew, for many workers.
    run = _MemoryRun(archive, context, has_one_worker=False)
    return run.write_records(run.begin())


class _MemoryRun:
    """A run whose records stay in memory until `write_records`; it also implements `Stores`."""

    def __init__(self, archive: ArrivedArchive, context: Context, *, has_one_worker: bool) -> None:
        tuning = context.tuning
        if has_one_worker:
            # The worker writes each member with one PUT. Batches have the maximum length, because
            # there are no other workers to share the work.
            tuning = replace(
                tuning,
                small_member=max(tuning.small_member, DIRECT_MEMBER_BYTES),
                batch_min_seconds=tuning.batch_seconds,
                max_workers=1,
            )
        self._began = context.clock.now()
        self._archive = archive
        self._outer_context = context
        # With `run_store`, these methods make this object a `Stores` whose records are in memory.
        self.source = context.stores.source
        self.destination = context.stores.destination
        self.end_startup = context.stores.end_startup
        self._memory = MemoryRunStore()
        self._records = RunRecords(self._memory)
        self._context = replace(
            context,
            tuning=tuning,
            stores=self,
            archive_end=archive.tail.data,
            platform=context.platform and replace(context.platform, direct=has_one_worker),
        )

    def run_store(self, run: str, calls: Calls | None = None) -> MemoryRunStore:  # noqa: ARG002 - as in `Stores`
        """Return the records in memory, which belong to this run alone."""
        return self._memory

    def begin(self) -> StepResult:
        archive = self._archive
        known_archive = KnownArchive(archive.run, archive.tail.pin, archive.tail)
        return begin_run(archive.request, self._context, known_archive, archive.calls)

    def is_small(self, planned: StepResult) -> bool:
        """Return whether the run is small enough for this function to extract the archive."""
        if planned.report is not None:  # the run has ended: there is nothing to extract
            return True
        plan = self._records.read_plan()
        first_round = planned.next
        return (
            first_round.next == "few"
            and plan.selected <= self._context.tuning.max_direct_members
            and max(plan.bytes_in, plan.bytes_out) <= self._context.tuning.max_direct_bytes
            and all(task.kind is TaskKind.BATCH for task in first_round.tasks)
        )

    def work(self, latest: StepResult) -> StepResult:
        """Run the rounds after the `latest` step; stop if the function is about to time out."""
        context = self._context
        while latest.report is None and context.clock.remaining() > context.tuning.margin_seconds:
            # The plan is read here, because a run that has already ended may have no plan.
            run = self._records.read_plan().run
            for task in latest.next.tasks:
                try:
                    add_task_metrics(run_task(run, task, context))
                except TASK_FAULTS as fault:  # `settle` repeats the task or ends the run
                    logger.warning("task failed", task=task.id, error=str(fault))
            latest = settle(latest.next, context)
        return latest

    def write_records(self, latest: StepResult) -> StepResult | None:
        """Write the records to the run store, the report last; return what is recorded now.

        Returns None and writes nothing if another invocation has planned the run. A COMPLETED
        verdict of this invocation is always written, because no other verdict is better.
        """
        own_report = latest.report
        archive = self._archive
        records = RunRecords.open(
            self._outer_context.stores, archive.run, self._outer_context.calls()
        )
        is_completed = own_report is not None and own_report.verdict is Verdict.COMPLETED
        if not is_completed:
            recorded = look_up_run(records)
            check_same_archive(
                archive.run, archive.request.source, archive.tail.pin, recorded.run_or_report
            )
            earlier = recorded.report
            if earlier is not None:
                replaces = own_report is not None and may_replace(own_report, earlier, self._began)
                if not replaces:  # the other invocation's report is kept
                    return latest._replace(report=earlier, is_first=False, is_own=False)
            if recorded.plan is not None:
                return None
        if own_report is None:
            self._copy_records(records, with_plan=True)
            return latest
        # Nobody resumes a COMPLETED run, so its plan is rarely needed; `show` makes the HTML page.
        needs_plan = not is_completed or has_nested(own_report) or own_report.archive_left
        self._copy_records(records, with_plan=needs_plan)
        report, is_first = write_report(
            own_report,
            records,
            self._began,
            # A COMPLETED run rarely has an earlier report, so assume that there is none.
            looked_up=(None, None) if is_completed else None,
            renderer=self._context if needs_plan else None,
        )
        return latest._replace(report=report, is_first=is_first, is_own=report == own_report)

    def _copy_records(self, records: RunRecords, *, with_plan: bool) -> None:
        """Copy the outcomes to the run store or, with `with_plan`, all records but the report.

        `write_report` writes the report and its page. The metrics are those of the final plan.
        """
        plan = self._records.find_plan()
        if plan is not None:
            add_plan_metrics(plan)
        for name, data in self._memory.objects.items():
            if name.startswith(OUTCOMES) or (with_plan and name not in {REPORT, PAGE}):
                records.write_encoded(name, data)
