"""Reduces a run's report and task reports to the values of its page.

Memory: 41 bytes a task, whatever the members; what leaves here is bounded by
the constants below. Nothing here knows HTML.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import structs

from s3unzip.pipeline.model import TaskKind
from s3unzip.pipeline.page import timeline
from s3unzip.pipeline.page.data import (
    Comparison,
    CostLine,
    FailedMember,
    Forecast,
    PageData,
    Phase,
    SizeBin,
    SlowTask,
    Totals,
)
from s3unzip.pipeline.page.encoding import encode_safely

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s3unzip.pipeline.model import PlanSummary, Report, TaskReport

KINDS = tuple(TaskKind)
SLOWEST = 12  # tasks listed by name
CODES = 50  # reasons and warnings listed
NAME_CHARS = 1_024  # of a key: S3's own limit
TEXT_CHARS = 400  # of a message or an option
FAILURE_BYTES = 1_000_000  # of all listed failures, as the page encodes them


class TaskTable:
    """Columns of numbers, one row a task, in the order of arrival."""

    def __init__(self) -> None:
        self.kind = array("b")  # index in KINDS
        self.start = array("d")  # Unix seconds
        self.seconds = array("d")
        self.members = array("d")
        self.written = array("d")  # bytes
        self._slowest: list[tuple[float, str, TaskReport]] = []

    def add(self, task: TaskReport) -> None:
        """Take one task; tasks that never began have no place in time and are left out."""
        if task.started <= 0:
            return
        self.kind.append(KINDS.index(task.kind))
        self.start.append(task.started)
        self.seconds.append(max(0.0, task.seconds))
        self.members.append(task.extracted + task.unchanged)
        self.written.append(task.bytes_written)
        entry = (task.seconds, task.task, task)
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, entry)
        elif entry[:2] > self._slowest[0][:2]:
            heapq.heapreplace(self._slowest, entry)

    def slowest(self, origin: float) -> tuple[SlowTask, ...]:
        """Return the tasks that took longest, the longest first."""
        ranked = sorted(self._slowest, key=lambda entry: (-entry[0], entry[1]))
        return tuple(
            SlowTask(
                task=clip(task.task, TEXT_CHARS),
                kind=task.kind.value,
                start=round(task.started - origin, 3),
                seconds=round(task.seconds, 3),
                members=task.members,
                bytes_written=task.bytes_written,
                failed=task.failed,
                retries=task.requests.retries,
                throttled=task.requests.throttled,
            )
            for _, _, task in ranked
        )


def bin_sizes(sizes: Iterable[int]) -> tuple[SizeBin, ...]:
    """Return the histogram of member sizes (bytes, uncompressed) by powers of two."""
    members: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for size in sizes:
        bits = size.bit_length()
        members[bits] += 1
        total[bits] += size
    return tuple(SizeBin(bits, members[bits], total[bits]) for bits in sorted(members))


def collect(  # noqa: PLR0913  # one argument for each thing the page shows
    report: Report,
    summary: PlanSummary | None,
    tasks: Iterable[TaskReport],
    sizes: Sequence[SizeBin] = (),
    forecast: Forecast | None = None,
    *,
    costs: Sequence[CostLine] = (),
    steps: Sequence[Phase] = (),
) -> PageData:
    """Return what the page of a run shows.

    Args:
        report: the run's end.
        summary: what the plan found; None where a refusal came before it.
        tasks: the first lines of the outcomes, in any order; read once.
        sizes: from `bin_sizes`, or counted elsewhere.
        forecast: None: the figures that the report and the summary carry.
        costs: by service.
        steps: measured times of scan and link in Unix seconds; those of plan, extract and
            report follow from the report and the tasks.
    """
    table = TaskTable()
    for task in tasks:
        table.add(task)
    origin = _origin(report, summary, table)
    spans = timeline.phases(report, summary, table, steps, origin)
    totals = _totals(report, summary, table, costs)
    expected = forecast or _forecast(report, summary)
    return PageData(
        run=report.run,
        archive=clip(report.source.key.split("?", 1)[0].rsplit("/", 1)[-1], NAME_CHARS),
        verdict=report.verdict,
        reason=report.reason and clip(report.reason, TEXT_CHARS),
        message=report.message and clip(report.message, TEXT_CHARS),
        verified=not report.options.trust_crc,
        source=clip(str(report.source).split("?", 1)[0], 2 * NAME_CHARS),
        destination=clip(str(report.destination), 2 * NAME_CHARS),
        started=report.started,
        finished=report.finished,
        totals=totals,
        phases=spans,
        rows=timeline.rows(table, origin),
        rates=timeline.rates(table, origin),
        durations=timeline.durations(table),
        slowest=table.slowest(origin),
        sizes=tuple(sizes),
        reasons=_ranked(report.reasons),
        warnings=_ranked(report.warnings),
        failures=_failures(report),
        comparisons=_comparisons(expected, totals, summary, table),
        costs=tuple(costs),
        details=_details(report, summary),
    )


def clip(text: str, most: int) -> str:
    """Return `text` as valid UTF-8 of at most `most` characters, cut in the middle."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"


