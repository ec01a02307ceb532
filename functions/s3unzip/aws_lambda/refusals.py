"""The list of runs that ended with their plan: rejected archives, and those above a budget.

They have a report and no execution, and reports cannot be listed by time. An
empty object a refusal, ``runs/-refused/<time, counted down>-<run>``, can: the
latest comes first. No run's id begins with a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from s3unzip.aws_lambda.errors import read_fault
from s3unzip.runs.watch import RunEntry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.aws_lambda.environment import LambdaConfig
    from s3unzip.context import Context
    from s3unzip.model import Location, Report

FOLDER = "-refused"
REFUSED = "REFUSED"
LAST = 10**13  # milliseconds: the year 2286
MAX_LISTED = 1_000  # one page of a LIST


def note_refusal(worker: LambdaConfig, report: Report, context: Context) -> None:
    """Add a run to the list."""
    name = f"{LAST - round(report.started * 1_000):013d}-{report.run}"
    worker.stores.run_store(FOLDER, context.calls()).write(name, [b""])


def list_refusals(client: S3Client, work: Location, limit: int) -> list[RunEntry]:
    """Return the latest refusals, at most 1,000.

    Raises:
        AccessDeniedError: a right is missing.
    """
    prefix = f"{work.key}runs/{FOLDER}/"
    try:
        answer = client.list_objects_v2(
            Bucket=work.bucket, Prefix=prefix, MaxKeys=min(limit, MAX_LISTED)
        )
    except (BotoCoreError, ClientError) as error:
        raise read_fault(error, "s3:ListBucket") from None
    entries = []
    for found in answer.get("Contents", ()):
        left, _, run = found["Key"].removeprefix(prefix).partition("-")
        entries.append(RunEntry(run, REFUSED, (LAST - int(left)) / 1_000))
    return entries
