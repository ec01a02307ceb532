"""The loop of a run: `begin` plans it, `settle` ends a round and gives the next one, or the report.

The same functions run on one machine, in the intake function for a small archive, and as states of
the state machine. A round is a list of tasks. All that is done more than once is in a later round:
tasks that did not end, slices of scanned members, members whose slices did not fit and are
streamed, and what a person resumes.

The rules of the loop:

- Each step may be repeated, late or at once with another: it reads what is on record and decides
  anew. ``run.json`` is the last record of a plan, so a plan is whole where it exists.
- A step that is cut off leaves records that the next one completes. A task without a whole record
  is in the next round; three rounds without progress end the run.
- Each run that ends has a verdict, written by `settling.verdicts`.
- Records that cannot be read end the run as FAILED, with that reason. When it goes on, it begins
  anew: its records are forgotten, but for the report, and it is planned again. The members that are
  there are written again, with the same bytes.
- Records under the run's id that are of another archive are an error: two archives have one id.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import NotFoundError, UnreadableRecordError
from s3unzip.extraction.link import link_member
from s3unzip.extraction.slices import finish_member
from s3unzip.extraction.uploads import abort_uploads
from s3unzip.model import (
    AfterSuccess,
    Next,
    Outcome,
    Pin,
    PlanSummary,
    Report,
    Request,
    Requests,
    Run,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
    check_same_archive,
    run_id,
)
from s3unzip.planning.cut import choose_workers, order_tasks
from s3unzip.planning.plan import Plan, make_plan
from s3unzip.planning.reading import Reading, read_tail
from s3unzip.runs.records import (
    MEMBER,
    PAGE,
    PLAN_TASK,
    RECORD_UNREADABLE,
    REPORT,
    RunRecords,
    TaskOutcomes,
    round_name,
)
from s3unzip.runs.step import RUN_FAULTS, SOURCE_CHANGED, Step, stop_for
from s3unzip.settling.report import Tally, make_report, write_marker
from s3unzip.settling.source_actions import source_result
from s3unzip.settling.verdicts import WrittenVerdict, write_verdict
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail
from s3unzip.zip import ByteRange

MAX_IDLE_ROUNDS = 3  # one after the other, in which no task ended
MEMBERS_AT_ONCE = 8  # split members that are linked or finished
EXECUTION_FAILED = "execution-failed"  # the reason of a run whose execution failed
NOT_READABLE = "not-readable"  # the reason of a run whose archive the store does not give


class Settled(NamedTuple):
    """What a step of the loop came to."""

    next: Next
    report: Report | None = None  # of a run that ended
    is_first: bool = True  # whether the run had no report before


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
        check, planned: get what was read, and the plan, before it is written; they may raise.
    """
    known = known or KnownArchive()
    calls = calls or context.calls()
    since = context.clock.now()
    begins_anew = False
    if known.run is not None:
        recorded = look_up_run(RunRecords.open(context.stores, known.run, calls))
        check_same_archive(known.run, request.source, known.pin, recorded.run)
        begins_anew = recorded.begins_anew
        if recorded.plan is not None and not begins_anew:
            return resume(known.run, context, calls)
        report = recorded.report
        if report is not None and report.verdict is not Verdict.FAILED:  # it was refused
            return Settled(Next(known.run, "done"), report, is_first=False)
    current = _find_current(request, known, context, calls)
    run = current.run
    records = RunRecords.open(context.stores, run, calls)
    if current.tail is None:
        stop = Stop(Verdict.SOURCE_CHANGED, SOURCE_CHANGED, current.change)
        refused = _unplanned(request, run, known.pin, stop, context)
    else:
        if known.run is not None and (begins_anew or records.list_outcomes()):
            records.forget(keep=(REPORT, PAGE))
        plan = make_plan(
            request,
            current.tail,
            records=records,
            context=context,
            calls=calls,
            check=check,
        )
        if isinstance(plan, Plan):
            settled = _write_plan(plan, records, context, calls, planned)
            if begins_anew:
                step = Step(plan.summary.run, "plan", context, calls)
                _drop_uploads(step, read_state(step, plan.summary))
            return settled
        refused = plan
    written = write_verdict(lambda _: refused, records, since, page_for=context)
    # A run that begins here is the caller's alone: what an earlier one came to is no answer to it.
    report = refused if known.run is None else written.report
    return Settled(Next(run, "done"), report, is_first=written.is_first)


class _CurrentArchive(NamedTuple):
    """The archive that is there when its run begins."""

    run: str  # the id of its run
    tail: Tail | None  # None: the version that the caller knows is gone or replaced
    change: str = ""  # what happened to that version


