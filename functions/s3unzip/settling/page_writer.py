"""Makes ``report.html``, with costs and the forecast, and writes the report of a refused archive.

`settling.page` makes the page. Costs and the forecast appear if the context knows the platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.objects.upload_registry import abort_probes
from s3unzip.runs.records import RunRecords
from s3unzip.settling.page import Phase, SizeTable, TaskTable, collect, render_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.context import Context
    from s3unzip.forecast import Cost, Forecast
    from s3unzip.model import PlanSummary, Report, ScanReport, Task
    from s3unzip.stores.calls import Calls

MAX_FORECAST = 5_000  # tasks; a forecast for more tasks would delay the end of a run noticeably


class Columns(Struct, frozen=True):
    """The page's data of each task and member, in compact form while outcomes are read."""

    tasks: TaskTable = field(default_factory=TaskTable)
    sizes: SizeTable = field(default_factory=SizeTable)
    scans: list[ScanReport] = field(default_factory=list)


def make_page(
    report: Report,
    context: Context,
    summary: PlanSummary | None = None,
    columns: Columns | None = None,
    forecast: Forecast | None = None,
    cost: Cost | None = None,
) -> bytes:
    """Return the page; for a rejected archive only the report is known."""
    seen = columns or Columns()
    steps = _steps(summary, seen) if summary is not None else ()
    return render_page(
        collect(
            report,
            summary,
            seen.tasks,
            seen.sizes,
            forecast,
            cost=cost,
            steps=steps,
            environment=context.environment,
            connections=context.connections,
        )
    )


def forecast_plan(tasks: Sequence[Task], summary: PlanSummary, context: Context) -> Forecast | None:
    """Return the forecast of the plan, None without a platform or with too many tasks.

    The simulation gives the same result for the same plan, so it can run when the page is made.
    """
    if context.platform is None or not 0 < summary.tasks <= MAX_FORECAST:
        return None
    from s3unzip.forecast import forecast_run  # noqa: PLC0415 - if shown

    return forecast_run(summary, tasks, context.platform, context.tuning)


def price_run(report: Report, columns: Columns, context: Context) -> Cost | None:
    """Return the cost of the run, None if the platform has no prices."""
    platform = context.platform
    if platform is None or not (platform.priced_requests or platform.memory_gb):
        return None
    from s3unzip.forecast.cost import Usage, express_seconds, price  # noqa: PLC0415

    requests = report.requests
    if report.source.scheme != "s3":  # what is read of a file or a web server is not billed
        requests = replace(requests, get=0)
    seconds = [*columns.tasks.seconds, *(scan.seconds for scan in columns.scans)]
    transitions = rates.TRANSITIONS_SPLIT if columns.scans else rates.TRANSITIONS
    usage = Usage(
        members=report.extracted,
        requests=requests,
        invocations=1 if platform.direct else len(seconds) + 2,  # plan and report
        lambda_seconds=sum(seconds) + report.plan_seconds,
        children=0 if platform.direct else len(seconds),
        express_seconds=0.0 if platform.direct else express_seconds(seconds),
        transitions=0 if platform.direct else transitions,
    )
    return price(usage, platform.storing(report.options.objects))


def _steps(summary: PlanSummary, columns: Columns) -> Sequence[Phase]:
    """Return the times of the scans and of the link, which follows them."""
    if not columns.tasks.start:
        return ()
    ended = summary.started + summary.plan_seconds
    found = []
    if columns.scans:
        began = min(scan.started for scan in columns.scans)
        ended = max(scan.started + scan.seconds for scan in columns.scans)
        found.append(Phase("scan", began, ended))
    if summary.split_members:
        found.append(Phase("link", ended, max(ended, min(columns.tasks.start))))
    return found


def write_refusal(report: Report, context: Context, calls: Calls | None = None) -> Report:
    """Write ``report.html``, then ``report.json`` of a run without tasks; return the report.

    Uploads that a killed planner of this run left are aborted first.

    Args:
        report: with the requests of the plan.
        context: of this worker.
        calls: of what was done since the plan; None: nothing was.

    Raises:
        StorageError: the run store cannot be written.
        ServiceFaultError: try again later.
    """
    calls = calls or context.calls()
    records = RunRecords.open(context.stores, report.run, calls)
    abort_probes(records, context.stores.destination(report.destination), calls)
    return records.write_page_and_report(report.counting, lambda whole: make_page(whole, context))
