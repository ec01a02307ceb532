"""The forecast beside what was measured, and why they differ.

A forecast of times is for one attempt, for all members, on the machine that it names. Where that
is not what was done, times are left out and the page says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.model import Verdict
from s3unzip.settling.page.data import Comparison

if TYPE_CHECKING:
    from s3unzip.forecast import Forecast, Range
    from s3unzip.model import PlanSummary, Report
    from s3unzip.settling.page.data import TaskTable, Totals

ENDED = frozenset({Verdict.COMPLETED, Verdict.COMPLETED_WITH_ERRORS})
IDLE_SHARE = 0.2  # of the duration: more was an interruption, not a wait for workers


def compare(
    report: Report,
    summary: PlanSummary | None,
    totals: Totals,
    table: TaskTable,
    forecast: Forecast | None,
) -> tuple[Comparison, ...]:
    """Return the figures of the forecast that can be compared, each with the actual one."""
    lines = []
    if not _why_not_comparable(report, totals, forecast):
        lines += _times(report, summary, totals, table, forecast)
    if forecast is not None:
        lines.append(_compare("Cost", "dollars", forecast.dollars, totals.cost))
    else:
        lines.append(Comparison("Cost", "dollars", report.forecast_cost or 0.0, totals.cost))
    if summary is not None:
        lines.append(Comparison("Members", "count", summary.selected, totals.extracted))
        lines.append(Comparison("Written", "bytes", summary.bytes_out, totals.bytes_out))
    return tuple(line for line in lines if line.forecast)


def explain_difference(
    report: Report, totals: Totals, table: TaskTable, forecast: Forecast | None
) -> str:
    """Return why times are left out, or are outside of the forecast's range; empty: they are not.

    Args:
        report: the run's end.
        totals: of the page.
        table: of the tasks.
        forecast: None: without a range, so that nothing is outside of it.
    """
    why = _why_not_comparable(report, totals, forecast)
    if why:
        return f"Times are not compared: {why}."
    if forecast is None or not table.start or totals.seconds <= forecast.duration.high:
        return ""
    causes = []
    if report.requests.throttled:
        causes.append(f"{report.requests.throttled:,} requests were throttled")
    if report.requests.retries:
        causes.append(f"{report.requests.retries:,} requests were repeated")
    if report.tasks_failed:
        causes.append(f"{report.tasks_failed:,} tasks did not end")
    found = "; ".join(causes) or "the slowest tasks are listed above"
    return f"The run took longer than the forecast's range: {found}."


def _why_not_comparable(report: Report, totals: Totals, forecast: Forecast | None) -> str:
    """Return why the forecast of times is of something else, empty if it is not."""
    if report.verdict not in ENDED:
        return "the run did not end"
    if totals.unchanged:
        return "the forecast is for all members, and unchanged ones were not written"
    if totals.idle_seconds > IDLE_SHARE * totals.seconds:
        return "the run was interrupted and continued later"
    if forecast is None or forecast.platform == "aws":
        return ""
    low, high = forecast.duration.low, forecast.duration.high
    if low <= totals.seconds <= high:
        return ""
    pace = "slower or was busy" if totals.seconds > high else "faster"
    return f"the forecast is for another machine than this one, which is {pace}"


def _times(
    report: Report,
    summary: PlanSummary | None,
    totals: Totals,
    table: TaskTable,
    forecast: Forecast | None,
) -> list[Comparison]:
    longest = max(table.seconds, default=None)
    if forecast is not None:
        return [
            _compare("Duration", "seconds", forecast.duration, totals.seconds),
            _compare("First object", "seconds", forecast.first_object, totals.first_object),
            _compare("Longest task", "seconds", forecast.longest_task, longest),
        ]
    seconds = report.forecast_seconds or (summary.seconds if summary else 0.0)
    task_seconds = summary.longest_task if summary else 0.0
    return [
        Comparison("Duration", "seconds", seconds, totals.seconds),
        Comparison("Longest task", "seconds", task_seconds, longest),
    ]


def _compare(name: str, unit: str, forecast: Range, actual: float | None) -> Comparison:
    return Comparison(name, unit, forecast.expected, actual, forecast.low, forecast.high)