def _find_current(
    request: Request, known: KnownArchive, context: Context, calls: Calls
) -> _CurrentArchive:
    """Read the end of the archive, and compare its version with the one that the caller knows."""
    source = context.stores.source(request.source)
    try:
        tail = known.tail or read_tail(source, request.source, context, calls)
    except NotFoundError as gone:
        if known.run is None or known.pin is None:
            raise
        return _CurrentArchive(known.run, None, str(gone))
    run = known.run or run_id(request, tail.pin, tail.modified)
    if known.pin is not None and known.pin != tail.pin:
        newer = "another version is there now; its own event starts its run"
        return _CurrentArchive(run, None, f"{request.source}: {newer}")
    return _CurrentArchive(run, tail)


class RecordedRun(NamedTuple):
    """What is on record of a run."""

    plan: PlanSummary | None  # None: there is none that can be read
    report: Report | None  # likewise
    begins_anew: bool  # whether its records cannot be read

    @property
    def run(self) -> Run | Report | None:
        """The archive of the run, by whichever record has it."""
        return self.report if self.plan is None else self.plan.run


def look_up_run(records: RunRecords) -> RecordedRun:
    """Return what is on record of a run."""
    report = records.find_report()
    try:
        plan = records.find_plan()
    except UnreadableRecordError:
        return RecordedRun(None, report, begins_anew=True)
    begins_anew = report is not None and report.reason == RECORD_UNREADABLE
    return RecordedRun(plan, report, begins_anew)


def _unplanned(request: Request, run: str, pin: Pin | None, stop: Stop, context: Context) -> Report:
    """Return the report of a run that has no plan."""
    now = context.clock.now()
    cause = {"reason": stop.reason, "message": stop.message}
    return Report.of(run, request, pin, stop.verdict, **cause, started=now, finished=now)


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
    run: str,
    context: Context,
    calls: Calls | None = None,
    *,
    failed: bool = False,
    after_success: AfterSuccess | None = None,
) -> Settled:
    """Let a run go on that stopped, or that ended with members that failed.

    Args:
        run: the id of the run.
        calls: of this step so far; None: it begins here.
        failed: whether to do the members again that failed.
        after_success: what happens to the archive of a run that has no plan to say it.
    """
    calls = calls or context.calls()
    records = RunRecords.open(context.stores, run, calls)
    recorded = look_up_run(records)
    before = recorded.run
    if before is not None and (recorded.plan is None or recorded.begins_anew):
        # The plan of a small archive was in memory, or the records cannot be read.
        if isinstance(before, Run):
            request = before.request
        else:
            request = Request(
                before.source,
                before.destination,
                before.options,
                event_time=before.event_time,
                after_success=after_success,
            )
        return begin(request, context, KnownArchive(run, before.pin), calls)
    plan = recorded.plan or records.read_plan()
    step = Step(plan.run, "resume", context, calls)
    if failed:
        step.calls.read(step.archive, ByteRange(0, 1))  # it is still there
    records.delete_stop()
    try:
        if failed:
            forget_outcomes(step, lambda outcome: outcome.status is Status.FAILED)
        state = read_state(step, plan)
        _drop_uploads(step, state)
    except UnreadableRecordError as damage:
        state = read_state(step, plan)
        state.stop = stop_for(damage)
    number = len(records.list_rounds()) - 1
    return _go_on(step, plan, state, Next(run, "few", number, done=-1, reopened=failed))


def _drop_uploads(step: Step, state: RunState) -> None:
    """Abort the uploads of large members that killed workers left; those of slices are kept."""
    spans = {task.rows for task in state.large}
    keys = [row.key for span in sorted(spans) for row in step.read_rows(span)]
    kept = [*state.left, *state.waiting]
    abort_uploads(step, keys, {task.slice.upload_id for task in kept if task.slice})


def forget_outcomes(step: Step, is_forgotten: Callable[[Outcome], bool]) -> int:
    """Make some members of each task unfinished, so that the next round does them.

    Returns:
        How many they are. Members that the plan refused stay as they are.
    """
    records = step.records
    rows = {task.id: task.rows for task in records.tasks()}
    count = 0
    for task, recorded in records.read_outcomes(records.list_outcomes()):
        if recorded is None or task == PLAN_TASK:
            continue
        whole = [outcome for outcome in recorded.outcomes if not is_forgotten(outcome)]
        forgotten = len(recorded.outcomes) - len(whole)
        count += forgotten
        if not forgotten:
            continue
        if task.startswith(MEMBER):
            records.delete_outcomes(task)
            continue
        indexes = {outcome.index for outcome in whole}
        done = sum(row.work for row in step.read_rows(rows[task]) if row.member.index in indexes)
        statuses = Counter(outcome.status for outcome in whole)
        report = replace(
            recorded.report,
            unfinished=recorded.report.unfinished + forgotten,
            bytes_done=done,
            **{status.value: statuses[status] for status in Status},
        )
        records.write_outcomes(report, whole)
    return count


def settle(step: Next, context: Context, calls: Calls | None = None) -> Settled:
    """Read what a round came to; write the next round, or the report.

    Args:
        step: what `begin` or the last `settle` returned.
        calls: of this step so far; None: it begins here.
    """
    calls = calls or context.calls()
    plan = RunRecords.open(context.stores, step.run, calls).require_plan()
    work = Step(plan.run, "settle", context, calls)
    return _go_on(work, plan, read_state(work, plan), step)


