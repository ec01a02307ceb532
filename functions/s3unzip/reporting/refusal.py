"""The report of an archive that was refused before its first task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.reporting.page_writer import make_page
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Report
    from s3unzip.stores.calls import Calls


def write_refusal(report: Report, context: Context, calls: Calls | None = None) -> Report:
    """Write ``report.html``, then ``report.json`` of a run without tasks; return the report.

    Args:
        report: with the requests of the plan.
        context: of this worker.
        calls: of what was done since the plan; None: nothing was.

    Raises:
        StorageError: the run store cannot be written.
        ServiceFaultError: try again later.
    """
    records = RunRecords.open(context.stores, report.run, calls or context.calls())
    return records.write_page_and_report(
        lambda own: replace(report, requests=report.requests + own, settling=own), make_page
    )
