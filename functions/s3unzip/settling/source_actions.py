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
    """Return the state of the action in the report; an earlier report's DONE stays."""
    earlier_result = None
    if earlier is not None:
        earlier_result = earlier.after_success
    if earlier_result is not None and earlier_result.state is SourceState.DONE:
        return earlier_result
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    obstacle = None
    if report.members > report.directories and not report.extracted + report.unchanged:
        obstacle = "no member of it was extracted"
    if run.pin.parts:
        obstacle = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    return SourceResult(
        rule.action, SourceState.KEPT if obstacle else SourceState.PENDING, message=obstacle
    )


def finish_source(rule: AfterSuccess | None, report: Report, context: Context) -> Report:
    """Delete or tag the archive; return the report with the result."""
    source = report.source
    pin = report.pin
    if rule is None or pin is None or not report.archive_left:
        return report
    calls = context.calls()
    finished = SourceResult(rule.action, SourceState.DONE)

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
        state = SourceState.KEPT if isinstance(error, SourceChangedError) else SourceState.FAILED
        finished = SourceResult(rule.action, state, str(error))

    def add_result(recorded: Report) -> Report:
        if recorded.after_success and recorded.after_success.state is SourceState.DONE:
            return recorded
        return replace(recorded, after_success=finished)

    return amend_report(report, add_result, RunRecords.open(context.stores, report.run, calls))
