"""A whole run on one machine: plan; extract, and beside it scan and link split members; settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from s3unzip.errors import InterruptedRunError
from s3unzip.extraction.split.link import linked_sizes
from s3unzip.local.folders import make_folders
from s3unzip.local.worker import LINK, Done, LinkJob, nothing_follows
from s3unzip.model import Report, Stop, Verdict
from s3unzip.objects.upload_registry import abort_run
from s3unzip.planning.lists import divide_tasks, longest_first, mix
from s3unzip.planning.plan_writer import make_plan
from s3unzip.runs.done import summary_of, tell_done, tell_dropped
from s3unzip.runs.records import RunRecords
from s3unzip.runs.stop import STOPPED
from s3unzip.settling.after_success import finish_source
from s3unzip.settling.next_step import resume_command
from s3unzip.settling.page_writer import write_refusal
from s3unzip.settling.retry import plan_retry
from s3unzip.settling.settle import TASKS_FAILED, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from s3unzip.context import Context
    from s3unzip.local.pool import PoolResult
    from s3unzip.local.worker import Failed, Follow, Job
    from s3unzip.model import PlanSummary, Request, Run, ScanTask, Settled, Task
    from s3unzip.planning.reading import Reading
    from s3unzip.runs.written import WrittenObjects


class Pool(Protocol):
    """Does jobs."""

    @property
    def processes(self) -> int:
        """The number of workers."""
        ...

    def work(self, jobs: Iterable[Job], follow: Follow) -> PoolResult:
        """Do `jobs` and what follows them."""
        ...

    def close(self) -> None:
        """Let the workers exit."""
        ...


def run_archive(
    request: Request,
    context: Context,
    make_pool: Callable[[Run], Pool],
    planned: Callable[[PlanSummary], None],
    judge: Callable[[Reading], None] | None = None,
    written: WrittenObjects | None = None,
) -> Report:
    """Extract one archive; return its report.

    Args:
        request: archive, destination and options.
        context: of this process; workers make their own.
        make_pool: returns the workers of the run.
        planned: called with the plan before the first task begins; may raise to stop here.
        judge: called with what was read before anything is written; may raise to stop here.
        written: what earlier runs wrote to the destination, if the run needs it.

    Raises:
        UsageError, StorageError, ServiceFaultError: the plan could not be made.
        InterruptedRunError: Ctrl-C; what is done is on record.
    """
    _begin("plan", context)
    summary = make_plan(request, context, judge, written)
    if isinstance(summary, Report):
        return write_refusal(summary, context)
    planned(summary)
    return work_off(summary, context, make_pool, fresh=True)


def work_off(
    summary: PlanSummary,
    context: Context,
    make_pool: Callable[[Run], Pool],
    *,
    fresh: bool,
) -> Report:
    """Do the tasks of a planned run; return its report.

    Args:
        summary: of the plan.
        context: of this process.
        make_pool: returns the workers.
        fresh: whether to delete the outcomes of an earlier run; False continues it (redrive).

    Raises:
        InterruptedRunError: Ctrl-C; what is done is on record.
    """
    run = summary.run
    calls = context.calls()
    records = RunRecords.open(context.stores, run.id, calls)
    if fresh:  # abort the uploads first: their records are deleted next
        abort_run(run, context, calls)
        records.forget()
    else:
        records.delete_stop()
        tell_done(records, context)
    pool = make_pool(run)
    try:
        tasks = records.tasks() if fresh else records.undone(records.tasks())
        _do_tasks(context, pool, records, tasks, _find_scans(summary, records, fresh=fresh))
        make_folders(run, records, context)
        _begin("report", context)
        settled = settle(run, context, calls)
        if settled.left and settled.report.reason in {None, TASKS_FAILED}:
            settled = _do_redo(summary, context, pool)
    except KeyboardInterrupt as interrupt:
        records.write_stop(Stop(Verdict.FAILED, STOPPED, "the run was stopped by a signal"))
        report = settle(run, context, calls).report
        done = report.extracted + report.unchanged
        message = (
            f"stopped: {done:,} of {summary.selected:,} members are in {run.destination}; "
            f"continue with: {resume_command(run, context.connections)}"
        )
        raise InterruptedRunError(message) from interrupt
    finally:
        pool.close()
    return finish_source(run, settled.report, context)


def _do_redo(summary: PlanSummary, context: Context, pool: Pool) -> Settled:
    """Do what the first pass left, and settle the run again."""
    run, calls = summary.run, context.calls()
    records = RunRecords.open(context.stores, run.id, calls)
    scans = () if summary.split_members else None
    if scans is not None:
        tell_dropped(records, context)
    result = _do_tasks(context, pool, records, records.redo(), scans)
    _record_cause(records, result)
    return settle(run, context, calls)


def _record_cause(records: RunRecords, result: PoolResult) -> None:
    """Record why tasks that are not tried again did not end, if no task has recorded it."""
    if result.failed and records.find_stop() is None:
        cause = str(result.failed[-1].error)
        records.write_stop(Stop(Verdict.FAILED, TASKS_FAILED, cause))


def _ignore(_: PlanSummary) -> None:
    """Show nothing."""


def redrive(
    summary: PlanSummary,
    context: Context,
    make_pool: Callable[[Run], Pool],
    planned: Callable[[PlanSummary], None] = _ignore,
) -> Report:
    """Do the unfinished tasks of a run; `planned` is called with the plan of the whole run.

    Raises:
        InterruptedRunError: Ctrl-C; what is done is on record.
    """
    planned(summary)
    return work_off(summary, context, make_pool, fresh=False)


def retry_failed(
    summary: PlanSummary,
    context: Context,
    make_pool: Callable[[Run], Pool],
    planned: Callable[[PlanSummary], None] = _ignore,
) -> Report:
    """Retry the failed members; the others are not touched.

    `planned` is called with the plan of the retry: only its members are in it.

    Raises:
        InterruptedRunError: Ctrl-C; what is done is on record.
    """
    run = summary.run
    calls = context.calls()
    records = RunRecords.open(context.stores, run.id, calls)
    records.delete_stop()
    retry = plan_retry(records)
    if retry is not None:
        planned(summary_of(summary, retry[1], records))
        pool = make_pool(run)
        try:
            _begin("extract", context)
            _record_cause(records, pool.work(retry[1], nothing_follows))
        except KeyboardInterrupt as interrupt:
            settle(run, context, calls)
            message = f"stopped: continue with: {resume_command(run, context.connections)}"
            raise InterruptedRunError(message) from interrupt
        finally:
            pool.close()
    return finish_source(run, settle(run, context, calls).report, context)


def _begin(phase: str, context: Context) -> None:
    """Tell the progress that a phase begins."""
    if context.progress is not None:
        context.progress.phase(phase)


def _find_scans(
    summary: PlanSummary, records: RunRecords, *, fresh: bool
) -> Sequence[ScanTask] | None:
    """Return the scans that are to do; None if the run has no split members."""
    if not summary.split_members:
        return None
    return list(records.scans()) if fresh else records.list_unscanned()


def _do_tasks(
    context: Context,
    pool: Pool,
    records: RunRecords,
    tasks: Iterable[Task],
    scans: Sequence[ScanTask] | None,
) -> PoolResult:
    """Do `tasks`; scan and link split members beside those of the others.

    An error that stops the run is on record, and the report names it.

    Args:
        context: of this process.
        pool: has the workers.
        records: of the run.
        tasks: to do.
        scans: to do; None if no member is split.
    """
    if scans is None:
        _begin("extract", context)
        return pool.work(tasks, nothing_follows)
    whole, slices = divide_tasks(tasks)
    split = _SplitMembers(context, records, slices, scans, shown=not whole)
    _begin("extract" if whole or not scans else "scan", context)
    return pool.work(mix([*scans, *split.start()], whole, pool.processes), split.follow)


class _SplitMembers:
    """What follows the scans: one job links the members when no scan is left, then their slices.

    Args:
        context: of this process.
        records: of the run.
        slices: the tasks of split members.
        scans: that come before linking.
        shown: whether to show each phase, because nothing else is done meanwhile.
    """

    def __init__(
        self,
        context: Context,
        records: RunRecords,
        slices: Sequence[Task],
        scans: Sequence[ScanTask],
        *,
        shown: bool,
    ) -> None:
        self._context = context
        self._records = records
        self._slices = slices
        self._scans = {scan.id for scan in scans}
        self._shown = shown

    def start(self) -> Sequence[Job]:
        """Return what is to do if there is no scan to wait for."""
        return [] if self._scans or not self._slices else [LinkJob()]

    def follow(self, ended: Done | Failed) -> Sequence[Job]:
        """Return what is to do after a job that ended or was given up."""
        if ended.job == LINK and isinstance(ended, Done):
            self._show("extract")
            return longest_first(self._slices, linked_sizes(self._records))
        if ended.job in self._scans:
            self._scans.remove(ended.job)
            if not self._scans:
                self._show("link")
                return [LinkJob()]
        return []

    def _show(self, phase: str) -> None:
        if self._shown:
            _begin(phase, self._context)
