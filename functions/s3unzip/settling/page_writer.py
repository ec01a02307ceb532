"""Writes ``report.html`` beside ``report.json``, and the report of a refused archive."""

from __future__ import annotations

from collections.abc import Sequence

from s3unzip.context import Context
from s3unzip.estimate import Estimate, estimate_run, price_run
from s3unzip.model import PlanSummary, Report, Task
from s3unzip.objects.upload_registry import abort_probes
from s3unzip.runs.records import RunRecords
from s3unzip.settling.next_step import in_environment, next_command
from s3unzip.settling.page import make_page
from s3unzip.stores.calls import Calls


def page_of(report: Report, context: Context) -> bytes:
    """Return the page of a run, with its cost if the context knows the platform."""
    return make_page(
        report,
        cost=price_run(report, context.platform),
        next_command=next_command(report, context.environment, context.connections),
        where=in_environment(context.environment),
    )


def estimate_plan(tasks: Sequence[Task], summary: PlanSummary, context: Context) -> Estimate | None:
    """Return the estimate of the plan, None without a platform or tasks."""
    if context.platform is None or not tasks:
        return None
    return estimate_run(summary, tasks, context.platform, context.tuning)


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
    return records.write_page_and_report(report.counting, lambda whole: page_of(whole, context))
