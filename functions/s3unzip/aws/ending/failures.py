"""The ends of executions, and the records of those that failed.

The report function writes ``failed.json`` when EventBridge reports an execution that failed, timed
out or was aborted. The run can still be redriven days later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws.invocation import parse_field
from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.model import Report, Request, Stop, Verdict, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    def name(self, failure: Mapping[str, Any] | None) -> str:
        """Return a name that no other end of a run has; that of its execution for the first one.

        Args:
            failure: the detail of the failure that is reported; None: the execution succeeded.
        """
        known = failure or self._failure
        if known is None:
            return self._execution
        status = known["status"] if failure else "SUCCEEDED"
        return f"{self._execution} {status} {known.get('stopDate')}"

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
    message = f"the planner failed: {cause[:MAX_CAUSE] or detail['status']}"
    stop = Stop(Verdict.FAILED, reason="plan-failed", message=message)
    return report_without_plan(detail["name"], request, stop, now, now)


def report_without_plan(
    run: str, request: Request, stop: Stop, started: float, finished: float
) -> Report:
    """Return the report of a run that ended before it had a plan.

    Args:
        run: its id.
        request: of the run.
        stop: why it ended.
        started: Unix seconds.
        finished: Unix seconds.
    """
    return Report(
        run=run,
        verdict=stop.verdict,
        source=request.source.public,
        pin=None,
        destination=request.destination,
        options=request.options,
        reason=stop.reason,
        message=stop.message,
        event_time=request.event_time,
        started=started,
        finished=finished,
    )


def note_failure(records: RunRecords, detail: Mapping[str, Any]) -> None:
    """Record how the execution ended, and let the tasks of a redrive begin.

    `detail` is that of EventBridge's "Step Functions Execution Status Change".
    """
    records.write_failure({name: detail[name] for name in TOLD if name in detail})
    records.delete_stop()
