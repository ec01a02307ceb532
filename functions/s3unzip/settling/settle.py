"""Report: read what every task said, finish what several tasks share, and judge the run.

``report.json`` is written last, after its page. What is left to do, if anything, is written
to ``redo.jsonl`` first: tasks without complete outcomes, and streams of
members whose slices did not hold.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.estimate import Cost, Estimate, price_run
from s3unzip.extraction.split.slices import finish_members
from s3unzip.model import (
    Outcome,
    PlanSummary,
    Report,
    Requests,
    Run,
    Settled,
    Status,
    Stop,
    Task,
    Verdict,
    encode,
)
from s3unzip.objects.metadata import marker_metadata
from s3unzip.objects.upload_registry import abort_leftovers
from s3unzip.planning.keys import marker_key
from s3unzip.runs.step import Step
from s3unzip.runs.stop import RUN_FAULTS, stop_for
from s3unzip.settling.after_success import source_result
from s3unzip.settling.page_writer import estimate_plan, page_of
from s3unzip.settling.plan_tasks import PlanTasks, SliceOutcomes
from s3unzip.settling.retry import read_retries
from s3unzip.settling.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from s3unzip.context import Context
    from s3unzip.runs.records import RunRecords
    from s3unzip.settling.retry import Retries
    from s3unzip.stores.calls import Calls

TASKS_FAILED = "tasks-failed"  # reason of a run whose tasks did not all end


def settle(
    run: Run,
    context: Context,
    calls: Calls | None = None,
    before_report: Callable[[], None] | None = None,
    *,
    in_rounds: bool = False,
) -> Settled:
    """Finish split members, write ``report.json``, and say how many tasks are left.

    Running it again is harmless: it reads what is there and judges anew.

    Args:
        run: the run.
        context: of this worker.
        calls: whose requests count as this report's; None: none was made yet.
        before_report: called last before the report is written; what it raises prevents that.
        in_rounds: whether a later round does what is left. The report then says that the run
            continues.

    Raises:
        ServiceFaultError: try again later.
    """
    step = Step(run, "report", context, calls or context.calls())
    records = step.records
    summary, earlier, stop, retries = _read_first(records)
    changed = stop is not None and stop.verdict is Verdict.SOURCE_CHANGED
    tally = Tally(context.tuning.failures_listed, retried=retries.outcomes.keys())
    plan = PlanTasks(summary, records)
    for outcome in records.index_outcomes() if summary.failed else ():
        tally.add(outcome, run_files.INDEX_TASK)
    left = _tally_tasks(step, tally, plan.look(records.tasks()), plan.slices)
    left, met = (left, None) if changed else _try_split(step, tally, plan, left)
    left += _tally_retries(retries, tally)
    tally.add_scans(records.scan_reports() if summary.scans else [])
    if summary.split_members:
        tally.requests += records.find_link_cost()
    if changed:
        left = []
    _list_left(step, left, met)
    judged = _judge(step, summary, tally, met or stop, left, retries.left)
    judged = replace(judged, after_success=source_result(run, judged, earlier))
    judged = _continue(judged, len(left) if in_rounds else 0)
    made = estimate_plan(plan.tasks, summary, context) if not left else None
    if judged.verdict is Verdict.COMPLETED and run.options.marker:
        _write_marker(step, judged)
    if before_report is not None:
        before_report()
    report = _write_report(step, earlier, judged, made)
    return Settled(report, len(left))


def _read_first(records: RunRecords) -> tuple[PlanSummary, Report | None, Stop | None, Retries]:
    """Read what is known before any outcome, all at the same time."""
    with ThreadPoolExecutor(4, thread_name_prefix="report") as pool:
        summary = pool.submit(records.read_summary)
        earlier = pool.submit(records.find_latest_report)
        stop = pool.submit(records.find_stop)
        retries = pool.submit(read_retries, records)
        return summary.result(), earlier.result(), stop.result(), retries.result()


def _list_left(step: Step, left: Sequence[Task], met: Stop | None) -> None:
    """List the tasks that are left; where there are none, abort the uploads that are."""
    if left:
        step.records.write_redo(left)
    elif met is None:  # else a redrive completes the uploads
        abort_leftovers(step)


def _write_report(
    step: Step, earlier: Report | None, judged: Report, made: Estimate | None
) -> Report:
    """Write the report with all requests of the run in it, those of earlier reports among them."""
    before = earlier.settling if earlier is not None else Requests()

    def make(requests: Requests) -> Report:
        settling = before + requests
        report = replace(judged, requests=judged.requests + settling, settling=settling)
        return _with_money(report, made, price_run(report, step.context.platform))

    return step.records.write_page_and_report(make, lambda report: page_of(report, step.context))


def _tally_tasks(
    step: Step, tally: Tally, tasks: Iterable[Task], slices: SliceOutcomes
) -> list[Task]:
    """Add up the tasks of the plan; return those that are not complete.

    What is on record of tasks of split members is kept in `slices`.
    """
    left: list[Task] = []
    for task, found in step.records.outcomes_of(tasks):
        if found is not None:
            tally.add_task(found.report)
            for outcome in found.outcomes if task.parts == 1 else []:
                tally.add(outcome, task.id)
        if task.parts > 1:
            slices.keep(task, found)
        if found is None or not found.complete:
            left.append(task)
    return left


def _tally_retries(retries: Retries, tally: Tally) -> list[Task]:
    """Add what the retries came to; return their tasks that are not complete."""
    for report in retries.reports:
        tally.add_task(report)
    for task, outcome in retries.outcomes.values():
        tally.add_last(outcome, task)
    return retries.left


def _try_split(
    step: Step, tally: Tally, plan: PlanTasks, left: list[Task]
) -> tuple[list[Task], Stop | None]:
    """Do `_tally_split`; return what is left, and what was met that stops the run.

    It is not raised: the report must be written and name it.
    """
    try:
        return _tally_split(step, tally, plan, left), None
    except RUN_FAULTS as fault:
        stop = stop_for(fault)
        step.records.write_stop(stop)
        return left, stop


def _tally_split(step: Step, tally: Tally, plan: PlanTasks, left: list[Task]) -> list[Task]:
    """Finish members over several tasks; return what is left in all."""
    streams: list[Task] = []
    for found in finish_members(step, plan.split, plan.slices.find):
        if isinstance(found, Outcome):
            tally.add(found, "finish")
            if found.status is Status.EXTRACTED:
                tally.first_object = tally.first_object or step.context.clock.now()
            continue
        streams.append(found)
    done_whole = {task.rows for task in streams}
    if streams:
        left = left + _tally_tasks(step, tally, streams, plan.slices)
    # The slices of a member that is streamed whole are not worth doing any more.
    return [t for t in left if t.parts == 1 or t.rows not in done_whole]


def _judge(
    step: Step,
    summary: PlanSummary,
    tally: Tally,
    stop: Stop | None,
    left: Sequence[Task],
    unretried: Sequence[Task],
) -> Report:
    run = step.run
    missing = summary.failed + summary.selected - tally.members
    verdict, reason, message = _verdict(tally, stop, missing, unretried)
    if message is None and summary.excluded and not summary.selected:
        message = f"nothing is selected: the options exclude all {summary.excluded:,} members"
    return Report(
        run=run.id,
        verdict=verdict,
        source=run.source.public,
        pin=run.pin,
        destination=run.destination,
        options=run.options,
        reason=reason,
        message=message,
        members=summary.members,
        directories=summary.directories,
        excluded=summary.excluded,
        extracted=tally.counts[Status.EXTRACTED],
        unchanged=tally.counts[Status.UNCHANGED],
        failed=tally.counts[Status.FAILED],
        missing=missing,
        reasons=dict(tally.reasons.most_common()),
        warnings=dict(tally.warnings + Counter(summary.warnings)),
        failures=tuple(tally.failures),
        tasks=summary.tasks,
        tasks_failed=len(left),
        bytes_in=tally.bytes_read + summary.bytes_read,
        bytes_out=tally.bytes_written,
        requests=tally.requests + summary.requests,
        event_time=run.event_time,
        started=summary.started,
        finished=step.context.clock.now(),
        plan_seconds=summary.plan_seconds,
        task_seconds=round(tally.task_seconds, 6),
        first_object=tally.first_object,
        forecast_seconds=summary.seconds,
    )


def _verdict(
    tally: Tally, stop: Stop | None, missing: int, unretried: Sequence[Task]
) -> tuple[Verdict, str | None, str | None]:
    failed = tally.counts[Status.FAILED]
    if stop is not None and stop.reason != TASKS_FAILED and (missing or (failed and unretried)):
        return stop.verdict, stop.reason, stop.message
    cause = stop.message if stop is not None else "their tasks did not end"
    if missing:
        shown = "1 member has" if missing == 1 else f"{missing:,} members have"
        return Verdict.FAILED, TASKS_FAILED, f"{shown} no outcome: {cause}"
    if failed and unretried and stop is not None:
        again = sum(task.members for task in unretried)
        shown = "1 member was" if again == 1 else f"{again:,} members were"
        return Verdict.FAILED, TASKS_FAILED, f"{shown} not tried again: {cause}"
    if failed:
        return Verdict.COMPLETED_WITH_ERRORS, None, None
    return Verdict.COMPLETED, None, None


def _continue(judged: Report, left: int) -> Report:
    """Return the report of a run of which a later round does so many tasks, if any."""
    if not left:
        return judged
    if judged.reason == TASKS_FAILED:  # not yet
        message = f"tasks left: {left:,}; the run continues"
        judged = replace(judged, reason=None, message=message)
    return replace(judged, continues=True)


def _with_money(report: Report, made: Estimate | None, cost: Cost | None) -> Report:
    """Return the report with what was estimated and what it cost, where that is known."""
    if made is not None:
        report = replace(
            report,
            forecast_seconds=round(made.duration.expected, 3),
            forecast_cost=made.cost.total,
        )
    return report if cost is None else replace(report, cost=cost.total)


def _write_marker(step: Step, report: Report) -> None:
    key = marker_key(step.run.key_prefix)
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    facts = marker_metadata(step.run)
    step.calls.run("put", lambda: step.destination.put(key, body, facts, if_absent=False))
