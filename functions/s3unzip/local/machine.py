"""Runs on this machine: the loop of `settling.loop`, whose tasks worker processes do.

A `Machine` has what the runs of one command share: stores, workers, locks. The records of a run are
the same as on AWS, in a folder.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Self

from msgspec.structs import replace

from s3unzip.context import Context, Progress
from s3unzip.errors import InterruptedRunError, S3UnzipError
from s3unzip.extraction.large import abort_uploads
from s3unzip.local.contexts import open_context
from s3unzip.local.locking import RunLocks
from s3unzip.local.workers import Workers
from s3unzip.model import (
    NestedRun,
    PlanSummary,
    Report,
    Request,
    Run,
    Stop,
    Task,
    TaskKind,
    Verdict,
    run_id,
)
from s3unzip.planning.plan import Plan, Reading, read_tail
from s3unzip.runs.records import PLAN_TASK, READERS, RunRecords, count_progress
from s3unzip.runs.step import STOPPED, Step
from s3unzip.settings import Tuning
from s3unzip.settling import loop
from s3unzip.settling.after import (
    find_nested,
    finish_source,
    first_budget,
    has_nested,
    nested_request,
    spend,
)
from s3unzip.stores.calls import LocalClock, map_ahead
from s3unzip.stores.factory import StoreConfig, check_reachable
from s3unzip.stores.folder import FolderDestination
from s3unzip.zip import Policy

_log = logging.getLogger("s3unzip.machine")

FAULT = "service-fault"  # the reason of a run that a store ended which did not answer
MAX_TOLD = 3  # folders that a warning names

Check = Callable[[Reading], None]
Planned = Callable[[Plan], None]
Show = Callable[[PlanSummary], None]


class Machine:
    """Workers, stores and locks for the runs of one command; a context manager.

    Args:
        processes: the number of workers.
        progress: takes what the workers count.
    """

    def __init__(
        self,
        stores: StoreConfig,
        policy: Policy,
        tuning: Tuning,
        processes: int,
        progress: Progress | None = None,
    ) -> None:
        self._stores, self._policy, self._tuning = stores, policy, tuning
        self._processes, self._progress = processes, progress
        self._held = ExitStack()
        self._locks = self._held.enter_context(RunLocks(stores.work.key))
        self.context, self._workers = self._open(stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def run(
        self, request: Request, check: Check | None = None, planned: Planned | None = None
    ) -> Report:
        """Extract one archive; return its report.

        Args:
            request: archive, destination and options.
            check: called with what was read before anything is written; may raise to stop here.
            planned: called with the plan before the first task begins; may raise likewise.
        """
        stores = self._stores

        def checked(reading: Reading) -> None:
            if check is not None:
                check(reading)
            if stores.check_reachable and stores.at_destination().endpoint_url is not None:
                check_reachable(stores, request.source, request.destination)

        context, workers = self.context, self._workers
        return run_archive(request, context, workers, checked, planned, self._locks.take)

    def check_cost(self, plan: Plan, max_cost: float) -> None:
        """Refuse a plan whose cost is above `max_cost` dollars (`BudgetError`).

        Requests to self-hosted stores cost nothing.
        """
        from s3unzip.estimate import check_budget, estimate, local  # noqa: PLC0415 - rare

        endpoint = self._stores.at_destination().endpoint_url
        amazon = plan.summary.run.destination.scheme == "s3" and endpoint is None
        platform = local(workers=self._processes, priced_requests=amazon)
        summary, tasks = plan.summary, plan.tasks + plan.copies
        made = estimate(summary.run, tasks, platform, self._tuning, summary.workers)
        check_budget(made, max_cost)

    def resume(self, run: str, show: Show | None = None, *, failed: bool = False) -> Report:
        """Do what is left of a run; `failed`: also the members that failed. Return its report."""
        self._locks.take(run)
        return resume_run(run, self.context, self._workers, show, failed=failed)

    def run_nested(self, report: Report) -> Iterator[NestedRun]:
        """Extract the archives that a run extracted, level by level; yield what became of each."""
        if not has_nested(report):
            return
        context, workers = self.context, self._workers
        stores = self._stores.at_destination()
        if stores != self._stores:
            context, workers = self._open(stores)
        yield from run_nested(report, context, workers, self._locks.take)

    def _open(self, stores: StoreConfig) -> tuple[Context, Workers]:
        """Return this process's context and the workers for archives that `stores` reach."""
        policy, tuning = self._policy, self._tuning
        context = open_context(stores, policy, tuning, LocalClock(), self._progress)
        patient = replace(stores, check_reachable=False)
        opening = partial(open_context, patient, policy, tuning)
        workers = Workers(self._processes, context, opening)
        return context, self._held.enter_context(workers)


def run_archive(
    request: Request,
    context: Context,
    workers: Workers,
    check: Check | None = None,
    planned: Planned | None = None,
    claim: Callable[[str], object] | None = None,
) -> Report:
    """Extract one archive from its beginning; return its report.

    Args:
        request: archive, destination and options.
        check: called with what was read before anything is written; may raise to stop here.
        planned: called with the plan before the first task begins; may raise likewise.
        claim: called with the id of the run after `check`; it keeps other processes off it.
    """
    _begin_phase("plan", context)
    calls = context.calls()
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, calls)
    run = run_id(request, tail.pin, tail.modified)

    def claimed(reading: Reading) -> None:
        if check is not None:
            check(reading)
        if claim is not None:
            claim(run)
        _forget(run, context)

    def fits(plan: Plan) -> None:
        if planned is not None:
            planned(plan)
        inflates = request.options.as_gzip is None
        wanted = plan.summary.bytes_out if inflates else plan.summary.bytes_in
        context.stores.destination(request.destination).check_ready(wanted)

    known = loop.KnownArchive(tail=tail)
    settled = loop.begin(request, context, known, calls, claimed, fits)
    return _go_round(settled, context, workers)


