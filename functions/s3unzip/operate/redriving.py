"""Redrive of a deployed run: its execution, or what was to be done to its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.operate.queue import ArchiveEvent, send_events
from s3unzip.settling.after_success import is_left

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

    from s3unzip.operate.runs import DeployedRuns


def redrive(runs: DeployedRuns, run: str) -> None:
    """Continue a run; where only its archive is left to delete, move or tag, send its event again.

    Raises:
        NotFoundError: the run has no execution.
        UsageError: its execution did not fail, or failed too long ago.
        AccessDeniedError: a right is missing.
    """
    report = runs.records(run).find_report()
    if report is None or not is_left(report):
        runs.redrive(run)
        return
    event = ArchiveEvent(report.source, report.event_time or report.started)
    send_events(runs.client("sqs"), runs.outputs["QueueUrl"], [event], "redrive")


def why_not_redriven(run: str, state: str, error: ClientError) -> str:
    """Return why Step Functions does not redrive an execution in `state`, and what helps.

    It redrives executions that failed, timed out or were aborted, within 14 days after their end
    (AWS Step Functions Developer Guide, "Restarting state machine executions with redrive").
    """
    if state == "RUNNING":
        return f"{run}: is running; wait for its end: s3unzip watch {run}"
    if state == "SUCCEEDED":
        return (
            f"{run}: all its tasks have ended, nothing is left to redrive; "
            f"s3unzip retry {run} tries failed members again"
        )
    reason = error.response.get("Error", {}).get("Message", "")
    return f"{run}: {state}, cannot be redriven: {reason}"
