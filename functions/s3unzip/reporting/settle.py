"""Report: read what every task said, finish what several tasks share, and judge the run.

``report.json`` is written last, after its page. What is left to do, if anything, is written
to ``redo.jsonl`` first: tasks without complete outcomes, and streams of
members whose slices did not hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.extraction.split.finish import finish_members
from s3unzip.model import (
    Failure,
    Outcome,
    PlanSummary,
    Report,
    Requests,
    Run,
    ScanReport,
    Settled,
    Status,
    Stop,
    Task,
    TaskReport,
    Verdict,
    decode,
    encode,
)
from s3unzip.objects.upload_registry import abort_leftovers
from s3unzip.planning.keys import marker_key
from s3unzip.reporting.page_writer import (
    Columns,
    forecast_plan,
    price_run,
    read_scans,
    write_page,
)
from s3unzip.reporting.retry import read_retries
from s3unzip.runs.outcomes import iterate_lines
from s3unzip.runs.records import planned_tasks, read_records
from s3unzip.runs.stop import read_stop
from s3unzip.stores.ports import ObjectFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.forecast import Cost, Forecast
    from s3unzip.reporting.retry import Retries
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import RunStore

TASKS_FAILED = "tasks-failed"  # reason of a run whose tasks did not all end


def settle(run: Run, context: Context) -> Settled:
    """Finish split members, write ``report.json``, and say how many tasks are left.

    Running it again is harmless: it reads what is there and judges anew.

    Raises:
        ServiceFaultError: try again later.
    """
    calls = context.calls()
    work = context.stores.run_store(run.id, calls)
    summary = decode(work.read(run_files.SUMMARY), PlanSummary)
    tally = Tally(context.tuning.failures_listed)
    stop = read_stop(work)
    retries = read_retries(work)
    tally.retried = retries.outcomes.keys()
    left = _tally_tasks(work, tally)
    if stop is None or stop.verdict is not Verdict.SOURCE_CHANGED:
        left = _tally_split(run, work, tally, left, context, calls)
    _tally_retries(retries, tally)
    tally.add_scans(read_scans(work) if summary.scans else [])
    left += retries.left
    changed = stop is not None and stop.verdict is Verdict.SOURCE_CHANGED
    if left and not changed:
        work.write(run_files.REDO, [encode(task) + b"\n" for task in left])
    else:
        left = []
        abort_leftovers(run, work, context, calls)
    report = _judge(run, summary, tally, stop, left, context)
    cost = price_run(report, tally.columns, context)
    forecast = forecast_plan(work, summary, context) if not left else None
    report = _with_money(report, forecast, cost)
    if report.verdict is Verdict.COMPLETED and run.options.marker:
        _write_marker(run, report, context, calls)
    write_page(work, report, summary, tally.columns, forecast, cost)
    work.write(run_files.REPORT, [encode(report)])
    return Settled(report, len(left))


def each_outcome(work: RunStore) -> Iterator[tuple[str, Outcome]]:
    """Yield every outcome on record, with the task that it is of."""
    for name in work.names(run_files.OUTCOMES):
        lines = iterate_lines(work.stream(name))
        head = next(lines, None)
        if head is not None:
            task = decode(head, TaskReport).task
            for line in lines:
                if line:
                    yield task, decode(line, Outcome)


def read_report(work: RunStore) -> Report | None:
    """Return the run's report, None if it has none yet."""
    try:
        return decode(work.read(run_files.REPORT), Report)
    except NotFoundError:
        return None


@dataclass(slots=True)
class Tally:
    """Sums over tasks and outcomes; memory is bounded by the failures that are listed."""

    listed: int
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    tasks: int = 0
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None
    retried: Collection[int] = ()  # members whose outcome in the plan's tasks is not the last
    columns: Columns = field(default_factory=Columns)  # for the page

    def add_task(self, report: TaskReport) -> None:
        """Add what one task cost."""
        self.columns.tasks.add(report)
        self.tasks += 1
        self.requests = self.requests + report.requests
        self.bytes_read += report.bytes_read
        self.bytes_written += report.bytes_written
        self.task_seconds += report.seconds
        self.warnings.update(report.warnings)
        first = report.first_object
        if first is not None and (self.first_object is None or first < self.first_object):
            self.first_object = first

    def add_scans(self, scans: Sequence[ScanReport]) -> None:
        """Add what the scans cost."""
        self.columns.scans.extend(scans)
        for scan in scans:
            self.requests = self.requests + scan.requests
            self.bytes_read += scan.bytes_read

    def add(self, outcome: Outcome, task: str) -> None:
        """Add one member; one that was retried counts by its last outcome."""
        if outcome.index not in self.retried:
            self.add_last(outcome, task)

    def add_last(self, outcome: Outcome, task: str) -> None:
        """Add one member by its last outcome."""
        self.counts[outcome.status] += 1
        if outcome.status is not Status.FAILED:
            self.columns.sizes.add(outcome.size)
            return
        reason = outcome.reason or "unknown"
        self.reasons[reason] += 1
        if len(self.failures) < self.listed:
            self.failures.append(
                Failure(
                    outcome.key,
                    reason,
                    outcome.message or "",
                    outcome.index,
                    outcome.offset,
                    task,
                )
            )

    @property
    def members(self) -> int:
        """Members with an outcome."""
        return self.counts.total()