def run_nested(
    report: Report,
    context: Context,
    workers: Workers,
    claim: Callable[[str], object] | None = None,
) -> Iterator[NestedRun]:
    """Extract the archives that a run extracted, level by level; yield what became of each.

    Each archive gets the rest of the budget after the archives before it. ``nested.jsonl`` of the
    outer run has the same results. The arguments are those of `run_archive`.
    """
    left = first_budget(context.tuning)
    above = deque([report])
    while above:
        outer = above.popleft()
        if not has_nested(outer):
            continue
        records = RunRecords.open(context.stores, outer.run)
        run = records.read_plan().run
        found, results = find_nested(run, context, left.archives)
        yield from results
        for outcome in found:
            request = nested_request(run, outcome.key, left)
            try:
                below = run_archive(request, context, workers, claim=claim)
            except InterruptedRunError:
                records.write_nested(results)
                raise
            except S3UnzipError as error:
                result = NestedRun(outcome.key, reason="not-begun", message=str(error))
            else:
                left = spend(left, below, context)
                told = below.run, below.verdict, below.reason, below.message
                result = NestedRun(outcome.key, *told)
                above.append(below)
            results.append(result)
            yield result
        records.write_nested(results)


def _forget(run: str, context: Context) -> None:
    """Drop what an earlier run of the same id left: its uploads, then its records."""
    calls = context.calls()
    records = RunRecords.open(context.stores, run, calls)
    plan = records.find_plan()
    if plan is not None:
        drop_uploads(Step(plan.run, "plan", context, calls))
    records.forget()


def drop_uploads(step: Step) -> int:
    """Abort the uploads that killed workers of a run left; return how many there were."""
    small = {TaskKind.BATCH, TaskKind.SCAN}
    spans = {task.rows for task in step.records.tasks() if task.kind not in small}
    return abort_uploads(step, [row.key for span in spans for row in step.read_rows(span)])


def resume_run(
    run: str,
    context: Context,
    workers: Workers,
    show: Show | None = None,
    *,
    failed: bool = False,
) -> Report:
    """Do what is left of a run; return its report.

    Args:
        show: called with the plan before the first task begins.
        failed: whether to do the members again that failed.
    """
    records = RunRecords.open(context.stores, run)
    plan = records.read_plan()
    if show is not None:
        show(plan)
    settled = loop.resume(run, context, failed=failed)
    return _go_round(settled, context, workers)


def _count_recorded(records: RunRecords, next_tasks: Sequence[Task]) -> Counter[str]:
    """Return what is on record of a run before its next round, as the progress counts it."""
    tasks = [task for task in records.list_outcomes() if task != PLAN_TASK]
    reports = map_ahead(records.find_task_report, tasks, READERS)
    return count_progress((one for one in reports if one is not None), next_tasks)


def _go_round(settled: loop.Settled, context: Context, workers: Workers) -> Report:
    """Do round after round; return the report of the run.

    `InterruptedRunError`: Ctrl-C; what is done is on record.
    """
    records = RunRecords.open(context.stores, settled.next.run)
    plan = records.find_plan()
    if plan is None and settled.report is not None:
        return settled.report  # it was refused
    run = records.read_plan().run
    is_new = True
    try:
        while settled.report is None:
            step = settled.next
            tasks = step.tasks or list(records.read_round(step.round))
            workers.note_recorded(_count_recorded(records, tasks), new_run=is_new)
            is_new = False
            scans = any(task.kind is TaskKind.SCAN for task in tasks)
            _begin_phase("scan" if scans else "extract", context)
            fault = workers.do_all(run, tasks)
            if fault is not None and records.find_stop() is None:
                records.write_stop(Stop(Verdict.FAILED, FAULT, str(fault)))
            _begin_phase("link" if scans else "report", context)
            settled = loop.settle(step, context)
        _make_folders(run, records, context)
    except KeyboardInterrupt as interrupt:
        raise _interrupted(settled, run, records, context) from interrupt
    return finish_source(run.after_success, settled.report, context)


def _interrupted(
    settled: loop.Settled, run: Run, records: RunRecords, context: Context
) -> InterruptedRunError:
    """Write the report of a run that is stopped; return the error that says how to go on."""
    records.write_stop(Stop(Verdict.FAILED, STOPPED, "the run was stopped by a signal"))
    report = settled.report or loop.settle(settled.next, context).report
    done = 0 if report is None else report.extracted + report.unchanged
    return InterruptedRunError(
        f"stopped: {done:,} of {records.read_plan().selected:,} members are in {run.destination}; "
        f"continue with: s3unzip resume {run.id}"
    )


def _begin_phase(name: str, context: Context) -> None:
    """Tell the progress that a phase begins."""
    if context.progress is not None:
        context.progress.phase(name)


def _make_folders(run: Run, records: RunRecords, context: Context) -> None:
    """Create the archive's folders, also those without files, in a destination that is a folder.

    The members come first: where a file has the name of a folder, the file stays and a warning is
    logged.
    """
    if run.destination.scheme != "file":
        return
    destination = context.stores.destination(run.destination)
    if not isinstance(destination, FolderDestination):
        return
    refused: list[str] = []
    for key in records.folders():
        try:
            destination.make_folder(key)
        except S3UnzipError as error:
            refused.append(str(error))
    if refused:
        _log.warning("folders not created: %d; %s", len(refused), "; ".join(refused[:MAX_TOLD]))
