"""Small runs: the intake function plans, extracts and settles an archive with records in memory.

The same functions as in every other run are called. The rules:

- The records are in memory until the function leaves the run. Then the records are written, the
  outcomes before the report. Records of another invocation are replaced only if its verdict is
  worse.
- For a COMPLETED run, only the outcomes and the report are written, because nobody resumes the run.
  The plan is also written if the archive or its nested archives still need it.
- A run that is not COMPLETED is left to another invocation if that invocation has planned or ended
  the run.
- A run that is planned but not small is left as soon as it is planned.
"""

from typing import NamedTuple

from msgspec.structs import replace

from s3unzip import errors
from s3unzip.aws.executions import ArrivedArchive
from s3unzip.aws.telemetry import add_metrics, logger, record_plan, record_task
from s3unzip.context import Context
from s3unzip.extraction.task import ATTEMPT_FAULTS, run_task
from s3unzip.model import TaskKind, Verdict
from s3unzip.rates import DIRECT_MEMBER_BYTES
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import OUTCOMES, PAGE, REPORT, RunRecords
from s3unzip.settling.loop import KnownArchive, Settled, begin, look_up_run, settle
from s3unzip.settling.nested import has_nested
from s3unzip.settling.report import may_replace, write_report
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail
from s3unzip.stores.run_store import MemoryRunStore, SmallRunStores

# Sent concurrently from the start: a single worker need not begin as slowly as a thousand workers.
FIRST_PUTS = 16
TASK_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*ATTEMPT_FAULTS, errors.RunStoppedError)


class LeftRun(NamedTuple):
    """The records of a run at the time when the intake function leaves it."""

    settled: Settled
    is_own: bool  # False: another invocation wrote the report


def run_here(archive: ArrivedArchive, context: Context, calls: Calls) -> LeftRun | None:
    """Plan an archive whose directory is in its tail; if it is small, also extract and settle it.

    Returns:
        The records of the run. None: the run must be planned elsewhere, or another invocation has
        planned it.
    """
    members = _count_members(archive.tail, context)
    if members is None:
        return None
    is_small = (
        members <= context.tuning.max_direct_members
        and archive.tail.pin.size <= context.tuning.max_direct_bytes
    )
    run = _MemoryRun(archive, context, has_one_worker=is_small)
    settled = run.begin(calls)
    if is_small and not run.is_small(settled):
        is_small = False
        run = _MemoryRun(archive, context, has_one_worker=False)  # the run is planned again
        settled = run.begin(calls)
    if is_small:
        settled = run.work(settled)
    left_run = run.leave(settled)
    if is_small and left_run is not None and left_run.settled.report is None:
        add_metrics(DirectHandovers=1)  # the state machine must finish the archive
    return left_run


def _count_members(tail: Tail, context: Context) -> int | None:
    """Return the number of members in the directory that is in the tail of an archive.

    Returns None if the directory begins before the tail, and 0 if the directory cannot be read.
    """
    try:
        next(tail.locate_directory(context.policy))
    except StopIteration as located:  # returned without requesting bytes before the tail
        if located.value.missing.length:  # bytes of the directory that are not in the tail
            return None
        members: int = located.value.entries
        return members
    except errors.RejectedError:  # the plan also finds this error, and reports it
        return 0
    return None  # it requested bytes before the tail


class _MemoryRun:
    """A run with its records and the end of its archive in memory."""

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
        memory = MemoryRunStore()
        self._objects = memory.objects
        self._records = RunRecords(memory)
        self._context = replace(
            context,
            tuning=tuning,
            stores=SmallRunStores(context.stores, memory),
            archive_end=archive.tail.data,
            platform=context.platform and replace(context.platform, direct=True),
            first_calls=FIRST_PUTS,
        )

    def begin(self, calls: Calls) -> Settled:
        archive = self._archive
        return begin(
            archive.request,
            self._context,
            KnownArchive(archive.run, archive.tail.pin, archive.tail),
            calls,
        )

    def is_small(self, settled: Settled) -> bool:
        """Return whether the run is small enough for this function to extract the archive."""
        if settled.report is not None:  # the run has ended: there is nothing to extract
            return True
        plan = self._records.read_plan()
        return (
            settled.next.next == "few"
            and plan.selected <= self._context.tuning.max_direct_members
            and max(plan.bytes_in, plan.bytes_out) <= self._context.tuning.max_direct_bytes
            and all(task.kind is TaskKind.BATCH for task in settled.next.tasks)
        )

    def work(self, settled: Settled) -> Settled:
        """Do the rounds of the run until it ends or the time of the function is nearly over."""
        context = self._context
        while settled.report is None and context.clock.remaining() > context.tuning.margin_seconds:
            run = self._records.read_plan().run
            for task in settled.next.tasks:
                try:
                    record_task(run_task(run, task, context))
                except TASK_FAULTS as fault:  # the task is also in the next round
                    logger.warning("task failed", task=task.id, error=str(fault))
            settled = settle(settled.next, context)
        return settled

    def leave(self, settled: Settled) -> LeftRun | None:
        """Write the records to the run store, the report last.

        If another invocation has planned the run, returns None and writes nothing.
        """
        own = settled.report
        archive = self._archive
        records = RunRecords.open(
            self._outer_context.stores, archive.run, self._outer_context.calls()
        )
        is_completed = own is not None and own.verdict is Verdict.COMPLETED
        if not is_completed:
            recorded = look_up_run(records)
            check_same_archive(archive.run, archive.request.source, archive.tail.pin, recorded.run)
            earlier = recorded.report
            # The report of another invocation stays, unless this report may replace it.
            if earlier and not (own and may_replace(own, earlier, self._began)):
                return LeftRun(settled._replace(report=earlier, is_first=False), is_own=False)
            if recorded.plan is not None:
                return None
        # Nobody resumes a COMPLETED run, and no later step reads its plan.
        is_over = own is not None and is_completed and not has_nested(own) and not own.archive_left
        self._write_objects(records, only_outcomes=is_over)
        if own is None:
            return LeftRun(settled, is_own=True)
        looked_up = None
        if is_completed:  # usually there is no report yet, so no look-up is made
            looked_up = (None, None)  # the result of a look-up that finds nothing
        report, is_first = write_report(
            own,
            records,
            self._began,
            looked_up=looked_up,
            page_for=None if is_over else self._context,
        )
        return LeftRun(settled._replace(report=report, is_first=is_first), is_own=report == own)

    def _write_objects(self, records: RunRecords, *, only_outcomes: bool) -> None:
        """Write the outcomes, or all records except the report and its page, to the run store."""
        plan = self._records.find_plan()
        if plan is not None:
            record_plan(plan)
        for name, data in self._objects.items():
            if name.startswith(OUTCOMES) or not (only_outcomes or name in {REPORT, PAGE}):
                records.keep(name, data)
