"""The loop of a run: `begin_run` plans it; `settle` writes the next round or the report.

The same functions run on one machine, in the intake function for a small archive, and as states of
the state machine. A round is a list of tasks. Later rounds contain the tasks that did not end, the
slices of scanned members, tasks that stream a member because its segments or slices do not fit
together, and the tasks of a run that a user resumes.

Rules for the loop:

- A step can be repeated late or concurrently with another step. Each step reads the records and
  decides again. ``run.json`` is the last record of a plan, so a plan that exists is complete.
- A step that is interrupted leaves records that the next step completes. A task without a complete
  record is repeated in the next round; three rounds without progress end the run.
- Each run that has ended has a report with a verdict, written by `settling.report`.
- If records cannot be read, the run ends as FAILED for this reason. When such a run is resumed,
  it begins anew: its records except the report are deleted, and it is planned again. Members that
  were written are kept or overwritten with the same bytes (`on_conflict`).
- If records under a run's id belong to another archive, two runs share the id: this is an error.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import NotFoundError, SourceChangedError, UnreadableRecordError
from s3unzip.model import (
    AfterSuccess,
    Next,
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
from s3unzip.runs.records import PAGE, RECORD_UNREADABLE, REPORT, STOP, RunRecords
from s3unzip.runs.step import RUN_FAULTS, Step, stop_for
from s3unzip.settling.report import (
    make_report,
    report_planned,
    report_unplanned,
    write_marker,
    write_report,
)
from s3unzip.settling.results import (
    Results,
    abort_leftover_uploads,
    abort_split_uploads,
    do_split_members,
    forget_outcomes,
    link_copies,
    read_results,
    read_results_to_resume,
)
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail
from s3unzip.zip import ByteRange

MAX_IDLE_ROUNDS = 3  # the run ends after this many consecutive rounds without progress
EXECUTION_FAILED = "execution-failed"  # reason code of a run whose execution failed
NOTHING_DONE = -1  # `Next.done` of a resumed run, so that the first round counts as progress


class StepResult(NamedTuple):
    """The result of a step of the loop: `begin_run`, `resume` or `settle`."""

    next: Next
    report: Report | None = None  # the report of a run that has ended
    is_first: bool = True  # whether the run had no report before
    is_own: bool = True  # if False, another invocation of the intake function wrote the report


class KnownArchive(Struct, frozen=True):
    """What the caller of `begin_run` knows about an archive; unknown values are None."""

    run: str | None = None  # the id of the archive's run
    pin: Pin | None = None  # the version that the run must read
    tail: Tail | None = None  # the end of the archive, if it has been read


def begin_run(
    request: Request,
    context: Context,
    archive: KnownArchive | None = None,
    calls: Calls | None = None,
    *,
    check: Callable[[Reading], None] | None = None,
    planned: Callable[[PlanSummary], None] | None = None,
) -> StepResult:
    """Plan a run and write its first round; a run that has a plan continues where it stopped.

    Args:
        request: the archive, the destination and the options.
        context: the stores, the clock and the limits.
        archive: what the caller knows about the archive; None if it knows nothing.
        calls: counts the requests of this step; None if the step has sent no requests yet.
        check: called with the directory before anything is written; it may raise an error.
        planned: called with the summary of the plan before it is written; it may raise an error.
    """
    archive = archive or KnownArchive()
    calls = calls or context.calls()
    began = context.clock.now()
    begins_anew = False
    if archive.run is not None:
        recorded = look_up_run(RunRecords.open(context.stores, archive.run, calls))
        check_same_archive(archive.run, request.source, archive.pin, recorded.run_or_report)
        begins_anew = recorded.begins_anew
        if recorded.plan is not None and not begins_anew:
            return resume(archive.run, context, calls)
        report = recorded.report
        if report is not None and report.verdict is not Verdict.FAILED:
            # The run is over. A small or refused archive leaves a report, but no plan.
            return StepResult(Next(archive.run, "done"), report, is_first=False)
    plan = _plan_archive(request, archive, context, calls, begins_anew=begins_anew, check=check)
    if isinstance(plan, Report):
        report, is_first = write_report(
            plan, RunRecords.open(context.stores, plan.run, calls), began, renderer=context
        )
        if archive.run is None:  # return the new refusal, even if a better report is recorded
            report = plan
        return StepResult(Next(plan.run, "done"), report, is_first=is_first)
    if planned is not None:
        planned(plan.summary)
    first_round = _write_plan(plan, context, calls)
    if begins_anew:  # earlier workers may have left uploads to the keys of large members
        step = Step(plan.summary.run, context, calls)
        results = read_results(step, plan.summary)
        abort_leftover_uploads(step, results.large, results.uploads)
    return first_round


def _plan_archive(
    request: Request,
    archive: KnownArchive,
    context: Context,
    calls: Calls,
    *,
    begins_anew: bool,
    check: Callable[[Reading], None] | None,
) -> Plan | Report:
    """Return the plan of an archive, or the report of a run that cannot begin.

    If `begins_anew`, or if an interrupted plan left records, only the report and page are kept.
    """
    try:
        tail = archive.tail or _read_tail(request, archive.pin, context, calls)
    except SourceChangedError as change:
        if archive.run is None:  # there is no run yet to report on
            raise
        return report_unplanned(
            archive.run, request, archive.pin, stop_for(change), now=context.clock.now()
        )
    run = archive.run or run_id(request, tail.pin, tail.modified)
    records = RunRecords.open(context.stores, run, calls)
    # `begin_run` found no usable plan, so any recorded outcomes come from an interrupted plan.
    if archive.run is not None and (begins_anew or records.recorded_task_ids()):
        records.delete_records(keep=(REPORT, PAGE))
    return make_plan(request, tail, records=records, context=context, calls=calls, check=check)


def _read_tail(request: Request, pin: Pin | None, context: Context, calls: Calls) -> Tail:
    """Return the end of the archive, which must have the version `pin` unless `pin` is None.

    Raises:
        SourceChangedError: the version `pin` was deleted or replaced.
    """
    try:
        tail = read_tail(context.stores.source(request.source), request.source, context, calls)
    except NotFoundError as gone:
        if pin is None:
            raise
        raise SourceChangedError(str(gone)) from gone
    if pin is not None and pin != tail.pin:
        raise SourceChangedError(
            f"{request.source}: the archive was replaced; the event of the new version starts "
            "another run"
        )
    return tail


class RecordedRun(NamedTuple):
    """The records of a run; None for a record that does not exist or cannot be read."""

    plan: PlanSummary | None
    report: Report | None
    begins_anew: bool  # whether the run must be planned anew, because its records cannot be read

    @property
    def run_or_report(self) -> Run | Report | None:
        """The record with the archive, the destination and the options, if there is one."""
        if self.plan is None:
            return self.report
        return self.plan.run


def look_up_run(records: RunRecords) -> RecordedRun:
    """Return the recorded plan and report of a run."""
    report = records.find_report()
    try:
        plan = records.find_plan()
    except UnreadableRecordError:
        return RecordedRun(plan=None, report=report, begins_anew=True)
    # The run may have ended because other records could not be read.
    return RecordedRun(
        plan, report, begins_anew=report is not None and report.reason == RECORD_UNREADABLE
    )


def _write_plan(plan: Plan, context: Context, calls: Calls) -> StepResult:
    """Write the first round and then the plan; settle a run without tasks immediately.

    First, each member that several tasks copy is linked: its upload is created, and the tasks copy
    slices into the upload. If a fault ends the run during the linking, the stop is recorded. The
    round then contains the copy tasks of the unlinked members, and settling links these members.
    """
    run = plan.summary.run
    records = RunRecords.open(context.stores, run.id, calls)
    tasks = list(plan.tasks)
    done = plan.summary.failed  # number of members with an outcome
    try:
        # All copy tasks of one member have the same `rows`.
        for _, copies in groupby(plan.copies, key=lambda task: task.rows):
            linked = link_copies(Step(run, context, calls), list(copies))
            tasks += linked
            if not linked:  # the member already has its outcome
                done += 1
    except RUN_FAULTS as fault:
        records.write_stop(stop_for(fault))
        linked_members = {task.member for task in tasks}
        # An unchanged member already has its outcome: `read_results` ignores its tasks.
        tasks += [task for task in plan.copies if task.member not in linked_members]
    records.write_round(0, tasks)
    stores = {}  # how later commands reach the stores
    if context.connections is not None:
        stores = to_builtins(context.connections.recorded())
    records.write_plan(replace(plan.summary, requests=calls.requests, stores=stores))
    if not tasks:  # the first round is empty, so it ends immediately
        return settle(Next(run.id, "few"), context)  # `settle` does not read "few"
    return StepResult(replace(_state_for_round(run, tasks, number=0, context=context), done=done))


def resume(
    run: str,
    context: Context,
    calls: Calls | None = None,
    *,
    failed: bool = False,
    after_success: AfterSuccess | None = None,
) -> StepResult:
    """Continue a run that stopped, or a run that ended with failed members.

    Args:
        run: the id of the run.
        context: the stores, the clock and the limits.
        calls: counts the requests of this step; None if the step has sent no requests yet.
        failed: whether to extract the failed members again.
        after_success: the action on the archive, used if the run has a report but no plan.
    """
    calls = calls or context.calls()
    records = RunRecords.open(context.stores, run, calls)
    recorded = look_up_run(records)
    earlier = recorded.run_or_report
    if earlier is not None and (recorded.plan is None or recorded.begins_anew):
        # The plan of a small archive was only in memory, or the records cannot be read.
        return begin_run(
            repeat_request(earlier, after_success), context, KnownArchive(run, earlier.pin), calls
        )
    plan = recorded.plan or records.read_plan()  # raises an error if the run has no records
    step = Step(plan.run, context, calls)
    if failed:
        step.calls.read(step.archive, ByteRange(0, 1))  # raises an error if the archive was deleted
    records.store.delete([STOP])
    try:
        if failed:
            forget_outcomes(step, lambda outcome: outcome.status is Status.FAILED)
        results = read_results_to_resume(step, plan)
    except UnreadableRecordError as damage:
        results = read_results(step, plan)  # raises no error: damaged records are left out
        results.stop = stop_for(damage)
        results.must_begin_anew = failed  # outcomes of failed members may remain, so plan again
    last_round = len(records.list_rounds()) - 1  # rounds are numbered from 0
    # `_finish_round` does not read "few".
    state = Next(run, "few", last_round, done=NOTHING_DONE, reopened=failed)
    return _finish_round(step, plan, results, state)


def repeat_request(run: Run | Report, after_success: AfterSuccess | None) -> Request:
    """Return the request that starts a run over.

    Args:
        run: the run or its report.
        after_success: the action on the archive; used only if `run` is a report, which does not
            contain the action.
    """
    if isinstance(run, Run):
        after_success = run.after_success
    elif run.options.nested_budget is not None:
        after_success = None  # only nested runs have a budget; a nested archive must be kept
    return Request(
        run.source,
        run.destination,
        run.options,
        event_time=run.event_time,
        after_success=after_success,
        route=run.route,
    )


def settle(state: Next, context: Context) -> StepResult:
    """End a round: read its results, and write the next round or the report.

    Args:
        state: the state that `begin_run` or the last `settle` returned.
        context: the stores, the clock and the limits.
    """
    calls = context.calls()
    plan = RunRecords.open(context.stores, state.run, calls).require_plan()
    step = Step(plan.run, context, calls)
    return _finish_round(step, plan, read_results(step, plan), state)


def settle_failed(  # noqa: PLR0913 - all known facts
    run: str,
    stop: Stop,
    context: Context,
    *,
    began: float,
    ended: float,
    request: Request | None = None,
    pin: Pin | None = None,
) -> tuple[Report, bool] | None:
    """Report a run whose execution failed or was stopped; return None if the run is unknown.

    A FAILED report replaces an equally good report only if the recorded report was finished before
    the execution began. `Report.finished` is the end of the execution.

    Args:
        run: the id of the run.
        stop: why the execution ended. A recorded stop takes precedence, because it is more precise.
        context: the stores, the clock and the limits.
        began, ended: when the execution was last started, and when it ended, in Unix seconds.
        request, pin: values from the input of the execution; they are reported if there is no plan.

    Returns:
        The report that is now recorded, and whether it is the first report of the run.
    """
    calls = context.calls()
    records = RunRecords.open(context.stores, run, calls)
    plan = None
    try:
        plan = records.find_plan()
    except UnreadableRecordError as damage:
        stop = stop_for(damage)
    if plan is not None:
        if request is not None:
            check_same_archive(run, request.source, pin, plan.run)
        report = report_planned(plan, stop, context, calls)
    elif request is not None:
        report = report_unplanned(run, request, pin, stop, now=began)
    else:
        recorded = records.find_report()
        if recorded is None:
            return None
        return recorded, False
    # This report replaces an equally good report that was finished by `outdated_until`. Verdicts
    # other than FAILED follow from the records, so an equally good recorded report is kept.
    outdated_until = began if report.verdict is Verdict.FAILED else 0.0
    return write_report(replace(report, finished=ended), records, outdated_until, renderer=context)


def _finish_round(step: Step, plan: PlanSummary, results: Results, state: Next) -> StepResult:
    """Write the next round if tasks remain; otherwise, write the report and end the run.

    First, split members are linked or finished, which adds tasks and outcomes to `results`.
    The run also ends if a stop is recorded, or after `MAX_IDLE_ROUNDS` rounds without progress.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: the results of the rounds so far.
        state: the state of the round that ended.
    """
    stop = results.stop or step.records.find_stop()
    idle = 0 if results.done > state.done else state.idle + 1
    is_stuck = idle >= MAX_IDLE_ROUNDS
    if stop is None and not is_stuck:
        try:
            do_split_members(step, results)
        except RUN_FAULTS as fault:
            stop = stop_for(fault)
            step.records.write_stop(stop)
    if stop is not None or is_stuck or not results.unfinished:
        return _end_run(step, plan, results, state, stop=stop)
    number = state.round + 1
    step.records.write_round(number, order_tasks(results.unfinished))
    return StepResult(
        replace(
            _state_for_round(step.run, results.unfinished, number, step.context),
            done=results.done,
            idle=idle,
            requests=state.requests + step.calls.requests,
            reopened=state.reopened,
        )
    )


def _end_run(
    step: Step, plan: PlanSummary, results: Results, state: Next, *, stop: Stop | None
) -> StepResult:
    """Abort the uploads that are not needed, write the marker of a complete run, then the report.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: the results of all rounds.
        state: the state of the last round.
        stop: why the run ends early; None if nothing stopped it.
    """
    # From the second round on, tasks are repeated, so earlier attempts may have left uploads. After
    # a stop, all uploads remain: `resume` continues those of split members and aborts the others.
    if state.round and stop is None:
        abort_leftover_uploads(step, results.large, results.uploads)
    if stop is not None and stop.verdict is Verdict.SOURCE_CHANGED:  # cannot be resumed
        abort_split_uploads(step, results)
    report = make_report(step, plan, results, stop, requests=state.requests, rounds=state.round + 1)
    if report.verdict is Verdict.COMPLETED and plan.run.options.marker:
        write_marker(step, report)
    report, is_first = write_report(
        report, step.records, step.started, renderer=step.context, reopened=state.reopened
    )
    return StepResult(Next(plan.run.id, "done"), report, is_first=is_first)


def _state_for_round(run: Run, tasks: Sequence[Task], number: int, context: Context) -> Next:
    """Return the state before a round, which contains the tasks unless there are many."""
    workers = choose_workers(tasks, context.tuning, run.destination.store)
    if len(tasks) <= context.tuning.max_few_tasks:
        return Next(run.id, "few", number, tuple(tasks), workers=workers)
    return Next(run.id, "many", number, workers=workers)
