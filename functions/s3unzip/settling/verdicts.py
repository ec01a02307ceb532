"""The verdict of a run: who may write ``report.json``, and over what.

The rules:

- Whoever ends a run writes its report here: settling, the intake function for a small archive, a
  plan that is refused, the failure of an execution. What follows a report amends it here.
- A verdict never takes the place of a better one: COMPLETED, then COMPLETED_WITH_ERRORS, REJECTED,
  and last FAILED and SOURCE_CHANGED. Of equal ones the newer stays: its step began to read the
  records when the other one was written.
- A person who resumes a run with its failed members reopens COMPLETED_WITH_ERRORS: any newer
  verdict may take its place.
- Writers come twice, at once, and late: hours after their execution was stopped. So each writes on
  the condition that what it looked at is still there (If-None-Match, If-Match), and looks again if
  it is not. A writer whose answer was lost finds its own report then.
- The page comes just before its report. A writer that loses after its page writes the winner's.
- A report that cannot be read counts as none. One of another archive is an error.
"""

from collections.abc import Callable
from typing import NamedTuple

from s3unzip.context import Context
from s3unzip.errors import ConflictError, ServiceFaultError
from s3unzip.model import Report, Verdict
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import RecordedReport, RunRecords
from s3unzip.settling.report_page.page import render_page

MAX_TRIES = 20  # of a report that others write meanwhile

Compose = Callable[[Report | None], Report]  # makes a report; what is on record may be part of it


class WrittenVerdict(NamedTuple):
    """What came of a verdict."""

    report: Report  # that is on record now
    is_first: bool  # whether none was on record before


def write_verdict(
    compose: Compose,
    records: RunRecords,
    since: float,
    *,
    looked_up: RecordedReport | None = None,
    page_for: Context | None = None,
    reopened: bool = False,
) -> WrittenVerdict:
    """Write a report, unless the one on record stays.

    Args:
        compose: makes the report.
        records: of the run.
        since: when the step behind the report began to read the records, in Unix seconds.
        looked_up: what is stored under the report's name, if the caller knows it.
        page_for: renders the page of the report; None: it has none.
        reopened: whether a person let the members that failed be done again.
    """
    has_page = False
    for _ in range(MAX_TRIES):
        recorded = looked_up or records.look_up_report()
        looked_up = None
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
        try:
            records.put_report(report, recorded)
        except ConflictError:
            continue
        return WrittenVerdict(report, is_first=earlier is None)
    raise ServiceFaultError(
        f"{records.run}: its report is another one at each of {MAX_TRIES} looks"
    )


def may_replace(report: Report, earlier: Report, since: float, *, reopened: bool = False) -> bool:
    """Return whether a report whose step began at `since` may take the place of an earlier one."""
    rank = report.verdict.rank
    earlier_rank = earlier.verdict.rank
    if rank > earlier_rank:
        return True
    is_open = reopened and earlier.verdict is Verdict.COMPLETED_WITH_ERRORS
    return (rank == earlier_rank or is_open) and earlier.finished <= since


def amend_report(report: Report, change: Callable[[Report], Report], records: RunRecords) -> Report:
    """Write a report once more with what followed it; return it.

    Args:
        report: as the caller knows it.
        change: adds what followed to the report on record.
        records: of the run.
    """
    for _ in range(MAX_TRIES):
        recorded = records.look_up_report()
        amended = change(recorded.report or report)
        try:
            records.put_report(amended, recorded)
        except ConflictError:
            continue
        return amended
    raise ServiceFaultError(
        f"{records.run}: its report is another one at each of {MAX_TRIES} looks"
    )