class FailedExecution(Struct, frozen=True):
    """How an execution, or the work of one machine, ended without a verdict."""

    run: str
    stop: Stop  # why, where the records do not say it
    began: float  # Unix seconds
    ended: float
    request: Request | None = None  # what it was given, for a run without a plan
    pin: Pin | None = None  # the version that it was given


def settle_failed(failed: FailedExecution, context: Context) -> Settled | None:
    """Report a run whose execution failed or was stopped; None: nothing is known of the run.

    The report is of the moment at which the execution ended: one that is newer stays.
    """
    calls = context.calls()
    run = failed.run
    records = RunRecords.open(context.stores, run, calls)
    stop = failed.stop
    try:
        plan = records.find_plan()
    except UnreadableRecordError as damage:
        plan = None
        stop = stop_for(damage)
    if plan is not None:
        if failed.request is not None:
            check_same_archive(run, failed.request.source, failed.pin, plan.run)
        step = Step(plan.run, "settle", context, calls)
        state = read_state(step, plan)
        stop = state.stop or records.find_stop() or stop
        report = make_report(step, plan, state.tally, stop, state.left, Requests())
    elif failed.request is not None:
        report = _unplanned(failed.request, run, failed.pin, stop, context)
    else:
        known = records.find_report()
        return None if known is None else Settled(Next(run, "done"), known, is_first=False)
    report = replace(report, finished=failed.ended)
    # Of a run that is complete, or has ended otherwise, the report that is there says it.
    since = failed.began if report.verdict is Verdict.FAILED else 0.0
    written = _write_settled(report, plan, records, context, since)
    return Settled(Next(run, "done"), *written)


def _write_settled(
    report: Report,
    plan: PlanSummary | None,
    records: RunRecords,
    context: Context,
    since: float,
    *,
    reopened: bool = False,
) -> WrittenVerdict:
    """Write the verdict of a run, with what is to be done to its archive."""

    def compose(earlier: Report | None) -> Report:
        if plan is None:
            return report
        return replace(report, after_success=source_result(plan.run, report, earlier))

    return write_verdict(compose, records, since, page_for=context, reopened=reopened)


def _go_on(step: Step, plan: PlanSummary, state: RunState, before: Next) -> Settled:
    """Give the next round, or end the run."""
    records = step.records
    context = step.context
    stop = state.stop or records.find_stop()
    left = state.left
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
                counts = {"done": done, "idle": idle, "requests": requests}
                return Settled(replace(following, **counts, reopened=before.reopened))
            stop = _find_lost(plan, state)
    if before.round and stop is None:  # something was done again
        _drop_uploads(step, state)
    left = left + state.waiting
    report = make_report(step, plan, state.tally, stop, left, before.requests, before.round + 1)
    if report.verdict is Verdict.COMPLETED and plan.run.options.marker:
        write_marker(step, report)
    started, reopened = step.started, before.reopened
    written = _write_settled(report, plan, records, context, started, reopened=reopened)
    return Settled(Next(plan.run.id, "done"), *written)


def _find_lost(plan: PlanSummary, state: RunState) -> Stop | None:
    """Return why a run must end of whose members some are in no task that is on record."""
    lost = plan.failed + plan.selected - state.tally.members
    message = f"{plan.run.id}: {lost:,} members are in no task: a record of a round is damaged"
    return Stop(Verdict.FAILED, RECORD_UNREADABLE, message) if lost > 0 else None


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
    stop: Stop | None = None  # records cannot be read

    @property
    def waiting(self) -> list[Task]:
        """The tasks of split members that have ended and lead to others."""
        scans = [task for tasks in self.scanned for task in tasks]
        return scans + [task for tasks in self.sliced for task, _ in tasks]


def read_state(step: Step, plan: PlanSummary) -> RunState:
    """Read the outcomes of all tasks of all rounds.

    Where the records of the plan or of a round cannot be read, the state has a stop, and counts the
    outcomes that can.
    """
    listed = step.context.tuning.failures_listed
    try:
        return _read_state(step, plan, RunState(Tally(listed)))
    except UnreadableRecordError as damage:
        state = RunState(Tally(listed), stop=stop_for(damage))
    for name, recorded in step.records.read_outcomes(step.records.list_outcomes()):
        if recorded is not None:
            state.tally.add_task(recorded.report)
            is_member = name.startswith(MEMBER) or recorded.report.kind is not TaskKind.SLICE
            state.tally.add_all(recorded.outcomes if is_member else (), name)
    return state


def _read_state(step: Step, plan: PlanSummary, state: RunState) -> RunState:
    records = step.records
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
    settled: set[int] = set()
    for name, found in records.read_outcomes(one for one in known if one.startswith(MEMBER)):
        if found is not None:
            settled.update(outcome.index for outcome in found.outcomes)
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