def _origin(report: Report, summary: PlanSummary | None, table: TaskTable) -> float:
    starts = [report.started, summary.started if summary else 0.0, min(table.start, default=0.0)]
    return min((start for start in starts if start > 0), default=0.0)


def _totals(
    report: Report, summary: PlanSummary | None, table: TaskTable, costs: Sequence[CostLine]
) -> Totals:
    stops = [start + seconds for start, seconds in zip(table.start, table.seconds, strict=True)]
    since = report.event_time or report.started
    actual = [line.actual for line in costs if line.actual is not None]
    return Totals(
        members=report.members or (summary.members if summary else 0),
        directories=report.directories,
        excluded=report.excluded,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        missing=report.missing,
        tasks=report.tasks,
        tasks_failed=report.tasks_failed,
        bytes_in=report.bytes_in,
        bytes_out=report.bytes_out,
        requests=report.requests,
        seconds=round(max(0.0, report.finished - report.started), 3),
        plan_seconds=round(report.plan_seconds, 3),
        task_seconds=round(report.task_seconds, 3),
        extract_seconds=round(max(stops) - min(table.start), 3) if stops else 0.0,
        first_object=None if report.first_object is None else round(report.first_object - since, 3),
        first_object_since="the upload" if report.event_time else "the start",
        cost=sum(actual) if actual else None,
    )


def _forecast(report: Report, summary: PlanSummary | None) -> Forecast | None:
    seconds = report.forecast_seconds or (summary.seconds if summary else 0.0)
    return Forecast(seconds=seconds, cost=report.forecast_cost) if seconds else None


def _comparisons(
    forecast: Forecast | None, totals: Totals, summary: PlanSummary | None, table: TaskTable
) -> tuple[Comparison, ...]:
    if forecast is None:
        return ()
    lines = [
        Comparison(
            "Duration", "seconds", forecast.seconds, totals.seconds, forecast.low, forecast.high
        )
    ]
    if summary is not None and summary.longest_task:
        longest = max(table.seconds, default=None)
        lines.append(Comparison("Longest task", "seconds", summary.longest_task, longest))
    if forecast.cost is not None:
        lines.append(Comparison("Cost", "dollars", forecast.cost, totals.cost))
    if summary is not None:
        lines.append(Comparison("Members", "count", summary.selected, totals.extracted))
        lines.append(Comparison("Written", "bytes", summary.bytes_out, totals.bytes_out))
    return tuple(lines)


def _ranked(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the most frequent codes, and the rest of them as one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [(clip(code, TEXT_CHARS), count) for code, count in order[:CODES]]
    if rest := sum(count for _, count in order[CODES:]):
        shown.append((f"{len(order) - CODES} other codes", rest))
    return tuple(shown)


def _failures(report: Report) -> tuple[FailedMember, ...]:
    """Return the listed failures that fit the page's budget, in the report's order."""
    listed: list[FailedMember] = []
    left = FAILURE_BYTES
    for failure in report.failures:
        line = FailedMember(
            key=clip(failure.key, NAME_CHARS),
            reason=clip(failure.reason, TEXT_CHARS),
            message=clip(failure.message, TEXT_CHARS),
            offset=failure.offset,
            task=failure.task and clip(failure.task, TEXT_CHARS),
        )
        left -= len(encode_safely(line))
        if left < 0:
            break
        listed.append(line)
    return tuple(listed)


def _details(report: Report, summary: PlanSummary | None) -> tuple[tuple[str, str], ...]:
    """Return what identifies the run, and the options that are not the defaults."""
    found = [("Run", report.run)]
    if report.pin is not None:
        found.append(("Archive size", f"{report.pin.size:,} bytes"))
        if report.pin.version_id:
            found.append(("Version id", report.pin.version_id))
        if report.pin.etag:
            found.append(("ETag", report.pin.etag))
    if summary is not None:
        found.append(("Key prefix", summary.run.key_prefix))
        found += [(f"Members by {kind}", f"{count:,}") for kind, count in summary.kinds.items()]
    defaults = type(report.options)()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            found.append((f"Option {name.replace('_', '-')}", _option_text(value)))
    return tuple((name, clip(text, NAME_CHARS)) for name, text in found)


def _option_text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value[:CODES])
    return str(value)
