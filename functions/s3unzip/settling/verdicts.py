"""The verdict of a run: who may write ``report.json``, and which reports it may replace.

The rules:

- Each step that ends a run writes its report here: settling, the intake function for a small
  archive, a plan that is refused, the failure of an execution. Later steps amend it here.
- A verdict never replaces a better one. The best is COMPLETED, then come COMPLETED_WITH_ERRORS,
  REJECTED, and last FAILED and SOURCE_CHANGED. A verdict replaces an equally good one if its step
  began to read the records after that one was written.
- If a person resumes a run to extract its failed members again, any newer verdict may replace
  COMPLETED_WITH_ERRORS.
- A writer may be repeated, concurrent with others, or late: hours after its execution was stopped.
  So each writes on the condition that the report it read is still there (If-None-Match, If-Match).
  If it is not, the writer reads again. A writer whose answer was lost then finds its own report.
- The page is written just before its report. If another writer's report wins after that, the page
  is written again for that report.
- A report that cannot be read counts as missing. A report of another archive is an error.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from s3unzip.context import Context
from s3unzip.errors import ConflictError, ServiceFaultError
from s3unzip.model import Report, Verdict
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import RecordedReport, RunRecords
from s3unzip.settling.page import render_page

MAX_TRIES = 20  # attempts to write one report; each fails if another writer was quicker


class WrittenVerdict(NamedTuple):
    """The report on record after `write_verdict`."""

    report: Report
    is_first: bool  # whether there was no report before


def write_verdict(
    compose: Callable[[Report | None], Report],
    records: RunRecords,
    since: float,
    *,
    looked_up: RecordedReport | None = None,
    page_for: Context | None = None,
    reopened: bool = False,
) -> WrittenVerdict:
    """Write a report, unless the one on record is better or newer.

    Args:
        compose: makes the report from the one on record, if there is one.
        records: of the run.
        since: when the step that reports began to read the records, in Unix seconds.
        looked_up: the record of the report, if the caller knows it; None: it is read.
        page_for: the context that renders the page; None: the report has no page.
        reopened: whether a person resumed the run to extract the failed members again.
    """
    has_page = False
    for _ in range(MAX_TRIES):
        recorded = looked_up or records.look_up_report()
        looked_up = None  # the next attempt reads it
        earlier = recorded.report
        report = compose(earlier)
        check_same_archive(report.run, report.source, report.pin, earlier)
        if earlier == report:  # the answer to this write was lost, or it is repeated
            return WrittenVerdict(report, is_first=True)
        if earlier is not None and not may_replace(report, earlier, since, reopened=reopened):
            if has_page and page_for is not None:  # another writer won after this one's page
                records.write_page(render_page(earlier, page_for))
            return WrittenVerdict(earlier, is_first=False)
        if page_for is not None:
            records.write_page(render_page(report, page_for))
            has_page = True
        with suppress(ConflictError):  # another writer was quicker: look again
            records.put_report(report, recorded)
            return WrittenVerdict(report, is_first=earlier is None)
    raise ServiceFaultError(
        f"{records.run}: other writers replaced its report before each of {MAX_TRIES} writes"
    )


def may_replace(report: Report, earlier: Report, since: float, *, reopened: bool = False) -> bool:
    """Return whether a report whose step began at `since` may replace an earlier one."""
    rank = report.verdict.rank
    earlier_rank = earlier.verdict.rank
    if rank > earlier_rank:
        return True
    is_open = reopened and earlier.verdict is Verdict.COMPLETED_WITH_ERRORS
    return (rank == earlier_rank or is_open) and earlier.finished <= since


def amend_report(report: Report, change: Callable[[Report], Report], records: RunRecords) -> Report:
    """Change the report on record; return the changed report.

    Args:
        report: is changed instead of the one on record if that one cannot be read.
        change: returns the changed report.
        records: of the run.
    """
    for _ in range(MAX_TRIES):
        recorded = records.look_up_report()
        amended = change(recorded.report or report)
        with suppress(ConflictError):  # another writer was quicker: read again
            records.put_report(amended, recorded)
            return amended
    raise ServiceFaultError(
        f"{records.run}: other writers replaced its report before each of {MAX_TRIES} writes"
    )
