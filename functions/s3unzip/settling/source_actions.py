"""After success: an archive that is extracted is deleted or tagged.

The action begins when ``report.json`` is written, with the state "pending" in it. Then the report
is written once more, with what came of it. A failure changes no verdict. A resumed run or a
repeated event does it again, and finds what is done.
"""

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
from s3unzip.settling.verdicts import amend_report


def source_result(run: Run, report: Report, earlier: Report | None) -> SourceResult | None:
    """Return what the report says of the archive; what an earlier report says is done stays so."""
    known, rule = earlier.after_success if earlier else None, run.after_success
    if known is not None and known.state is SourceState.DONE:
        return known
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    why = None
    if report.members > report.directories and not report.extracted + report.unchanged:
        why = "no member of it was extracted"
    if run.pin.parts:
        why = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    state = SourceState.KEPT if why else SourceState.PENDING
    return SourceResult(rule.action, state, message=why)


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Do what is to be done to the archive; return the report that says what came of it."""
    source, pin, calls = report.source, report.pin, context.calls()
    if rule is None or pin is None or not report.archive_left:
        return report
    result = SourceResult(rule.action, SourceState.DONE)

    def act() -> None:
        store = context.stores.source(source)
        if rule.action is SourceAction.DELETE:
            context.stores.destination(report.destination).sync()
            store.delete(source, pin)
        else:
            store.tag(source, pin, rule.tags)

    try:
        calls.run("head", act)
    except S3UnzipError as error:
        is_other = isinstance(error, SourceChangedError)
        state = SourceState.KEPT if is_other else SourceState.FAILED
        result = SourceResult(rule.action, state, str(error))

    def add_result(recorded: Report) -> Report:
        if recorded.after_success and recorded.after_success.state is SourceState.DONE:
            return recorded
        return replace(recorded, after_success=result)

    records = RunRecords.open(context.stores, report.run, calls)
    return amend_report(report, add_result, records)
