"""Records how failed executions of a run ended.

The report function writes ``failed.json`` when EventBridge reports an execution that failed, timed
out or was aborted. The run can still be redriven days later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws_lambda.invocation import parse_field
from s3unzip.model import Report, Request, Verdict, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.runs.records import RunRecords

MAX_CAUSE = 1_000  # characters
TOLD = ("name", "status", "startDate", "stopDate", "error", "cause")


def is_first_end(records: RunRecords, run: str, execution: str) -> bool:
    """Return whether the run ends for the first time, that is, not after a retry or a redrive.

    Only then its time since the put of the archive measures the speed of the pipeline.
    """
    return execution == run and not records.has_failure()


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
