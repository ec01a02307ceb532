"""The report of a run: its content, who may write it, and the action on the archive afterwards.

The rules:

- A report counts the requests sent before it is made, not those that write the marker, the page
  and the report.
- Every step that ends a run writes its report with this module: settling, the intake function for a
  small archive, a plan that refuses the archive, and the step after a failed execution. Later steps
  use this module to amend the report.
- A verdict never replaces a better verdict. The best verdict is COMPLETED, followed by
  COMPLETED_WITH_ERRORS, then REJECTED, and finally FAILED and SOURCE_CHANGED. If two verdicts are
  equally good, the new report replaces the old report only if the old report was finished before
  the step of the new report began to read the records.
- The only exception: if a user resumes a run to extract its failed members again, any newer verdict
  may replace COMPLETED_WITH_ERRORS.
- A writer can run repeatedly, concurrently with other writers, or late, even hours after its
  execution was stopped. A write therefore succeeds only if the report has not changed since the
  writer read it (If-None-Match, If-Match). If the report has changed, the writer reads it again. If
  the response to a successful write is lost, the writer finds its own report.
- The page is written just before its report. If another writer stores its report first, the page is
  written again for that report.
- A report that cannot be read is treated as missing. It is an error if the recorded report is
  about another archive.
- If an archive is to be deleted or tagged after success, the first report says "pending". Then the
  archive is deleted or tagged, and the report is written again with the result. A failure does not
  change the verdict. A resumed run or a repeated event repeats the action, unless the recorded
  report says that the action is done. All later reports keep this result.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import ConflictError, S3UnzipError, ServiceFaultError, SourceChangedError
from s3unzip.extraction.member_object import with_properties
from s3unzip.model import (
    AfterSuccess,
    Location,
    Pin,
    PlanSummary,
    Report,
    Request,
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
from s3unzip.object_properties import ObjectProperties
from s3unzip.planning.select import MARKER
from s3unzip.pricing import price_run
from s3unzip.printable import choose_form, show_count
from s3unzip.run_ids import check_same_archive, run_stem
from s3unzip.runs.records import PAGE, RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import Step
from s3unzip.settling.page import render_page
from s3unzip.settling.results import Results, read_results
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Kind, ObjectFacts

NOT_READABLE = "not-readable"  # reason code of a run whose archive the store refuses to return
TASKS_FAILED = "tasks-failed"  # reason code of a run in which some tasks did not end
MAX_TRIES = 20  # maximum number of tries to write a report; a try fails if another writer is faster
# The kind under which `Calls` counts the first request of each action on an archive.
FIRST_REQUESTS: dict[SourceAction, Kind] = {SourceAction.DELETE: "delete", SourceAction.TAG: "get"}
# `{}` stands for the id of the run.
OVERTAKEN = f"{{}}: other writers replaced its report before each of {MAX_TRIES} writes"


def find_runs(source: Location, stores: Stores, calls: Calls, second: int) -> list[str]:
    """Return the recorded runs that may belong to `source`; their archives were put at `second`.

    The stem of such a run may be longer than that of `source`, so the caller must compare the
    archives.

    Args:
        source: the location of an archive.
        stores: the stores that contain the records of runs.
        calls: sends the requests, and retries those that fail.
        second: the time of the PUT, in Unix seconds.
    """
    put_at = datetime.fromtimestamp(second, UTC)
    day = f"{put_at:%Y-%m-%d}"
    names = stores.run_store(day, calls).names(f"{put_at:%H%M%S}-{run_stem(source)}")
    # Each name has the form "<run id without its day>/<record>".
    return sorted({f"{day}/{name.partition('/')[0]}" for name in names})


def find_reports(source: Location, stores: Stores, calls: Calls, second: int) -> list[Report]:
    """Return the reports of the runs that `find_runs` returns."""
    reports = (
        RunRecords.open(stores, run, calls).find_report()
        for run in find_runs(source, stores, calls, second)
    )
    return [report for report in reports if report is not None]


def report_unplanned(
    run: str, request: Request, pin: Pin | None, stop: Stop, *, now: float
) -> Report:
    """Return the report of a run that ends without a plan, for the reason in `stop`."""
    return Report.of(
        run,
        request,
        pin,
        stop.verdict,
        reason=stop.reason,
        message=stop.message,
        started=now,
        finished=now,
    )


def report_planned(plan: PlanSummary, stop: Stop, context: Context, calls: Calls) -> Report:
    """Return the report of a run that has a plan, and whose execution failed or was stopped.

    A recorded stop takes precedence over `stop`, because it is more precise.
    """
    step = Step(plan.run, context, calls)
    results = read_results(step, plan)
    cause = results.stop or step.records.find_stop() or stop
    # The state of the execution is lost, so the report contains 0 for the requests of settling and
    # for the number of rounds.
    return make_report(step, plan, results, cause, requests=Requests(), rounds=0)


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
    # The number of members without an outcome. Members that the plan refused are not selected, but
    # have outcomes (`plan.failed`).
    missing = plan.failed + plan.selected - results.members
    report = replace(
        results.sum_up(plan, Verdict.COMPLETED),
        missing=missing,
        requests=results.requests + plan.requests + requests + step.calls.requests,
        finished=step.context.clock.now(),
        rounds=rounds,
    )
    cause = _explain_missing(plan.run, results, stop, missing)
    if cause is not None:
        report = replace(report, verdict=cause.verdict, reason=cause.reason, message=cause.message)
    elif results.counts[Status.FAILED]:
        report = replace(report, verdict=Verdict.COMPLETED_WITH_ERRORS)
    elif plan.excluded and not plan.selected:
        report = replace(
            report,
            message="nothing is selected: the options exclude "
            + choose_form(plan.excluded, "the only member", f"all {plan.excluded:,} members"),
        )
    cost = price_run(report, step.context.platform)
    if cost is not None:
        report = replace(report, cost=cost.total)
    return replace(report, after_success=_plan_source_action(plan.run, report))


def _explain_missing(run: Run, results: Results, stop: Stop | None, missing: int) -> Stop | None:
    """Return why a run is incomplete; None if all members have final outcomes."""
    if not (missing or results.must_begin_anew):  # a stop that came too late has no effect
        return None
    if stop is not None:  # a run that must begin anew always has a stop
        return stop
    if not (results.unfinished or results.waiting):  # all recorded tasks have ended
        return Stop(
            Verdict.FAILED,
            RECORD_UNREADABLE,
            f"{run.id}: {show_count(missing, 'member')} {choose_form(missing, 'is', 'are')} in no "
            "task: a record of a round is damaged",
        )
    sentence = f"{show_count(missing, 'member')} {choose_form(missing, 'has', 'have')} no outcome"
    return Stop(
        Verdict.FAILED, TASKS_FAILED, f"{sentence}: {results.fault or 'their tasks did not end'}"
    )


def write_marker(step: Step, report: Report) -> None:
    """Write the object that marks the run as complete."""
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    # A bucket policy may require the properties for every object.
    properties = step.run.options.objects or ObjectProperties()
    facts = with_properties(ObjectFacts("application/json", {}), properties)
    step.calls.run(
        "put",
        lambda: step.destination.put(step.run.key_prefix + MARKER, body, facts, if_absent=False),
    )


def write_report(
    report: Report,
    records: RunRecords,
    outdated_until: float,
    *,
    looked_up: tuple[bytes | None, Report | None] | None = None,
    renderer: Context | None = None,
    reopened: bool = False,
) -> tuple[Report, bool]:
    """Write a report unless the recorded report is better or newer.

    Args:
        report: the report of the run that has ended.
        records: the records of the run.
        outdated_until: when the step that makes the report began to read the records, in Unix
            seconds. An equal verdict replaces a report only if that report was finished by then.
        looked_up: the result of `RunRecords.look_up_report`; if None, the report is read here.
        renderer: the context that renders the page; if None, no page is written.
        reopened: whether a user resumed the run to extract the failed members again.

    Returns:
        The report that is now recorded, and whether it is the first report of the run.
    """
    has_page = False
    for _ in range(MAX_TRIES):
        stored_bytes, earlier = looked_up or records.look_up_report()
        looked_up = None  # the next try reads the report
        check_same_archive(report.run, report.source, report.pin, earlier)
        report = _keep_done_action(report, earlier)
        if earlier == report:  # this step has written the report, but the response was lost
            return report, True  # whether this write replaced another report is not known
        if earlier is not None and not may_replace(
            report, earlier, outdated_until, reopened=reopened
        ):
            if has_page and renderer is not None:  # the page shows the report that is not kept
                records.store.write(PAGE, [render_page(earlier, renderer)])
            return earlier, False
        if renderer is not None:
            records.store.write(PAGE, [render_page(report, renderer)])
            has_page = True
        with suppress(ConflictError):  # another writer was faster: read the report again
            records.put_report(report, over=stored_bytes)
            return report, earlier is None
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def may_replace(
    report: Report, earlier: Report, outdated_until: float, *, reopened: bool = False
) -> bool:
    """Return whether a report may replace an earlier report.

    A report with a better verdict may always replace the earlier report. Otherwise, two conditions
    must be met:

    - The earlier report was finished by `outdated_until`, when the step of the new report began to
      read the records.
    - The verdicts are equally good; or the earlier verdict is COMPLETED_WITH_ERRORS and a user has
      resumed the run to extract its failed members again (`reopened`).
    """
    rank = report.verdict.rank
    earlier_rank = earlier.verdict.rank
    if rank > earlier_rank:
        return True
    may_be_worse = reopened and earlier.verdict is Verdict.COMPLETED_WITH_ERRORS
    return (rank == earlier_rank or may_be_worse) and earlier.finished <= outdated_until


def amend_report(report: Report, change: Callable[[Report], Report], records: RunRecords) -> Report:
    """Change the recorded report, and return the changed report.

    Args:
        report: the report to change if the recorded report cannot be read.
        change: function that takes the recorded report and returns the changed report.
        records: the records of the run.
    """
    for _ in range(MAX_TRIES):
        stored_bytes, recorded = records.look_up_report()
        amended = change(recorded or report)
        with suppress(ConflictError):  # another writer was faster: read the report again
            records.put_report(amended, over=stored_bytes)
            return amended
    raise ServiceFaultError(OVERTAKEN.format(records.run))


def _plan_source_action(run: Run, report: Report) -> SourceResult | None:
    """Return whether the archive is to be deleted or tagged, or why not; None without an action."""
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    if run.pin.parts:
        obstacle = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    elif report.members > report.directories and report.extracted + report.unchanged == 0:
        # This is no obstacle if the archive contains only folders: no member has to be extracted.
        obstacle = "none of its members was extracted"
    elif rule.action is SourceAction.DELETE and report.excluded:
        # A lenient run leaves out all but the last of the members that have the same key.
        obstacle = f"the run left out {show_count(report.excluded, 'member')} of the archive"
    else:
        return SourceResult(rule.action, SourceState.PENDING)
    return SourceResult(rule.action, SourceState.KEPT, message=obstacle)


def _keep_done_action(report: Report, earlier: Report | None) -> Report:
    if (
        earlier is not None
        and earlier.after_success is not None
        and earlier.after_success.state is SourceState.DONE
    ):
        return replace(report, after_success=earlier.after_success)
    return report


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Delete or tag the archive if this is still to be done; return the new report.

    The archive is kept if the action of `rule` is not the action with which the run began. For
    example, a run that should only tag its archive may have left out members. Deleting the archive
    would lose these members, because nothing else contains them.
    """
    pin = report.pin
    planned = report.after_success
    if pin is None or planned is None or not report.archive_left:
        return report
    calls = context.calls()
    if rule is None or rule.action is not planned.action:
        finished = SourceResult(
            planned.action,
            SourceState.KEPT,
            "after_success was changed in the environment after the run began",
        )
    else:
        try:
            calls.run(
                FIRST_REQUESTS[rule.action],
                lambda: _delete_or_tag(rule, pin, report, context),
                "source",
            )
            finished = SourceResult(rule.action, SourceState.DONE)
        except SourceChangedError as error:
            finished = SourceResult(rule.action, SourceState.KEPT, str(error))
        except S3UnzipError as error:
            finished = SourceResult(rule.action, SourceState.FAILED, str(error))

    def add_result(recorded: Report) -> Report:
        # If another step has finished the action, this step's failure must not replace that result.
        return _keep_done_action(replace(recorded, after_success=finished), recorded)

    return amend_report(report, add_result, RunRecords.open(context.stores, report.run, calls))


def _delete_or_tag(rule: AfterSuccess, pin: Pin, report: Report, context: Context) -> None:
    store = context.stores.source(report.source)
    if rule.action is SourceAction.TAG:
        store.tag(report.source, pin, rule.tags)
    else:
        if report.destination.store.is_local:
            os.sync()  # the members must be on disk before the archive is deleted
        store.delete(report.source, pin)
