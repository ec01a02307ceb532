"""Listings below ``runs/``: folders, and objects of runs with the latest first.

The names of these objects are ``<folder>/<time>-<run>``. S3 lists keys in their order, so the time
is counted down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.aws.aws_faults import asking
from s3unzip.run_files import LAST_MILLISECOND, entry_name, run_of_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location

MAX_LISTED = 1_000  # one page of a LIST
DAY_DIGITS = 5  # of 13: names with the same ones are of the same 28 hours


def list_folders(client: S3Client, work: Location, beginning: str) -> Iterator[str]:
    """Yield the paths below ``runs/`` of the folders that begin so.

    Args:
        client: of S3.
        work: the prefix of all runs.
        beginning: of a run's id.

    Raises:
        AccessDeniedError: a right is missing.
    """
    prefix = f"{work.key}runs/"
    pages = client.get_paginator("list_objects_v2")
    with asking("s3:ListBucket"):
        for page in pages.paginate(Bucket=work.bucket, Prefix=prefix + beginning, Delimiter="/"):
            for one in page.get("CommonPrefixes", ()):
                yield one["Prefix"].removeprefix(prefix).rstrip("/")


class Entry(NamedTuple):
    """One object of a listing."""

    run: str
    time: float  # Unix seconds
    size: int  # bytes


def recent_prefixes(now: float) -> list[str]:
    """Return what the names of entries of the last hour begin with; a day's names begin alike."""
    spans = {entry_name("", time)[:DAY_DIGITS] for time in (now, now - 3_600.0)}
    return sorted(spans)


def list_entries(client: S3Client, work: Location, folder: str, limit: int) -> list[Entry]:
    """Return the latest entries of a folder, at most 1,000.

    Raises:
        AccessDeniedError: a right is missing.
    """
    prefix = f"{work.key}runs/{folder}/"
    with asking("s3:ListBucket"):
        answer = client.list_objects_v2(
            Bucket=work.bucket, Prefix=prefix, MaxKeys=min(limit, MAX_LISTED)
        )
    entries = []
    for found in answer.get("Contents", ()):
        left = int(found["Key"].removeprefix(prefix).partition("-")[0])
        time = (LAST_MILLISECOND - left) / 1_000
        entries.append(Entry(run_of_entry(found["Key"]), time, found["Size"]))
    return entries
