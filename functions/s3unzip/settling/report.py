"""The report of a run: its content, who may write it, and the action on the archive after it.

The rules:

- Requests are counted up to the writing of the report, excluding the request that writes it.
- This module writes the report for each step that ends a run: settling, the intake function for a
  small archive, the refusal of a plan, and the failure of an execution. Later steps also use this
  module to amend the report.
- A verdict never replaces a better verdict. The best verdict is COMPLETED, followed by
  COMPLETED_WITH_ERRORS, then REJECTED, and finally FAILED and SOURCE_CHANGED. A verdict replaces an
  equally good verdict if its step began to read the records after the old verdict was written.
- If a user resumes a run to extract its failed members again, any newer verdict may replace
  COMPLETED_WITH_ERRORS.
- A writer can be repeated, concurrent with other writers, or late: hours after its execution was
  stopped. Each writer therefore writes on the condition that the report that it read is still there
  (If-None-Match, If-Match). If the report has changed, the writer reads again. If the answer to a
  successful write is lost, the writer finds its own report.
- The page is written just before its report. If another writer's report is stored first, the page
  is written again for that report.
- A report that cannot be read is treated as missing. A report on another archive is an error.
- An archive that is to be deleted or tagged after success is "pending" in the first report. The
  archive is then deleted or tagged, and the report is written again with the result. A failure does
  not change the verdict. A resumed run or a repeated event repeats the action unless the report on
  record shows that the action is done. Each later report also shows this.
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
from s3unzip.runs.records import PAGE, RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import Step
from s3unzip.settling.page import render_page
from s3unzip.settling.results import Results
from s3unzip.stores.ports import Kind, ObjectFacts

TASKS_FAILED = "tasks-failed"  # reason of a run in which some tasks did not end
MAX_TRIES = 20  # maximum attempts to write a report; one fails if another writer is faster
# The kind of request that each action on an archive always needs.
FIRST_REQUESTS: dict[SourceAction, Kind] = {SourceAction.DELETE: "delete", SourceAction.TAG: "get"}
# The message about a run; the id of the run is inserted.
OVERTAKEN = f"{{}}: other writers replaced its report before each of {MAX_TRIES} writes"


def make_report(
    step: Step,
    plan: PlanSummary,
    results: Results,
    stop: Stop | None,
    *,
    requests: Requests,
    rounds: int,
) -> Report:
    """Return the report of a run that has ended.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        results: the results of all rounds.
        stop: why the run ends early; None if nothing stopped it.
        requests: the requests of the earlier settling steps.
        rounds: the number of rounds of the run.
    """
    missing = plan.failed + plan.selected - results.members  # number of members without an outcome
    fault = _find_fault(plan.run, results, stop, missing)
    verdict = Verdict.COMPLETED
    if fault is not None:
        verdict = fault.verdict
    elif results.counts[Status.FAILED]:
        verdict = Verdict.COMPLETED_WITH_ERRORS
    message = fault and fault.message
    if message is None and plan.excluded and not (plan.selected or plan.failed):
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
    """Return a report with the totals of the plan and of the tasks."""
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
        # A waiting task has ended, but its member has no outcome.
        tasks_failed=len(results.unfinished) + len(results.waiting),
        bytes_in=results.bytes_read + plan.bytes_read,
        bytes_out=results.bytes_written,
        started=plan.started,
        plan_seconds=plan.plan_seconds,
        task_seconds=round(results.task_seconds, 6),
        first_object=results.first_object,
    )


def _find_fault(run: Run, results: Results, stop: Stop | None, missing: int) -> Stop | None:
    """Return why some members have no outcome; None if all have one, even if there is a stop."""
    if not missing:
        return None
    if stop is not None:
        return stop
    if not (results.unfinished or results.waiting):  # all tasks on record have ended
        lost = f"{run.id}: {missing:,} members are in no task: a record of a round is damaged"
        return Stop(Verdict.FAILED, RECORD_UNREADABLE, lost)
    sentence = f"{show_count(missing, 'member')} {choose_form(missing, 'has', 'have')} no outcome"
    cause = results.fault or "their tasks did not end"
    return Stop(Verdict.FAILED, TASKS_FAILED, f"{sentence}: {cause}")


def write_marker(step: Step, report: Report) -> None:
    """Write the marker object, which indicates that the run is complete."""
    key = step.run.key_prefix + MARKER
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    facts = ObjectFacts("application/json", {})
    properties = step.run.options.objects
    if properties is not None:  # the policy of a bucket can refuse objects without them
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
    """Write a report unless the report on record is better or newer.

    Args:
        report: the report of the run that has ended.
        records: the records of the run.
        since: when the reporting step began to read the records, in Unix seconds.
        looked_up: what `look_up_report` would return; None if the caller does not know it.
        page_for: the context that renders the page; None if the report has no page.
        reopened: whether a user resumed the run to extract the failed members again.

    Returns:
        The report that is now on record, and whether it is the first report of the run.
    """
    has_page = False
    for _ in range(MAX_TRIES):
        data, earlier = looked_up or records.look_up_report()
        looked_up = None  # the next attempt reads the report
        check_same_archive(report.run, report.source, report.pin, earlier)
        report = _keep_done_action(report, earlier)
        if earlier == report:  # the answer to this write was lost, or the write is repeated
            return report, True
        if earlier is not None and not may_replace(report, earlier, since, reopened=reopened):
            if has_page and page_for is not None:  # another report was stored after this page
                records.store.write(PAGE, [render_page(earlier, page_for)])
            return earlier, False
        if page_for is not None:
            records.store.write(PAGE, [render_page(report, page_for)])
            has_page = True
        with suppress(ConflictError):  # another writer was faster: read the report again
            records.put_report(report, data)
            return report, earlier is None
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def may_replace(report: Report, earlier: Report, since: float, *, reopened: bool = False) -> bool:
    """Return whether a report whose step began at `since` may replace an earlier report."""
    rank = report.verdict.rank
    earlier_rank = earlier.verdict.rank
    if rank > earlier_rank:
        return True
    may_be_worse = reopened and earlier.verdict is Verdict.COMPLETED_WITH_ERRORS
    return (rank == earlier_rank or may_be_worse) and earlier.finished <= since


def amend_report(report: Report, change: Callable[[Report], Report], records: RunRecords) -> Report:
    """Change the report on record; return the changed report.

    Args:
        report: the report to change if the report on record cannot be read.
        change: returns the changed report.
        records: the records of the run.
    """
    for _ in range(MAX_TRIES):
        data, recorded = records.look_up_report()
        amended = change(recorded or report)
        with suppress(ConflictError):  # another writer was faster: read the report again
            records.put_report(amended, data)
            return amended
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def _plan_source_action(run: Run, report: Report) -> SourceResult | None:
    """Return the action on the archive for a new report; None if there is no action."""
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    if run.pin.parts:
        obstacle = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    # An archive of folders alone has nothing to extract, and is complete.
    elif report.members > report.directories and report.extracted + report.unchanged == 0:
        obstacle = "no member of it was extracted"
    else:
        return SourceResult(rule.action, SourceState.PENDING)
    return SourceResult(rule.action, SourceState.KEPT, message=obstacle)


def _keep_done_action(report: Report, earlier: Report | None) -> Report:
    """Return `report`, with its action marked as done if the earlier report marks it as done."""
    if (
        earlier is not None
        and earlier.after_success is not None
        and earlier.after_success.state is SourceState.DONE
    ):
        return replace(report, after_success=earlier.after_success)
    return report


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Delete or tag the archive if this is still to be done; return the new report."""
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
                # The members must be on disk before the archive is deleted.
                os.sync()
            store.delete(source, pin)
        else:
            store.tag(source, pin, rule.tags)

    try:
        calls.run(FIRST_REQUESTS[rule.action], act, "source")
    except SourceChangedError as error:
        finished = SourceResult(rule.action, SourceState.KEPT, str(error))
    except S3UnzipError as error:
        finished = SourceResult(rule.action, SourceState.FAILED, str(error))

    def add_result(recorded: Report) -> Report:
        # Another step may have done the action: a failure of this step must not replace that
        # result.
        return _keep_done_action(replace(recorded, after_success=finished), recorded)

    return amend_report(report, add_result, RunRecords.open(context.stores, report.run, calls))
