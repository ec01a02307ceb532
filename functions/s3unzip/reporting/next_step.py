"""The command to run next after a run, for the command line and the report page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.explanations import RETRYABLE
from s3unzip.model import Verdict
from s3unzip.reporting.after_success import is_left

if TYPE_CHECKING:
    from s3unzip.model import Location, Report, Run


def next_command(report: Report, environment: str | None = None) -> str | None:
    """Return the command to run after `report`, None if there is nothing left to do.

    Args:
        report: of the run.
        environment: the run's environment; None for a run on this machine.
    """
    where = f" --env {environment}" if environment else ""
    match report.verdict:
        case Verdict.COMPLETED_WITH_ERRORS if RETRYABLE.isdisjoint(report.reasons):
            return f"s3unzip show {report.run} --failures{where}"
        case Verdict.COMPLETED_WITH_ERRORS | Verdict.FAILED if report.source.scheme == "stdin":
            return _pipe_again(report.destination)
        case Verdict.COMPLETED_WITH_ERRORS:
            return f"s3unzip retry {report.run}{where}"
        case Verdict.COMPLETED | Verdict.FAILED if _has_rest(report):
            return f"s3unzip redrive {report.run}{where}"
        case Verdict.SOURCE_CHANGED if report.source.scheme != "file" and not environment:
            return f"s3unzip run {report.source} {report.destination}"
        case _:
            return None


def _has_rest(report: Report) -> bool:
    return report.verdict is Verdict.FAILED or is_left(report)


def resume_command(run: Run) -> str:
    """Return the command that continues a run of this machine that was stopped."""
    if run.source.scheme == "stdin":
        return _pipe_again(run.destination)
    return f"s3unzip redrive {run.id}"


def _pipe_again(destination: Location) -> str:
    """Return how to pipe an archive in once more: members that are there already are left alone."""
    return f"COMMAND | s3unzip run - {destination} --on-conflict skip-unchanged"
