"""Redrive of a deployed run: its execution, or what was to be done to its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.operate.queue import ArchiveEvent, send_events
from s3unzip.reporting.after_success import is_left

if TYPE_CHECKING:
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
