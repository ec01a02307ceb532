"""The loop of a run: `begin` plans it, `settle` ends a round and gives the next one, or the report.

The same functions run on one machine, in the intake function for a small archive, and as states of
the state machine. A round is a list of tasks. All that is done more than once is in a later round:
tasks that did not end, slices of scanned members, members whose slices did not fit and are
streamed, and what a person resumes. Each step may be repeated: it reads what is on record and
decides anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.extraction.multipart import abort_uploads
from s3unzip.extraction.slices import finish_member, link_copies, link_scans
from s3unzip.model import (
    Next,
    Outcome,
    Pin,
    PlanSummary,
    Report,
    Request,
    Requests,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
    run_id,
)
from s3unzip.planning.cut import choose_workers, order_tasks
from s3unzip.planning.plan import Plan, make_plan
from s3unzip.planning.read import Reading, read_tail
from s3unzip.runs.records import MEMBER, PLAN_TASK, RunRecords, TaskOutcomes, round_name
from s3unzip.runs.step import RUN_FAULTS, SOURCE_CHANGED, Step, stop_for
from s3unzip.settling.after_success import source_result
from s3unzip.settling.report import Tally, make_report, refuse_cost, render_page, write_marker
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail
from s3unzip.stores.readahead import map_ahead

MAX_IDLE_ROUNDS = 3  # one after the other, in which no task ended
MEMBERS_AT_ONCE = 8  # split members that are linked or finished
EXECUTION_FAILED = "execution-failed"  # the reason of a run whose execution failed


class Settled(NamedTuple):
    """What a step of the loop came to."""

    next: Next
    report: Report | None = None  # of a run that ended


class KnownArchive(Struct, frozen=True):
    """The version of an archive that a run is of, if the caller knows it already."""

    run: str | None = None
    pin: Pin | None = None
    tail: Tail | None = None


def begin(
    request: Request,
    context: Context,
    known: KnownArchive | None = None,
    calls: Calls | None = None,
    check: Callable[[Reading], None] | None = None,
    planned: Callable[[Plan], None] | None = None,
) -> Settled:
    """Plan a run and write its first round; a run that was planned goes on where it stopped.

    Args:
        request: the archive, the destination and the options.
        context: of this worker.
        known: what the caller knows of the archive's version.
        calls: of this step so far; None: it begins here.
        check: is given what was read before anything is written; it may raise to end it there.
        planned: is given the plan before the first round is written; it may raise likewise.
    """
    known, calls = known or KnownArchive(), calls or context.calls()
    if known.run is not None:
        records = RunRecords.open(context.stores, known.run, calls)
        if records.find_plan() is not None:
            return resume(known.run, context, calls)
    source = context.stores.source(request.source)
    tail = known.tail or read_tail(source, request.source, context, calls)
    run = known.run or run_id(request, tail.pin, tail.modified)
    records = RunRecords.open(context.stores, run, calls)
    if known.pin is not None and known.pin != tail.pin:
        changed = f"{request.source}: another version is there now; its own event starts its run"
        report = _unplanned(request, run, SOURCE_CHANGED, changed, context)
        return _end_refused(replace(report, pin=known.pin), records, context)
    plan = make_plan(request, run, tail, records, context, calls, check)
    if isinstance(plan, Plan):
        refused = refuse_cost(plan, context)
        if refused is None:
            return _write_plan(plan, records, context, calls, planned)
        plan = refused
    return _end_refused(plan, records, context)


def _unplanned(request: Request, run: str, reason: str, message: str, context: Context) -> Report:
    """Return the report of a run that has no plan."""
    now = context.clock.now()
    changed = reason == SOURCE_CHANGED
    return Report(
        run=run,
        verdict=Verdict.SOURCE_CHANGED if changed else Verdict.FAILED,
        source=request.source.public,
        pin=None,
        destination=request.destination,
        options=request.options,
        reason=reason,
        message=message,
        event_time=request.event_time,
        started=now,
        finished=now,
    )


def _end_refused(report: Report, records: RunRecords, context: Context) -> Settled:
    records.write_report(report, render_page(report, context))
    return Settled(Next(report.run, "done"), report)


def _write_plan(
    plan: Plan,
    records: RunRecords,
    context: Context,
    calls: Calls,
    planned: Callable[[Plan], None] | None,
) -> Settled:
    if planned is not None:
        planned(plan)
    run = plan.summary.run
    step = Step(run, "plan", context, calls)
    tasks = list(plan.tasks)
    try:
        for _, group in groupby(plan.copies, key=lambda task: task.rows):
            linked = link_copies(step, list(group))
            if isinstance(linked, Outcome):
                keep_outcome(step, linked)
            else:
                tasks += linked
    except RUN_FAULTS as fault:
        records.write_stop(stop_for(fault))
        tasks += plan.copies
    records.write_round(0, tasks)
    reached = context.reached
    stores = {} if reached is None else msgspec.to_builtins(reached.recorded())
    summary = replace(plan.summary, requests=calls.requests, stores=stores)
    records.write_plan(summary)
    if not tasks:
        return settle(Next(run.id, "few"), context, calls)
    return Settled(_next(records, tasks, 0, context))


def resume(
    run: str, context: Context, calls: Calls | None = None, *, failed: bool = False
) -> Settled:
    """Let a run go on that stopped, or that ended with members that failed.

    Args:
        run: the id of the run.
        context: of this worker.
        calls: of this step so far; None: it begins here.
        failed: whether to do the members again that failed.
    """
    calls = calls or context.calls()
    records = RunRecords.open(context.stores, run, calls)
    plan, report = records.find_plan(), records.find_report()
    if plan is None and report is not None:  # a small archive's plan was in memory
        request = Request(report.source, report.destination, report.options, report.event_time)
        return begin(request, context, KnownArchive(run, report.pin), calls)
    plan = plan or records.read_plan()
    step = Step(plan.run, "resume", context, calls)
    records.delete_stop()
    if failed:
        _forget_failures(step)
    state = read_state(step, plan)
    _drop_uploads(step, state)
    return _go_on(
        step, plan, state, Next(run, "few", round=len(records.list_rounds()) - 1, done=-1)
    )


def _drop_uploads(step: Step, state: RunState) -> None:
    """Abort the uploads of large members that killed workers left; those of slices are kept."""
    spans = {task.rows for task in state.large}
    keys = [row.key for span in sorted(spans) for row in step.read_rows(span)]
    abort_uploads(step, keys, {task.slice.upload_id for task in state.large if task.slice})


def _forget_failures(step: Step) -> None:
    """Make the failed members of each task unfinished, so that the next round does them."""
    records = step.records
    for task, found in records.read_outcomes(records.list_outcomes()):
        if found is None or not found.report.failed or task == PLAN_TASK:
            continue
        if task.startswith(MEMBER):
            records.delete_outcomes(task)
            continue
        kept = [one for one in found.outcomes if one.status is not Status.FAILED]
        unfinished = found.report.unfinished + len(found.outcomes) - len(kept)
        report = replace(found.report, failed=0, unfinished=unfinished)
        records.write_outcomes(report, kept)


def settle(step: Next, context: Context, calls: Calls | None = None) -> Settled:
    """Read what a round came to; write the next round, or the report.

    Args:
        step: what `begin` or the last `settle` returned.
        context: of this worker.
        calls: of this step so far; None: it begins here.
    """
    calls = calls or context.calls()
    plan = RunRecords.open(context.stores, step.run, calls).read_plan()
    work = Step(plan.run, "settle", context, calls)
    return _go_on(work, plan, read_state(work, plan), step)


def settle_failed(
    run: str, message: str, context: Context, request: Request | None = None
) -> Report | None:
    """Report a run whose execution failed or was stopped; None if it has a report already.

    Args:
        run: the id of the run.
        message: how the execution ended.
        context: of this worker.
        request: what the execution was given, for a run that has no plan yet.
    """
    calls = context.calls()
    records = RunRecords.open(context.stores, run, calls)
    plan = records.find_plan()
    if plan is None:
        if request is None:
            return None
        unplanned = _unplanned(request, run, EXECUTION_FAILED, message, context)
        page = render_page(unplanned, context)
        return unplanned if records.create_report(unplanned, page) else None
    step = Step(plan.run, "settle", context, calls)
    state = read_state(step, plan)
    stop = records.find_stop() or Stop(Verdict.FAILED, EXECUTION_FAILED, message)
    report = make_report(step, plan, state.tally, stop, state.left, Requests())
    return report if records.create_report(report, render_page(report, context)) else None


def _go_on(step: Step, plan: PlanSummary, state: RunState, before: Next) -> Settled:
    """Give the next round, or end the run."""
    records, context = step.records, step.context
    stop, left = records.find_stop(), state.left
    idle = 0 if state.done > before.done else before.idle + 1
    if stop is None and idle < MAX_IDLE_ROUNDS:
        try:
            left = left + _go_on_with_split(step, state)
        except RUN_FAULTS as fault:
            stop = stop_for(fault)
            records.write_stop(stop)
        else:
            if left:
                number = before.round + 1
                records.write_round(number, order_tasks(left))
                done = max(0, state.done)
                following = _next(records, left, number, context)
                requests = before.requests + step.calls.requests
                return Settled(replace(following, done=done, idle=idle, requests=requests))
    if before.round and stop is None:  # something was done again
        _drop_uploads(step, state)
    left = left + state.waiting
    report = make_report(step, plan, state.tally, stop, left, before.requests, before.round + 1)
    earlier = records.find_report()
    report = replace(report, after_success=source_result(plan.run, report, earlier))
    if report.verdict is Verdict.COMPLETED and plan.run.options.marker:
        write_marker(step, report)
    records.write_report(report, render_page(report, context))
    return Settled(Next(plan.run.id, "done"), report)


def _next(records: RunRecords, tasks: Sequence[Task], number: int, context: Context) -> Next:
    tuning = context.tuning
    workers = choose_workers(tasks, tuning)
    if len(tasks) <= tuning.max_few_tasks:
        return Next(records.run, "few", number, tuple(tasks), workers=workers)
    return Next(records.run, "many", number, list=round_name(number), workers=workers)


# What is on record of a run


class RunState(Struct):
    """What the rounds so far came to."""

    tally: Tally
    left: list[Task] = field(default_factory=list)  # tasks that have something to do
    large: list[Task] = field(default_factory=list)  # all but batches
    scanned: list[list[Task]] = field(default_factory=list)  # of each member: to be linked
    sliced: list[list[tuple[Task, TaskOutcomes]]] = field(default_factory=list)  # to be finished
    done: int = 0  # tasks that ended, and members that have an outcome

    @property
    def waiting(self) -> list[Task]:
        """The tasks of split members that have ended and lead to others."""
        scans = [task for tasks in self.scanned for task in tasks]
        return scans + [task for tasks in self.sliced for task, _ in tasks]


def read_state(step: Step, plan: PlanSummary) -> RunState:
    """Read the outcomes of all tasks of all rounds."""
    records = step.records
    state = RunState(Tally(listed=step.context.tuning.failures_listed))
    if plan.failed:
        for outcome in records.plan_outcomes():
            state.tally.add(outcome, PLAN_TASK)
    tasks = {task.id: task for task in records.tasks()}
    state.large = [task for task in tasks.values() if task.kind is not TaskKind.BATCH]
    known = set(records.list_outcomes())
    split: dict[tuple[int, int], list[tuple[Task, TaskOutcomes | None]]] = defaultdict(list)
    members = [name for name in known if name.startswith(MEMBER)]
    streamed = {task.rows for task in tasks.values() if task.kind is TaskKind.STREAM}
    for name, found in records.read_outcomes(sorted(known & tasks.keys())):
        task = tasks[name]
        if found is not None:
            state.tally.add_task(found.report)
            state.done += found.complete
        _sort(state, split, streamed, task, found)
    for task in tasks.values():
        if task.id not in known:
            _sort(state, split, streamed, task, None)
    settled = set()
    for _, found in records.read_outcomes(members):
        if found is not None:
            settled.add(found.outcomes[0].index)
            state.tally.add(found.outcomes[0], found.report.task)
    for group in split.values():
        if _index_of(group[0][0]) not in settled:
            _sort_split(state, group)
    state.done += state.tally.members
    return state


def _sort(
    state: RunState,
    split: dict[tuple[int, int], list[tuple[Task, TaskOutcomes | None]]],
    streamed: set[tuple[int, int]],
    task: Task,
    found: TaskOutcomes | None,
) -> None:
    """Put one task where it belongs: its members are settled, left, or split over several."""
    if not task.is_whole:
        if task.rows not in streamed:  # else its member is streamed instead
            split[task.rows].append((task, found))
        return
    for outcome in found.outcomes if found is not None else ():
        state.tally.add(outcome, task.id)
    if found is None or not found.complete:
        state.left.append(task)


def _sort_split(state: RunState, group: list[tuple[Task, TaskOutcomes | None]]) -> None:
    """Say what is next of a split member: its scans, their link, its slices, or its end."""
    slices = [(task, found) for task, found in group if task.slice is not None]
    if not slices and group[0][0].kind is TaskKind.COPY:  # a fault stopped the plan
        state.scanned.append([task for task, _ in group])
        return
    current = slices or group
    left = [task for task, found in current if found is None or not found.complete]
    if left:
        state.left += left
    elif slices:
        state.sliced.append([(task, found) for task, found in current if found is not None])
    else:
        state.scanned.append([task for task, _ in current])


def _index_of(task: Task) -> int:
    """Return the index of the one member of a task."""
    return int(task.id.split("-")[1])


# Members that are split over several tasks


def _go_on_with_split(step: Step, state: RunState) -> list[Task]:
    """Link members whose scans are done, finish those whose slices are; return the next tasks."""

    def link(group: list[Task]) -> list[Task] | Outcome:
        copies = group[0].kind is TaskKind.COPY
        return link_copies(step, group) if copies else link_scans(step, group)

    def finish(group: list[tuple[Task, TaskOutcomes]]) -> list[Task] | Outcome:
        ended = finish_member(step, group)
        return [ended] if isinstance(ended, Task) else ended

    tasks: list[Task] = []
    for found in (
        *map_ahead(link, state.scanned, MEMBERS_AT_ONCE),
        *map_ahead(finish, state.sliced, MEMBERS_AT_ONCE),
    ):
        if isinstance(found, Outcome):
            keep_outcome(step, found)
            state.tally.add(found, f"{MEMBER}{found.index:08d}")
            if found.status is Status.EXTRACTED:
                state.tally.note_first(step.context.clock.now())
        else:
            tasks += found
    return tasks


def keep_outcome(step: Step, outcome: Outcome) -> None:
    """Write the outcome of a member that was split over several tasks."""
    counts = {status: int(outcome.status is status) for status in Status}
    report = TaskReport(
        task=f"{MEMBER}{outcome.index:08d}",
        kind=TaskKind.SLICE,
        members=1,
        extracted=counts[Status.EXTRACTED],
        unchanged=counts[Status.UNCHANGED],
        failed=counts[Status.FAILED],
        started=step.started,
    )
    step.records.write_outcomes(report, [outcome])
