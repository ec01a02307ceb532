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
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import NotFoundError
from s3unzip.extraction.large import abort_uploads
from s3unzip.extraction.slices import finish_member, link_member
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
from s3unzip.planning.plan import Plan, Reading, make_plan, read_tail
from s3unzip.runs.records import MEMBER, PLAN_TASK, RunRecords, TaskOutcomes, round_name
from s3unzip.runs.step import RUN_FAULTS, SOURCE_CHANGED, Step, stop_for
from s3unzip.settling.report import Tally, make_report, write_marker
from s3unzip.settling.report_page.page import render_page
from s3unzip.settling.source_actions import source_result
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.ports import Tail

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
        report = records.find_report()
        if report is not None and report.verdict is not Verdict.FAILED:  # it was refused
            return Settled(Next(known.run, "done"), report)
    source = context.stores.source(request.source)
    changed = None
    try:
        tail = known.tail or read_tail(source, request.source, context, calls)
    except NotFoundError as gone:
        if known.run is None or known.pin is None:
            raise
        run, changed = known.run, str(gone)
    else:
        run = known.run or run_id(request, tail.pin, tail.modified)
        if known.pin is not None and known.pin != tail.pin:
            newer = "another version is there now; its own event starts its run"
            changed = f"{request.source}: {newer}"
    records = RunRecords.open(context.stores, run, calls)
    if changed is not None:
        refused = _unplanned(request, run, known.pin, changed, context)
        return _end_refused(refused, records, context, new=known.run is None)
    plan = make_plan(request, run, tail, records, context, calls, check)
    if isinstance(plan, Plan):
        return _write_plan(plan, records, context, calls, planned)
    return _end_refused(plan, records, context, new=known.run is None)


def _unplanned(
    request: Request, run: str, pin: Pin | None, message: str, context: Context, reason: str = ""
) -> Report:
    """Return the report of a run that has no plan; without a reason its archive has changed."""
    now, verdict = context.clock.now(), Verdict.FAILED if reason else Verdict.SOURCE_CHANGED
    words = {"reason": reason or SOURCE_CHANGED, "message": message}
    return Report.of(run, request, pin, verdict, **words, started=now, finished=now)


def _end_refused(report: Report, records: RunRecords, context: Context, *, new: bool) -> Settled:
    """Report a run without a plan; of one that is not `new` another attempt may know better."""
    page = render_page(report, context)
    if new or not records.create_report(report, page):
        found = None if new else records.find_report()
        if found is not None and found.verdict is not Verdict.FAILED:
            report = found
        else:
            records.write_report(report, page)
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
    run, tasks, done = plan.summary.run, list(plan.tasks), plan.summary.failed
    try:
        for _, found in groupby(plan.copies, key=lambda task: task.rows):
            group, step = list(found), Step(run, "plan", context, calls)
            linked = link_member(step, group)
            if not isinstance(linked, Outcome):
                tasks += linked
            elif linked.status is Status.FAILED:  # one task says so, and can be done again
                size = sum(task.size for task in group)
                whole = replace(group[0], id=f"copy-{linked.index:08d}", part=0, parts=1)
                seconds = sum(task.seconds for task in group)
                tasks.append(replace(whole, span=(0, size), size=size, seconds=seconds))
            else:
                keep_outcome(step, linked)
                done += 1
    except RUN_FAULTS as fault:
        records.write_stop(stop_for(fault))
        tasks += plan.copies
    records.write_round(0, tasks)
    reached = context.reached
    stores = {} if reached is None else msgspec.to_builtins(reached.recorded())
    records.write_plan(replace(plan.summary, requests=calls.requests, stores=stores))
    if not tasks:
        return settle(Next(run.id, "few"), context, calls)
    return Settled(replace(_next(records, tasks, 0, context), done=done))


