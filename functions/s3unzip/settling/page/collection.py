"""Reduces a run's report and task reports to the values of its page.

The constants below and those of `page.data` and `page.timeline` bound the result for every
archive. This module does not know HTML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from s3unzip.explanations import advise, explain
from s3unzip.model import Verdict
from s3unzip.settling.next_step import in_environment, next_command
from s3unzip.settling.page import forecasts, timeline
from s3unzip.settling.page.data import (
    CostRow,
    FailedMember,
    PageData,
    Reason,
    Totals,
)
from s3unzip.settling.page.document import clip, encode_safely
from s3unzip.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s3unzip.forecast import Cost, Forecast
    from s3unzip.model import Connections, PlanSummary, Report
    from s3unzip.settling.page.data import Phase, SizeTable, TaskTable

CODES = 50  # reasons and warnings listed
NAME_CHARS = 1_024  # of a key: S3's own limit
TEXT_CHARS = 400  # of a message or an option
FAILURE_BYTES = 1_000_000  # of all listed failures, encoded for the page


def collect(  # noqa: PLR0913  # one argument for each thing the page shows
    report: Report,
    summary: PlanSummary | None,
    tasks: TaskTable,
    sizes: SizeTable,
    forecast: Forecast | None = None,
    *,
    cost: Cost | None = None,
    steps: Sequence[Phase] = (),
    environment: str = "",
    connections: Connections | None = None,
) -> PageData:
    """Return the data of a run's page.

    A refused archive has no `summary`. Without a `forecast` the report's own figures are used.
    `steps` are the measured times of scan and link in Unix seconds.
    """
    where, origin = in_environment(environment), _origin(report, summary, tasks)
    totals = _totals(report, summary, tasks, cost)
    return PageData(
        run=report.run,
        archive=clip(report.source.key.split("?", 1)[0].rsplit("/", 1)[-1], NAME_CHARS),
        verdict=report.verdict,
        continues=report.continues,
        reason=report.reason and clip(report.reason, TEXT_CHARS),
        message=report.message and clip(report.message, TEXT_CHARS),
        offset=report.offset,
        advice=advise(report.reason, report.run, where) if report.reason else None,
        verified=not report.options.trust_crc,
        source=clip(str(report.source).split("?", 1)[0], 2 * NAME_CHARS),
        destination=clip(str(report.destination), 2 * NAME_CHARS),
        started=report.started,
        finished=report.finished,
        totals=totals,
        phases=timeline.phases(report, summary, tasks, steps, origin),
        rows=timeline.rows(tasks, origin),
        rates=timeline.rates(tasks, origin),
        durations=timeline.durations(tasks),
        slowest=tasks.slowest(origin),
        sizes=sizes.bins(),
        reasons=_reasons(report, where),
        warnings=_ranked(report.warnings, report.run, where),
        failures=_failures(report),
        comparisons=forecasts.compare(report, summary, totals, tasks, forecast),
        difference=forecasts.explain_difference(report, totals, tasks, forecast),
        costs=_cost_rows(forecast.cost if forecast else None, cost),
        details=_details(report, summary),
        next=next_command(report, environment, connections),
        version=__version__,
    )


def _origin(report: Report, summary: PlanSummary | None, table: TaskTable) -> float:
    starts = [report.started, summary.started if summary else 0.0, min(table.start, default=0.0)]
    return min((start for start in starts if start > 0), default=0.0)


def _totals(
    report: Report, summary: PlanSummary | None, table: TaskTable, cost: Cost | None
) -> Totals:
    since = report.event_time or report.started
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
        idle_seconds=round(timeline.idle_seconds(table), 3),
        first_object=None if report.first_object is None else round(report.first_object - since, 3),
        first_object_since="the upload" if report.event_time else "the start",
        cost=cost.total if cost else None,
    )


def _cost_rows(forecast: Cost | None, actual: Cost | None) -> tuple[CostRow, ...]:
    """Return the items of the bill, each with its forecast and its counted cost."""
    expected = {(line.service, line.item): line for line in forecast.lines} if forecast else {}
    counted = {(line.service, line.item): line for line in actual.lines} if actual else {}
    found = []
    for place in expected | counted:
        line = counted.get(place) or expected[place]
        plural = "" if line.unit.endswith("s") or round(line.quantity) == 1 else "s"
        found.append(
            CostRow(
                *place,
                basis=f"{line.quantity:,.0f} {line.unit}{plural}",
                forecast=expected[place].dollars if place in expected else None,
                actual=counted[place].dollars if place in counted else None,
            )
        )
    return tuple(found)


def _reasons(report: Report, where: str) -> tuple[Reason, ...]:
    """Return why members failed; that of a refused archive is in the page's header."""
    counts = {} if report.verdict is Verdict.REJECTED else report.reasons
    return _ranked(counts, report.run, where)


def _ranked(counts: Mapping[str, int], run: str, where: str) -> tuple[Reason, ...]:
    """Return the most frequent codes with their words, and the rest of them as one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        Reason(
            clip(code, TEXT_CHARS),
            count,
            clip(explain(code).sentence, TEXT_CHARS),
            clip(advise(code, run, where), TEXT_CHARS),
        )
        for code, count in order[:CODES]
    ]
    if rest := sum(count for _, count in order[CODES:]):
        shown.append(Reason(f"{len(order) - CODES} other codes", rest, "", ""))
    return tuple(shown)


def _failures(report: Report) -> tuple[FailedMember, ...]:
    """Return the listed failures that fit the page's budget, in the report's order."""
    listed: list[FailedMember] = []
    left = FAILURE_BYTES
    below = report.destination.key
    for failure in report.failures:
        line = FailedMember(
            key=clip(failure.key.removeprefix(below), NAME_CHARS),
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
    """Return the run's identifying fields and the options that differ from the defaults."""
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
