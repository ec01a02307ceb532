"""What a function does when a run has ended: to its archive, and to the records of a failure.

The report function writes ``failed.json`` when EventBridge reports an execution that failed, timed
out or was aborted. The run can still be redriven days later. What becomes of the archive is done,
logged and measured. It never fails an invocation: the run has ended, and its verdict stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.invocation import parse_field
from s3unzip.aws_lambda.telemetry import logger, record_source
from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.model import Report, Request, Verdict, decode
from s3unzip.reporting.after_success import finish_source, is_left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.context import Context
    from s3unzip.model import Run
    from s3unzip.runs.records import RunRecords

MAX_CAUSE = 1_000  # characters
TOLD = ("name", "status", "startDate", "stopDate", "error", "cause")


class RedrivenError(S3UnzipError):
    """The execution whose failure is reported was redriven: it reports its own end."""


class Ending:
    """The end of one execution of a run, which a step of it reports.

    An execution that is aborted does not end its functions. Its report function may still be at
    work when the execution has been redriven and has written a newer report.
    """

    def __init__(self, records: RunRecords, run: str, execution: str) -> None:
        """Look up how an earlier execution of the run ended."""
        self._records = records
        self._execution = execution
        self._failure = records.find_failure()
        # Not after a retry or a redrive. Only then the time since the put of the archive measures
        # the speed of the pipeline.
        self.is_first = execution == run and self._failure is None

    def check(self) -> None:
        """Look again, as the last thing before the report is written.

        Raises:
            ServiceFaultError: meanwhile the execution was reported as failed or aborted. A step
                that is still wanted is tried again.
        """
        failure = self._records.find_failure()
        if failure and failure != self._failure and failure["name"] == self._execution:
            raise ServiceFaultError("the execution ended while this function made its report")


def unplanned_report(detail: Mapping[str, Any], now: float) -> Report:
    """Return the report of a run whose execution failed before it had a plan.

    Args:
        detail: of EventBridge's event; its ``input`` is that of the execution.
        now: Unix seconds.

    Raises:
        UsageError: the execution was not started for an archive.
    """
    payload = decode(detail.get("input") or "{}", dict[str, Any])
    request = parse_field(payload, "request", Request)
    cause = ": ".join(str(detail[name]) for name in ("error", "cause") if detail.get(name))
    return Report(
        run=detail["name"],
        verdict=Verdict.FAILED,
        source=request.source.public,
        pin=None,
        destination=request.destination,
        options=request.options,
        reason="plan-failed",
        message=f"the planner failed: {cause[:MAX_CAUSE] or detail['status']}",
        event_time=request.event_time,
        started=now,
        finished=now,
    )


def note_failure(records: RunRecords, detail: Mapping[str, Any]) -> None:
    """Record how the execution ended, and let the tasks of a redrive begin.

    `detail` is that of EventBridge's "Step Functions Execution Status Change".
    """
    records.write_failure({name: detail[name] for name in TOLD if name in detail})
    records.delete_stop()


def end_source(run: Run, report: Report, context: Context) -> None:
    """Delete, move or tag the archive of a run whose report is written, if that is to be done."""
    if not is_left(report):
        return
    try:
        result = finish_source(run, report, context).after_success
    except S3UnzipError:
        logger.exception("the report cannot be written again")
        return
    if result is not None:
        record_source(result)


def end_source_again(records: RunRecords, context: Context, run: Run | None = None) -> None:
    """Do for a known run what an earlier attempt did not do.

    Args:
        records: of the run.
        context: of the invocation.
        run: the run itself, if the caller has it.

    Raises:
        StorageError, ServiceFaultError: the records cannot be read.
    """
    report = records.find_report()
    if report is not None and is_left(report):
        end_source(run or records.read_run(), report, context)
