"""After success: delete or tag the archive of a run that is COMPLETED.

It begins when ``report.json`` is written, with the state "pending" in it. Then the report is
written once more, with what came of it. A failure changes no verdict; a resumed run or a repeated
event does it again, and finds what is done.
"""

from __future__ import annotations

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import S3UnzipError, SourceChangedError
from s3unzip.model import (
    AfterSuccess,
    Report,
    Run,
    SourceAction,
    SourceResult,
    SourceState,
    Verdict,
)
from s3unzip.runs.records import RunRecords
from s3unzip.stores.calls import Calls

WORTH_DOING = frozenset({SourceState.PENDING, SourceState.FAILED})


def source_result(run: Run, judged: Report, earlier: Report | None) -> SourceResult | None:
    """Return what the report says of the archive; what an earlier report says is done stays so."""
    known = earlier.after_success if earlier is not None else None
    if known is not None and known.state is SourceState.DONE:
        return known
    return pending_result(run, judged)


def pending_result(run: Run, report: Report) -> SourceResult | None:
    """Return what the report says before the action; None if there is none to do."""
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    why = None
    if report.members > report.directories and not report.extracted + report.unchanged:
        why = "no member of it was extracted"
    if run.pin.parts:
        why = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    state = SourceState.KEPT if why else SourceState.PENDING
    return SourceResult(rule.action, state, message=why)


def is_left(report: Report) -> bool:
    """Return whether there is something to do to the archive, for the first time or again."""
    return report.after_success is not None and report.after_success.state in WORTH_DOING


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Do what is to be done to the archive; return the report that says what came of it."""
    if rule is None or report.pin is None or not is_left(report):
        return report
    calls = context.calls()
    finished = replace(report, after_success=_try(rule, report, context, calls))
    RunRecords.open(context.stores, report.run, calls).amend_report(finished)
    return finished


def _try(rule: AfterSuccess, report: Report, context: Context, calls: Calls) -> SourceResult:
    """Do the action; what goes wrong is in the result."""
    try:
        _do(rule, report, context, calls)
    except SourceChangedError as error:
        return SourceResult(rule.action, SourceState.KEPT, message=str(error))
    except S3UnzipError as error:
        return SourceResult(rule.action, SourceState.FAILED, message=str(error))
    return SourceResult(rule.action, SourceState.DONE)


def _do(rule: AfterSuccess, report: Report, context: Context, calls: Calls) -> None:
    source, pin = report.source, report.pin
    disposal = context.stores.disposal(source)

    def act() -> None:
        if pin is None:
            return
        if rule.action is SourceAction.DELETE:
            disposal.delete(source, pin)
        else:
            disposal.tag(source, pin, rule.tags)

    if source.scheme == "file":
        act()  # no request
    else:
        calls.run("head", act)
