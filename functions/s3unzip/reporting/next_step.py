"""The command that helps after a run: the command line and the report page name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.explanations import RETRYABLE
from s3unzip.model import Verdict

if TYPE_CHECKING:
    from s3unzip.model import Report


def next_command(report: Report, environment: str | None = None) -> str | None:
    """Return the command that goes on from `report`, None if nothing is left to do.

    Args:
        report: of the run.
        environment: whose run it is; None: this machine's.
    """
    where = f" --env {environment}" if environment else ""
    match report.verdict:
        case Verdict.COMPLETED_WITH_ERRORS if RETRYABLE.isdisjoint(report.reasons):
            return f"s3unzip show {report.run} --failures{where}"
        case Verdict.COMPLETED_WITH_ERRORS:
            return f"s3unzip retry {report.run}{where}"
        case Verdict.FAILED:
            return f"s3unzip redrive {report.run}{where}"
        case Verdict.SOURCE_CHANGED if report.source.scheme != "file" and not environment:
            return f"s3unzip run {report.source} {report.destination}"
        case _:
            return None
