"""After success: an extracted archive is deleted or tagged.

First ``report.json`` is written with the state "pending". Then the archive is deleted or tagged,
and the report is written again with the result. A failure does not change the verdict. A resumed
run or a repeated event repeats the action unless the report says that it is done.
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
    """Return the action on the archive for a new report; None: there is no action.

    If the earlier report says that the action is done, so does the new one.
    """
    earlier_result = None
    if earlier is not None:
        earlier_result = earlier.after_success
    if earlier_result is not None and earlier_result.state is SourceState.DONE:
        return earlier_result
    rule = run.after_success
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    obstacle = None  # why the archive must stay
    if report.members > report.directories and not report.extracted + report.unchanged:
        obstacle = "no member of it was extracted"
    if run.pin.parts:
        obstacle = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    return SourceResult(
        rule.action, SourceState.KEPT if obstacle else SourceState.PENDING, message=obstacle
    )


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
            # The members must be on disk before the archive is gone.
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
        # Another step may have done the action: this one's failure must not replace that.
        if recorded.after_success and recorded.after_success.state is SourceState.DONE:
            return recorded
        return replace(recorded, after_success=finished)

    return amend_report(report, add_result, RunRecords.open(context.stores, report.run, calls))
