"""The list of runs that ended with their plan: rejected archives, and those above a budget.

They have a report and no execution, and reports cannot be listed by time. An
empty object a refusal, ``runs/-refused/<time, counted down>-<run>``, can: the
latest comes first. No run's id begins with a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws_lambda.timeline import entry_name, list_entries
from s3unzip.runs.watch import RunEntry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.aws_lambda.environment import LambdaConfig
    from s3unzip.context import Context
    from s3unzip.model import Location, Report

FOLDER = "-refused"
REFUSED = "REFUSED"


def note_refusal(worker: LambdaConfig, report: Report, context: Context) -> None:
    """Add a run to the list."""
    name = entry_name(report.run, report.started)
    worker.stores.run_store(FOLDER, context.calls()).write(name, [b""])


def list_refusals(client: S3Client, work: Location, limit: int) -> list[RunEntry]:
    """Return the latest refusals, at most 1,000.

    Raises:
        AccessDeniedError: a right is missing.
    """
    entries = list_entries(client, work, FOLDER, limit)
    return [RunEntry(entry.run, REFUSED, entry.time) for entry in entries]
