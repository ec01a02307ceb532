"""The ids of the runs that have records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws_lambda.errors import asking

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location

MAX_RUNS = 1_000  # that are searched for the beginning of an id


def list_run_ids(client: S3Client, work: Location, name: str) -> list[str]:
    """Return the ids that begin with `name` of runs with records.

    Raises:
        AccessDeniedError: a right is missing.
    """
    prefix = f"{work.key}runs/"
    with asking("s3:ListBucket"):
        answer = client.list_objects_v2(
            Bucket=work.bucket, Prefix=prefix + name, Delimiter="/", MaxKeys=MAX_RUNS
        )
    found = [one["Prefix"] for one in answer.get("CommonPrefixes", ())]
    names = [one.removeprefix(prefix).rstrip("/") for one in found]
    return [one for one in names if not one.startswith("-")]