def resume(
    run: str, context: Context, calls: Calls | None = None, *, failed: bool = False
) -> Settled:
    """Let a run go on that stopped, or that ended with members that failed.

    Args:
        run: the id of the run.
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
    kept = [*state.left, *state.waiting]
    abort_uploads(step, keys, {task.slice.upload_id for task in kept if task.slice})


def _forget_failures(step: Step) -> None:
    """Make the failed members of each task unfinished, so that the next round does them."""
    records = step.records
    rows = {task.id: task.rows for task in records.tasks()}
    for task, found in records.read_outcomes(records.list_outcomes()):
        if found is None or not found.report.failed or task == PLAN_TASK:
            continue
        if task.startswith(MEMBER):
            records.delete_outcomes(task)
            continue
        kept = [one for one in found.outcomes if one.status is not Status.FAILED]
        unfinished = found.report.unfinished + len(found.outcomes) - len(kept)
        whole = {one.index for one in kept}
        done = sum(row.work for row in step.read_rows(rows[task]) if row.member.index in whole)
        report = replace(found.report, failed=0, unfinished=unfinished, bytes_done=done)
        records.write_outcomes(report, kept)


def settle(step: Next, context: Context, calls: Calls | None = None) -> Settled:
    """Read what a round came to; write the next round, or the report.

    Args:
        step: what `begin` or the last `settle` returned.
        calls: of this step so far; None: it begins here.
    """
    calls = calls or context.calls()
    plan = RunRecords.open(context.stores, step.run, calls).read_plan()
    work = Step(plan.run, "settle", context, calls)
    return _go_on(work, plan, read_state(work, plan), step)


def settle_failed(
    run: str,
    message: str,
    context: Context,
    request: Request | None = None,
    pin: Pin | None = None,
) -> Report | None:
    """Report a run whose execution failed or was stopped; None if it has a report already.

    Args:
        run: the id of the run.
        message: how the execution ended.
        request: what the execution was given, for a run that has no plan yet.
        pin: the version that it was given.
    """
    calls = context.calls()
    records = RunRecords.open(context.stores, run, calls)
    plan = records.find_plan()
    if plan is None:
        if request is None:
            return None
        report = _unplanned(request, run, pin, message, context, EXECUTION_FAILED)
    else:
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
    if earlier is not None and earlier.finished > step.started:  # this step is late
        return Settled(Next(plan.run.id, "done"), earlier)
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
        state.tally.add_all(records.plan_outcomes(), PLAN_TASK)
    tasks = {task.id: task for task in records.tasks()}
    state.large = [task for task in tasks.values() if task.kind is not TaskKind.BATCH]
    known = dict.fromkeys(sorted(records.list_outcomes()))
    split: dict[tuple[int, int], list[tuple[Task, TaskOutcomes | None]]] = defaultdict(list)
    streamed = {task.rows for task in tasks.values() if task.kind is TaskKind.STREAM}
    absent = ((name, None) for name in tasks if name not in known)
    for name, found in chain(records.read_outcomes(one for one in known if one in tasks), absent):
        task = tasks[name]
        if found is not None:
            state.tally.add_task(found.report)
            state.done += found.complete
            if task.is_whole:
                state.tally.add_all(found.outcomes, name)
        if not task.is_whole:
            split[task.rows].append((task, found))
        elif found is None or not found.complete:
            state.left.append(task)
    settled = set()
    for name, found in records.read_outcomes(one for one in known if one.startswith(MEMBER)):
        if found is not None:
            settled.add(found.outcomes[0].index)
            state.tally.add_all(found.outcomes, name)
    for rows, group in split.items():
        if rows not in streamed and int(group[0][0].id.split("-")[1]) not in settled:
            _sort_split(state, group)
    state.done += state.tally.members
    return state


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


# Members that are split over several tasks


def _go_on_with_split(step: Step, state: RunState) -> list[Task]:
    """Link members whose scans are done, finish those whose slices are; return the next tasks."""
    tasks: list[Task] = []
    for found in (
        *map_ahead(partial(link_member, step), state.scanned, MEMBERS_AT_ONCE),
        *map_ahead(partial(finish_member, step), state.sliced, MEMBERS_AT_ONCE),
    ):
        if isinstance(found, Outcome):
            keep_outcome(step, found)
            state.done += 1
            state.tally.add_all((found,), f"{MEMBER}{found.index:08d}")
            if found.status is Status.EXTRACTED:
                state.tally.note_first(step.context.clock.now())
        else:
            tasks += found
    return tasks


def keep_outcome(step: Step, outcome: Outcome) -> None:
    """Write the outcome of a member that was split over several tasks."""
    task = f"{MEMBER}{outcome.index:08d}"
    count: dict[str, Any] = {outcome.status.value: 1}
    report = TaskReport(task, TaskKind.SLICE, members=1, started=step.started, **count)
    step.records.write_outcomes(report, [outcome])
