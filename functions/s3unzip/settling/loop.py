"""The loop of a run: `begin` plans it, `settle` ends a round and gives the next one, or the report.

The same functions run on one machine, in the intake function for a small archive, and as states of
the state machine. A round is a list of tasks. Later rounds have the tasks that did not end, the
slices of scanned members, members whose slices did not fit and are streamed, and what a person
resumes.

The rules of the loop:

- Each step may be repeated, late or concurrently with another: it reads what is on record and
  decides again. ``run.json`` is the last record of a plan, so a plan that exists is complete.
- A step that is cut off leaves records that the next one completes. A task without a whole record
  is in the next round; three rounds without progress end the run.
- Each run that ends has a verdict, written by `settling.verdicts`.
- Records that cannot be read end the run as FAILED, with that reason. When such a
  run is resumed, it begins anew: its records except the report are deleted, and it is planned
  again. Members that were written are written again, with the same bytes.
- Records of another archive under the run's id are an error: two archives have the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import NotFoundError, UnreadableRecordError
from s3unzip.extraction.split_members import link_member
from s3unzip.model import (
    AfterSuccess,
    Next,
    Outcome,
    Pin,
    PlanSummary,
    Report,
    Request,
    Run,
    Status,
    Stop,
    Task,
    Verdict,
)
from s3unzip.planning.cut import choose_workers, order_tasks
from s3unzip.planning.plan import Plan, make_plan
from s3unzip.planning.reading import Reading, read_tail
from s3unzip.run_ids import check_same_archive, run_id
from s3unzip.runs.records import PAGE, RECORD_UNREADABLE, REPORT, RunRecords, round_name
from s3unzip.runs.step import RUN_FAULTS, SOURCE_CHANGED, Step, stop_for
from s3unzip.settling.report import make_report, write_marker
from s3unzip.settling.results import (
    Results,
    do_split_members,
    drop_slices,
    drop_uploads,
    forget_outcomes,
    read_results,
    record_member,
)
from s3unzip.settling.source_actions import source_result
from s3unzip.settling.verdicts import WrittenVerdict, write_verdict
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail
from s3unzip.zip import ByteRange

MAX_IDLE_ROUNDS = 3  # consecutive rounds in which no task ended
EXECUTION_FAILED = "execution-failed"  # the reason of a run whose execution failed
NOTHING_DONE = -1  # below every count of ended tasks, so the first round after a resume is not idle
NOT_READABLE = "not-readable"  # the reason of a run whose archive the store refuses to give


class Settled(NamedTuple):
    """The result of `begin`, `resume` or `settle`."""

    next: Next
    report: Report | None = None  # of a run that ended
    is_first: bool = True  # whether the run had no report before


class KnownArchive(Struct, frozen=True):
    """What the caller knows of the archive of a run; None: the caller does not know it."""

    run: str | None = None  # the id of the run
    pin: Pin | None = None
    tail: Tail | None = None


def begin(
    request: Request,
    context: Context,
    archive: KnownArchive | None = None,
    calls: Calls | None = None,
    *,
    check: Callable[[Reading], None] | None = None,
    planned: Callable[[Plan], None] | None = None,
) -> Settled:
    """Plan a run and write its first round; a run that was planned goes on where it stopped.

    Args:
        archive: what the caller knows of the archive's version.
        calls: of this step so far; None: it begins here.
        check: receives the directory that was read, before anything is written; it may raise.
        planned: receives the plan before it is written; it may raise.
    """
    archive = archive or KnownArchive()
    calls = calls or context.calls()
    began = context.clock.now()
    begins_anew = False
    if archive.run is not None:
        recorded = look_up_run(RunRecords.open(context.stores, archive.run, calls))
        check_same_archive(archive.run, request.source, archive.pin, recorded.run)
        settled = _continue_recorded(recorded, archive.run, context, calls)
        if settled is not None:
            return settled
        begins_anew = recorded.begins_anew
    current = _find_current(request, archive, context, calls)
    records = RunRecords.open(context.stores, current.run, calls)
    if current.tail is None:
        stop = Stop(Verdict.SOURCE_CHANGED, SOURCE_CHANGED, current.change)
        refusal = _unplanned(request, records.run, archive.pin, stop, now=context.clock.now())
        return _refuse(refusal, records, context, began, returns_refusal=archive.run is None)
    # Outcomes without a plan are left from a plan that was cut off or cannot be read.
    if archive.run is not None and (begins_anew or records.list_outcomes()):
        records.forget(keep=(REPORT, PAGE))
    plan = make_plan(
        request, current.tail, records=records, context=context, calls=calls, check=check
    )
    if not isinstance(plan, Plan):
        return _refuse(plan, records, context, began, returns_refusal=archive.run is None)
    if planned is not None:
        planned(plan)
    settled = _write_plan(plan, records, context, calls)
    if begins_anew:  # earlier workers may have left uploads
        planning = Step(plan.summary.run, "plan", context, calls)
        drop_uploads(planning, read_results(planning, plan.summary))
    return settled


def _continue_recorded(
    recorded: RecordedRun, run: str, context: Context, calls: Calls
) -> Settled | None:
    """Continue a run that was planned, or return the report of one that was refused.

    Returns None if the run must be planned: it has no plan, or one that cannot be read.
    """
    if recorded.plan is not None and not recorded.begins_anew:
        return resume(run, context, calls)
    report = recorded.report
    if report is not None and report.verdict is not Verdict.FAILED:  # it was refused
        return Settled(Next(run, "done"), report, is_first=False)
    return None


def _refuse(
    refusal: Report, records: RunRecords, context: Context, began: float, *, returns_refusal: bool
) -> Settled:
    """End a run that has no plan.

    Args:
        refusal: its report.
        records: of the run.
        context: of this step.
        began: when this step began, in Unix seconds.
        returns_refusal: whether the caller gets the refusal even if a better report of an earlier
            run with this id stays on record.
    """
    written = write_verdict(lambda _: refusal, records, began, page_for=context)
    report = refusal if returns_refusal else written.report
    return Settled(Next(refusal.run, "done"), report, is_first=written.is_first)


class _CurrentArchive(NamedTuple):
    run: str  # the id of its run
    tail: Tail | None  # None: the version that the caller knows is gone or replaced
    change: str = ""  # what happened to that version


def _find_current(
    request: Request, archive: KnownArchive, context: Context, calls: Calls
) -> _CurrentArchive:
    """Read the end of the current archive, and compare its version with the known one."""
    try:
        tail = archive.tail or read_tail(
            context.stores.source(request.source), request.source, context, calls
        )
    except NotFoundError as gone:
        if archive.run is None or archive.pin is None:
            raise
        return _CurrentArchive(archive.run, tail=None, change=str(gone))
    run = archive.run or run_id(request, tail.pin, tail.modified)
    if archive.pin is not None and archive.pin != tail.pin:
        newer = "another version is there now; its own event starts its run"
        return _CurrentArchive(run, tail=None, change=f"{request.source}: {newer}")
    return _CurrentArchive(run, tail)


class RecordedRun(NamedTuple):
    """The records of a run; None: the record does not exist or cannot be read."""

    plan: PlanSummary | None
    report: Report | None
    begins_anew: bool  # whether it must be planned anew, because its records cannot be read

    @property
    def run(self) -> Run | Report | None:
        """The record that names the archive, the destination and the options."""
        if self.plan is None:
            return self.report
        return self.plan.run


def look_up_run(records: RunRecords) -> RecordedRun:
    """Return the plan and the report of a run."""
    report = records.find_report()
    try:
        plan = records.find_plan()
    except UnreadableRecordError:
        return RecordedRun(plan=None, report=report, begins_anew=True)
    begins_anew = report is not None and report.reason == RECORD_UNREADABLE
    return RecordedRun(plan, report, begins_anew)


def _unplanned(request: Request, run: str, pin: Pin | None, stop: Stop, *, now: float) -> Report:
    """Return the report of a run that has no plan."""
    return Report.of(
        run,
        request,
        pin,
        stop.verdict,
        reason=stop.reason,
        message=stop.message,
        started=now,
        finished=now,
    )


def _write_plan(plan: Plan, records: RunRecords, context: Context, calls: Calls) -> Settled:
    """Write the first round and the plan; a run without tasks is settled at once.

    First, the upload of each member that is copied in slices is created. If a fault ends the run
    there, the stop is recorded, and the copies stay in the round: settling links them later.
    """
    tasks = list(plan.tasks)
    done = plan.summary.failed  # members that have their outcome
    try:
        for _, copies in groupby(plan.copies, key=lambda task: task.rows):
            linked = _link_copies(Step(plan.summary.run, "plan", context, calls), list(copies))
            tasks += linked
            if not linked:  # the member has its outcome
                done += 1
    except RUN_FAULTS as fault:
        records.write_stop(stop_for(fault))
        tasks += plan.copies
    records.write_round(0, tasks)
    stores = {}
    if context.reached is not None:
        stores = msgspec.to_builtins(context.reached.recorded())
    records.write_plan(replace(plan.summary, requests=calls.requests, stores=stores))
    if not tasks:
        return settle(Next(plan.summary.run.id, "few"), context, calls)
    return Settled(replace(_state_for_round(records, tasks, number=0, context=context), done=done))


def _link_copies(step: Step, copies: Sequence[Task]) -> Sequence[Task]:
    """Return the tasks of a stored member that is copied in slices; empty if it has its outcome."""
    linked = link_member(step, copies)
    if not isinstance(linked, Outcome):
        return linked
    if linked.status is not Status.FAILED:
        record_member(step, linked)
        return ()
    # Give the whole member to one task: the task finds the same fault, and can be repeated.
    size = sum(task.size for task in copies)
    return [
        replace(
            copies[0],
            id=f"copy-{linked.index:08d}",
            part=0,
            parts=1,
            span=(0, size),
            size=size,
            seconds=sum(task.seconds for task in copies),
        )
    ]


def resume(
    run: str,
    context: Context,
    calls: Calls | None = None,
    *,
    failed: bool = False,
    after_success: AfterSuccess | None = None,
) -> Settled:
    """Continue a run that stopped, or one that ended with failed members.

    Args:
        run: the id of the run.
        context: the stores, the clock and the limits.
        calls: of this step so far; None: it begins here.
        failed: whether to extract the failed members again.
        after_success: the rule for the archive; it applies if the run has a report but no plan.
    """
    calls = calls or context.calls()
    records = RunRecords.open(context.stores, run, calls)
    recorded = look_up_run(records)
    earlier = recorded.run
    if earlier is not None and (recorded.plan is None or recorded.begins_anew):
        # The plan of a small archive was only in memory, or the records cannot be read.
        return begin(
            repeat_request(earlier, after_success), context, KnownArchive(run, earlier.pin), calls
        )
    plan = recorded.plan or records.read_plan()  # raises if the run has no records
    step = Step(plan.run, "resume", context, calls)
    if failed:
        step.calls.read(step.archive, ByteRange(0, 1))  # raises if the archive is gone
    records.delete_stop()
    try:
        if failed:
            forget_outcomes(step, lambda outcome: outcome.status is Status.FAILED)
        results = read_results(step, plan)
        drop_uploads(step, results)
    except UnreadableRecordError as damage:
        results = read_results(step, plan)  # of the records that can be read
        results.stop = stop_for(damage)
    last_round = len(records.list_rounds()) - 1  # rounds are numbered from 0
    resumed = Next(run, "few", last_round, done=NOTHING_DONE, reopened=failed)
    return _finish_round(step, plan, results, resumed)


def repeat_request(run: Run | Report, after_success: AfterSuccess | None) -> Request:
    """Return the request of a recorded run; a report does not name its rule for the archive."""
    if isinstance(run, Run):
        return run.request
    if run.options.nested_budget is not None:  # a nested archive is an extracted member: it stays
        after_success = None
    return Request(
        run.source,
        run.destination,
        run.options,
        event_time=run.event_time,
        after_success=after_success,
        route=run.route,
    )


def settle(state: Next, context: Context, calls: Calls | None = None) -> Settled:
    """Read the results of a round; write the next round, or the report.

    Args:
        state: what `begin` or the last `settle` returned.
        context: the stores, the clock and the limits.
        calls: of this step so far; None: it begins here.
    """
    calls = calls or context.calls()
    plan = RunRecords.open(context.stores, state.run, calls).require_plan()
    step = Step(plan.run, "settle", context, calls)
    return _finish_round(step, plan, read_results(step, plan), state)


class FailedExecution(Struct, frozen=True):
    """An execution, or a run on one machine, that ended without a verdict."""

    run: str
    stop: Stop  # why it ended, unless the records say it
    began: float  # Unix seconds
    ended: float  # Unix seconds
    request: Request | None = None  # from its input, for a run without a plan
    pin: Pin | None = None  # from its input


def settle_failed(failed: FailedExecution, context: Context) -> WrittenVerdict | None:
    """Report a run whose execution failed or was stopped; None: nothing is known of the run.

    The report has the time at which the execution ended, so it does not replace a newer one.
    """
    calls = context.calls()
    records = RunRecords.open(context.stores, failed.run, calls)
    stop = failed.stop
    plan = None
    try:
        plan = records.find_plan()
    except UnreadableRecordError as damage:
        stop = stop_for(damage)
    if plan is not None:
        report = _report_planned(failed, plan, context, calls)
    elif failed.request is not None:
        report = _unplanned(failed.request, failed.run, failed.pin, stop, now=context.clock.now())
    else:
        recorded = records.find_report()
        if recorded is None:
            return None
        return WrittenVerdict(recorded, is_first=False)
    report = replace(report, finished=failed.ended)
    # A FAILED report replaces one that is older than the execution. Another verdict comes from the
    # records, and replaces only a worse one.
    since = failed.began if report.verdict is Verdict.FAILED else 0.0
    return _write_settled(report, plan, records, context, since=since)


def _report_planned(
    failed: FailedExecution, plan: PlanSummary, context: Context, calls: Calls
) -> Report:
    """Return the report of a run that has a plan.

    A recorded stop is preferred to `failed.stop`, because it is more precise.
    """
    if failed.request is not None:
        check_same_archive(failed.run, failed.request.source, failed.pin, plan.run)
    step = Step(plan.run, "settle", context, calls)
    results = read_results(step, plan)
    return make_report(
        step,
        plan,
        results.tally,
        results.stop or step.records.find_stop() or failed.stop,
        unfinished=len(results.unfinished),
    )


def _write_settled(
    report: Report,
    plan: PlanSummary | None,
    records: RunRecords,
    context: Context,
    *,
    since: float,
    reopened: bool = False,
) -> WrittenVerdict:
    """Write the verdict of a run; with a plan, add the action on the archive to the report."""

    def compose(earlier: Report | None) -> Report:
        if plan is None:
            return report
        return replace(report, after_success=source_result(plan.run, report, earlier))

    return write_verdict(compose, records, since, page_for=context, reopened=reopened)


def _finish_round(step: Step, plan: PlanSummary, results: Results, state: Next) -> Settled:
    """Write the next round if tasks remain; otherwise write the report and end the run.

    First, split members are linked or finished: `results` gets their new tasks and outcomes. The
    run also ends if it has a stop, or after `MAX_IDLE_ROUNDS` rounds without progress.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: of the rounds so far.
        state: the round that ended.
    """
    stop = results.stop or step.records.find_stop()
    idle = 0 if results.done > state.done else state.idle + 1
    if stop is None and idle < MAX_IDLE_ROUNDS:
        stop = _advance_split_members(step, results)
        if stop is None and results.unfinished:
            number = state.round + 1
            step.records.write_round(number, order_tasks(results.unfinished))
            following = _state_for_round(step.records, results.unfinished, number, step.context)
            return Settled(
                replace(
                    following,
                    done=max(0, results.done),
                    idle=idle,
                    requests=state.requests + step.calls.requests,
                    reopened=state.reopened,
                )
            )
    # All tasks have ended, so each member must have an outcome.
    if stop is None and not results.unfinished and not results.waiting:
        stop = _find_lost(plan, results)
    return _end_run(step, plan, results, state, stop=stop)


def _advance_split_members(step: Step, results: Results) -> Stop | None:
    """Link or finish split members; if a fault ends the whole run, record and return its stop."""
    try:
        results.unfinished += do_split_members(step, results)
        results.to_link.clear()
        results.to_finish.clear()
    except RUN_FAULTS as fault:
        stop = stop_for(fault)
        step.records.write_stop(stop)
        return stop
    return None


def _end_run(
    step: Step, plan: PlanSummary, results: Results, state: Next, *, stop: Stop | None
) -> Settled:
    """Write the report of a run.

    First, the uploads that no task needs are aborted, and the marker is written if the run is
    complete and has that option.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: of all rounds.
        state: the round that ended.
        stop: why the run ends early; None: nothing stopped it.
    """
    # After the first round, an attempt that was repeated may have left an upload.
    if state.round and stop is None:
        drop_uploads(step, results)
    if stop is not None and stop.verdict is Verdict.SOURCE_CHANGED:
        drop_slices(step, results)
    report = make_report(
        step,
        plan,
        results.tally,
        stop,
        unfinished=len(results.unfinished) + len(results.waiting),
        requests=state.requests,
        rounds=state.round + 1,
    )
    if report.verdict is Verdict.COMPLETED and plan.run.options.marker:
        write_marker(step, report)
    return Settled(
        Next(plan.run.id, "done"),
        *_write_settled(
            report, plan, step.records, step.context, since=step.started, reopened=state.reopened
        ),
    )


def _find_lost(plan: PlanSummary, results: Results) -> Stop | None:
    """Return a stop if some members are in no recorded task; None: each is in one."""
    lost = plan.failed + plan.selected - results.tally.members
    if lost <= 0:
        return None
    return Stop(
        Verdict.FAILED,
        RECORD_UNREADABLE,
        f"{plan.run.id}: {lost:,} members are in no task: a record of a round is damaged",
    )


def _state_for_round(
    records: RunRecords, tasks: Sequence[Task], number: int, context: Context
) -> Next:
    """Return the state for a round: a few tasks are in it, many are in the list of the round."""
    workers = choose_workers(tasks, context.tuning)
    if len(tasks) <= context.tuning.max_few_tasks:
        return Next(records.run, "few", number, tuple(tasks), workers=workers)
    return Next(records.run, "many", number, list=round_name(number), workers=workers)
