"""Removes the canary's objects with all their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import AccessDeniedError
from s3unzip.operate.doctor.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

MAX_DELETED = 1_000  # limit of one DeleteObjects


def remove_versions(
    s3: S3Client, bucket: str, prefix: str, wanted: Callable[[str], bool] | None = None
) -> int:
    """Delete all versions and delete markers of keys below `prefix`; return how many.

    Args:
        s3: a client that parses times or not.
        bucket: where they are.
        prefix: what their keys begin with.
        wanted: returns whether a key is to be deleted; None: all.

    Raises:
        AccessDeniedError: s3:ListBucketVersions, s3:DeleteObject or s3:DeleteObjectVersion is
            missing.
        S3UnzipError: S3 returns any other error.
    """
    found = ask("s3:ListBucketVersions", lambda: list(_versions(s3, bucket, prefix)))
    doomed = [one for one in found if wanted is None or wanted(one["Key"])]
    for at in range(0, len(doomed), MAX_DELETED):
        _delete(s3, bucket, doomed[at : at + MAX_DELETED])
    return len(doomed)


def _versions(s3: S3Client, bucket: str, prefix: str) -> Iterator[ObjectIdentifierTypeDef]:
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            yield {"Key": one["Key"], "VersionId": one["VersionId"]}


def _delete(s3: S3Client, bucket: str, doomed: list[ObjectIdentifierTypeDef]) -> None:
    action = "s3:DeleteObject, s3:DeleteObjectVersion"
    answer = ask(
        action, lambda: s3.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
    )
    refused = answer.get("Errors", ())
    if refused:  # DeleteObjects returns 200 even if it deleted no object
        first = refused[0]
        raise AccessDeniedError(
            f"{action}: {len(refused)} objects of {bucket} stay: {first.get('Code')} for "
            f"{first.get('Key')}"
        )
