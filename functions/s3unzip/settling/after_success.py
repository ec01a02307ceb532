"""After success: delete, move or tag the archive of a run that is COMPLETED.

It begins when ``report.json`` is written, with the state "pending" in it. Then the report is
written once more, with what came of it and the requests that it took. A failure changes no
verdict; a redrive, a retry or a repeated event does it again, and finds what is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import S3UnzipError, SourceChangedError, StorageError
from s3unzip.model import SourceAction, SourceResult, SourceState, Verdict
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import AfterSuccess, Report, Run
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
    return SourceResult(rule.action, state, rule.target, why)


def is_left(report: Report) -> bool:
    """Return whether there is something to do to the archive, for the first time or again."""
    return report.after_success is not None and report.after_success.state in WORTH_DOING


def finish_source(run: Run, report: Report, context: Context) -> Report:
    """Do what is to be done to the archive, and return the report that says what came of it.

    Args:
        run: with the rule.
        report: of the run, as it is written.
        context: of this worker.

    Raises:
        StorageError, ServiceFaultError: the report cannot be written again.
    """
    rule = run.after_success
    if rule is None or not is_left(report):
        return report
    calls = context.calls()
    result = _try(rule, run, context, calls)
    records = RunRecords.open(context.stores, run.id, calls)
    finished = replace(report, after_success=result)
    # The report of a direct run was made in memory, so it does not count its own writing.
    remote = report.settling.put > 0 or report.records is not None
    return records.rewrite_report(finished.counting, remote=remote)


def _try(rule: AfterSuccess, run: Run, context: Context, calls: Calls) -> SourceResult:
    """Do the action; what goes wrong is in the result."""

    def end(state: SourceState, message: str | None = None) -> SourceResult:
        return SourceResult(rule.action, state, rule.target, message)

    try:
        _do(rule, run, context, calls)
    except SourceChangedError as error:
        return end(SourceState.KEPT, str(error))
    except S3UnzipError as error:
        return end(SourceState.FAILED, str(error))
    return end(SourceState.DONE)


def _do(rule: AfterSuccess, run: Run, context: Context, calls: Calls) -> None:
    disposal = context.stores.disposal(run.source)

    def act() -> None:
        if rule.action is SourceAction.DELETE:
            disposal.delete(run.source, run.pin)
        elif rule.action is SourceAction.TAG:
            disposal.tag(run.source, run.pin, rule.tags)
        else:
            raise StorageError(f"{run.source}: archives are not moved any more: delete or tag them")

    if run.source.scheme == "file":
        act()  # no request
    else:
        calls.run("head", act)