def _tally_tasks(work: RunStore, tally: Tally) -> list[Task]:
    """Add up the tasks of the plan; return those that are not complete."""
    for outcome in _index_outcomes(work):
        tally.add(outcome, run_files.INDEX_TASK)
    left: list[Task] = []
    for task, found in read_records(work, planned_tasks(work)):
        if found is not None:
            tally.add_task(found.report)
            if task.parts == 1:
                for outcome in found.outcomes:
                    tally.add(outcome, task.id)
        if found is None or not found.complete:
            left.append(task)
    return left


def _index_outcomes(work: RunStore) -> Iterator[Outcome]:
    """Yield the outcomes that the plan noted, one by one: there may be one for every member."""
    try:
        lines = iterate_lines(work.stream(run_files.outcomes(run_files.INDEX_TASK)))
        next(lines, None)  # the task's report
        yield from (decode(line, Outcome) for line in lines if line)
    except NotFoundError:
        return


def _tally_retries(retries: Retries, tally: Tally) -> None:
    for report in retries.reports:
        tally.add_task(report)
    for task, outcome in retries.outcomes.values():
        tally.add_last(outcome, task)


def _tally_split(
    run: Run, work: RunStore, tally: Tally, left: list[Task], context: Context, calls: Calls
) -> list[Task]:
    """Finish members over several tasks; return what is left in all."""
    streams: list[Task] = []
    for found in finish_members(run, context, calls):
        if isinstance(found, Outcome):
            tally.add(found, "finish")
            if found.status is Status.EXTRACTED:
                tally.first_object = tally.first_object or context.clock.now()
            continue
        streams.append(found)
    done_whole: set[tuple[int, int]] = set()
    for task, record in read_records(work, streams):
        done_whole.add(task.rows)
        if record is not None:
            tally.add_task(record.report)
            for outcome in record.outcomes:
                tally.add(outcome, task.id)
        if record is None or not record.complete:
            left.append(task)
    # The slices of a member that is streamed whole are not worth doing any more.
    return [t for t in left if t.parts == 1 or t.rows not in done_whole]


def _judge(
    run: Run,
    summary: PlanSummary,
    tally: Tally,
    stop: Stop | None,
    left: Sequence[Task],
    context: Context,
) -> Report:
    missing = summary.failed + summary.selected - tally.members
    verdict, reason, message = _verdict(tally, stop, missing)
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
        finished=context.clock.now(),
        plan_seconds=summary.plan_seconds,
        task_seconds=round(tally.task_seconds, 6),
        first_object=tally.first_object,
        forecast_seconds=summary.seconds,
    )


def _verdict(
    tally: Tally, stop: Stop | None, missing: int
) -> tuple[Verdict, str | None, str | None]:
    if missing and stop is not None:
        return stop.verdict, stop.reason, stop.message
    if missing:
        message = f"{missing:,} members have no outcome: their tasks did not end"
        return Verdict.FAILED, TASKS_FAILED, message
    if tally.counts[Status.FAILED]:
        return Verdict.COMPLETED_WITH_ERRORS, None, None
    return Verdict.COMPLETED, None, None


def _with_money(report: Report, forecast: Forecast | None, cost: Cost | None) -> Report:
    """Return the report with what was forecast and what it cost, where that is known."""
    if forecast is not None:
        report = replace(
            report,
            forecast_seconds=round(forecast.duration.expected, 3),
            forecast_cost=forecast.cost.total,
        )
    return report if cost is None else replace(report, cost=cost.total)


def _write_marker(run: Run, report: Report, context: Context, calls: Calls) -> None:
    key = marker_key(run.key_prefix)
    body = encode({"run": run.id, "verdict": report.verdict, "extracted": report.extracted})
    facts = ObjectFacts("application/json", {})
    destination = context.stores.destination(run.destination)
    calls.run("put", lambda: destination.put(key, body, facts, if_absent=False))
