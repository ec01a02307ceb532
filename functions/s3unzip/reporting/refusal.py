"""The report of an archive that was refused before its first task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.reporting.page_writer import write_page
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Report


def write_refusal(report: Report, context: Context) -> None:
    """Write ``report.html``, then ``report.json`` of a run without tasks.

    Raises:
        StorageError: the run store cannot be written.
        ServiceFaultError: try again later.
    """
    records = RunRecords.open(context.stores, report.run)
    write_page(records, report)
    records.write_report(report)
