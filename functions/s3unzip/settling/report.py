"""The report of a run: what it says, who may write it, and the action on the archive after it.

The rules:

- Requests are counted up to the writing of the report, which is not among them.
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
- An archive that is to be deleted or tagged after success is "pending" in the first report. Then it
  is deleted or tagged, and the report is written again with the result. A failure does not change
  the verdict. A resumed run or a repeated event repeats the action unless the report on record says
  that it is done. Each later report says so, too.
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import ConflictError, S3UnzipError, ServiceFaultError, SourceChangedError
from s3unzip.extraction.member_object import with_properties
from s3unzip.model import (
    AfterSuccess,
    PlanSummary,
    Report,
    Requests,
    Run,
    SourceAction,
    SourceResult,
    SourceState,
    Status,
    Stop,
    Verdict,
    encode,
)
from s3unzip.planning.select import MARKER
from s3unzip.pricing import price_run
from s3unzip.printable import choose_form, show_count
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import Step
from s3unzip.settling.page import render_page
from s3unzip.settling.results import Results
from s3unzip.stores.ports import ObjectFacts

NO_REQUESTS = Requests()
TASKS_FAILED = "tasks-failed"  # the reason of a run in which some tasks did not end
MAX_TRIES = 20  # attempts to write one report; each fails if another writer was quicker
# The message about a run, whose id is inserted.
OVERTAKEN = f"{{}}: other writers replaced its report before each of {MAX_TRIES} writes"


def make_report(
    step: Step,
    plan: PlanSummary,
    results: Results,
    stop: Stop | None,
    *,
    requests: Requests = NO_REQUESTS,
    rounds: int = 0,
) -> Report:
    """Return the report of a run that ended.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: of all rounds.
        stop: why it ends early; None: nothing stopped it.
        requests: of the earlier settling steps.
        rounds: the number of rounds of the run.
    """
    missing = plan.failed + plan.selected - results.members  # members without an outcome
    fault = _find_fault(plan.run, results, stop, missing)
    verdict = Verdict.COMPLETED
    if fault is not None:
        verdict = fault.verdict
    elif results.counts[Status.FAILED]:
        verdict = Verdict.COMPLETED_WITH_ERRORS
    message = fault and fault.message
    if message is None and plan.excluded and not plan.selected:
        message = f"nothing is selected: the options exclude all {plan.excluded:,} members"
    report = replace(
        _sum_up(plan, results, verdict),
        reason=fault and fault.reason,
        message=message,
        missing=missing,
        requests=results.requests + plan.requests + requests + step.calls.requests,
        finished=step.context.clock.now(),
        rounds=rounds,
    )
    cost = price_run(report, step.context.platform)
    return replace(
        report, cost=cost and cost.total, after_success=_plan_source_action(plan.run, report)
    )


def _sum_up(plan: PlanSummary, results: Results, verdict: Verdict) -> Report:
    """Return a report with the sums of the plan and of the tasks."""
    return Report.of(
        plan.run.id,
        plan.run,
        plan.run.pin,
        verdict,
        members=plan.members,
        directories=plan.directories,
        excluded=plan.excluded,
        **{status.value: results.counts[status] for status in Status},
        reasons=dict(results.reasons.most_common()),
        warnings=dict(results.warnings + Counter(plan.warnings)),
        failures=tuple(results.failures),
        tasks=plan.tasks,
        workers=plan.workers,
        # A task that waits ended, but its member has no outcome.
        tasks_failed=len(results.unfinished) + len(results.waiting),
        bytes_in=results.bytes_read + plan.bytes_read,
        bytes_out=results.bytes_written,
        started=plan.started,
        plan_seconds=plan.plan_seconds,
        task_seconds=round(results.task_seconds, 6),
        first_object=results.first_object,
    )


def _find_fault(run: Run, results: Results, stop: Stop | None, missing: int) -> Stop | None:
    """Return why some members have no outcome; None: all have one, so a stop does not matter."""
    if not missing:
        return None
    if stop is not None:
        return stop
    if not (results.unfinished or results.waiting):  # all tasks that are on record have ended
        lost = f"{run.id}: {missing:,} members are in no task: a record of a round is damaged"
        return Stop(Verdict.FAILED, RECORD_UNREADABLE, lost)
    sentence = f"{show_count(missing, 'member')} {choose_form(missing, 'has', 'have')} no outcome"
    cause = results.fault or "their tasks did not end"
    return Stop(Verdict.FAILED, TASKS_FAILED, f"{sentence}: {cause}")


def write_marker(step: Step, report: Report) -> None:
    """Write the marker object, which says that the run is complete."""
    key = step.run.key_prefix + MARKER
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    facts = ObjectFacts("application/json", {})
    properties = step.run.options.objects
    if properties is not None:  # a bucket's policy may refuse objects without them
        facts = with_properties(facts, properties)
    step.calls.run("put", lambda: step.destination.put(key, body, facts, if_absent=False))


def write_report(
    report: Report,
    records: RunRecords,
    since: float,
    *,
    looked_up: tuple[bytes | None, Report | None] | None = None,
    page_for: Context | None = None,
    reopened: bool = False,
) -> tuple[Report, bool]:
    """Write a report, unless the one on record is better or newer.

    Args:
        report: of the run that ended.
        records: of the run.
        since: when the step that reports began to read the records, in Unix seconds.
        looked_up: what `look_up_report` would return, if the caller knows it; None: it is read.
        page_for: the context that renders the page; None: the report has no page.
        reopened: whether a person resumed the run to extract the failed members again.

    Returns:
        The report that is now on record, and whether it is the first one of the run.
    """
    has_page = False
    for _ in range(MAX_TRIES):
        data, earlier = looked_up or records.look_up_report()
        looked_up = None  # the next attempt reads it
        check_same_archive(report.run, report.source, report.pin, earlier)
        report = _keep_done_action(report, earlier)
        if earlier == report:  # the answer to this write was lost, or it is repeated
            return report, True
        if earlier is not None and not may_replace(report, earlier, since, reopened=reopened):
            if has_page and page_for is not None:  # another writer won after this one's page
                records.write_page(render_page(earlier, page_for))
            return earlier, False
        if page_for is not None:
            records.write_page(render_page(report, page_for))
            has_page = True
        with suppress(ConflictError):  # another writer was quicker: look again
            records.put_report(report, data)
            return report, earlier is None
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def may_replace(report: Report, earlier: Report, since: float, *, reopened: bool = False) -> bool:
    """Return whether a report whose step began at `since` may replace an earlier one."""
    rank = report.verdict.rank
    earlier_rank = earlier.verdict.rank
    if rank > earlier_rank:
        return True
    may_be_worse = reopened and earlier.verdict is Verdict.COMPLETED_WITH_ERRORS
    return (rank == earlier_rank or may_be_worse) and earlier.finished <= since


def amend_report(report: Report, change: Callable[[Report], Report], records: RunRecords) -> Report:
    """Change the report on record; return the changed report.

    Args:
        report: is changed instead of the one on record if that one cannot be read.
        change: returns the changed report.
        records: of the run.
    """
    for _ in range(MAX_TRIES):
        data, recorded = records.look_up_report()
        amended = change(recorded or report)
        with suppress(ConflictError):  # another writer was quicker: read again
            records.put_report(amended, data)
            return amended
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def _plan_source_action(run: Run, report: Report) -> SourceResult | None:
    """Return the action on the archive for a new report; None: there is no action."""
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    if run.pin.parts:
        obstacle = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    elif report.members > report.directories and not report.extracted + report.unchanged:
        obstacle = "no member of it was extracted"
    else:
        return SourceResult(rule.action, SourceState.PENDING)
    return SourceResult(rule.action, SourceState.KEPT, message=obstacle)


def _keep_done_action(report: Report, earlier: Report | None) -> Report:
    """Return `report`; if the earlier report says that the action is done, so does this one."""
    if earlier is None or earlier.after_success is None:
        return report
    if earlier.after_success.state is not SourceState.DONE:
        return report
    return replace(report, after_success=earlier.after_success)


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Delete or tag the archive if the report says that it is left; return the new report."""
    source = report.source
    pin = report.pin
    if rule is None or pin is None or not report.archive_left:
        return report
    calls = context.calls()
    finished = SourceResult(rule.action, SourceState.DONE)

    def act() -> None:
        store = context.stores.source(source)
        if rule.action is SourceAction.DELETE:
            if report.destination.store.is_local:
                # The members must be on disk before the archive is gone.
                os.sync()
            store.delete(source, pin)
        else:
            store.tag(source, pin, rule.tags)

    try:
        calls.run("head", act)  # either action begins with a HEAD of the archive
    except SourceChangedError as error:
        finished = SourceResult(rule.action, SourceState.KEPT, str(error))
    except S3UnzipError as error:
        finished = SourceResult(rule.action, SourceState.FAILED, str(error))

    def add_result(recorded: Report) -> Report:
        # Another step may have done the action: this one's failure must not replace that.
        return _keep_done_action(replace(recorded, after_success=finished), recorded)

    return amend_report(report, add_result, RunRecords.open(context.stores, report.run, calls))
