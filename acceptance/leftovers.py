"""What a set leaves: the places of its objects, their inventory, and their removal by token."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

from acceptance.site import Site
from s3unzip.operate.runs import RUNNING
from s3unzip.runs.records import RUNS

AT_ONCE = 1_000  # keys of one DeleteObjects
QUIET_SECONDS = 1.0  # seconds without new objects before the set counts as clean
STOPPED_SECONDS = 10.0  # the same after an execution was stopped: its functions may still run
REPORT_SECONDS = 60.0  # from a stopped execution to its report
CLEAN_SECONDS = 300.0
DAY = 86_400.0
NO_DEAD_LETTERS = {"QueueUrl", "DashboardUrl"}  # the other URLs of the stack are of these
MAX_RUNS = 1_000  # that are searched for those of the set
HIDDEN_SECONDS = 30  # visibility timeout of the other messages during the search
MAX_LOOKED = 100  # answers of ten messages each


class Place(NamedTuple):
    """A prefix of a bucket below which only this set writes; its keys contain `has`."""

    name: str
    bucket: str
    prefix: str
    has: str = ""


class Version(NamedTuple):
    """One version of an object, or a delete marker."""

    key: str
    version: str
    modified: datetime


class Inventory(NamedTuple):
    """The objects at one place."""

    place: str
    versions: int  # object versions and delete markers
    uploads: int  # incomplete multipart uploads


def member_place(site: Site) -> Place:
    """Return the place of the members of this set."""
    prefix = site.member_prefix("any")
    own = prefix[: prefix.index(site.token) + len(site.token)]
    return Place("members", site.defaults.destination.bucket, own)


def list_places(site: Site) -> list[Place]:
    """Return all places, archives first."""
    work = site.runs.work_location
    days = [time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (DAY, 0.0)]
    return [
        Place("archives", site.ingest, site.key("").rpartition("/")[0] + "/"),
        member_place(site),
        *(Place("runs", work.bucket, f"{work.key}{RUNS}{day}/", site.token) for day in days),
    ]


def list_versions(s3: Any, place: Place) -> list[Version]:
    """Return all versions and delete markers of a place."""
    pages = s3.get_paginator("list_object_versions").paginate(
        Bucket=place.bucket, Prefix=place.prefix
    )
    return [
        Version(one["Key"], one["VersionId"], one["LastModified"])
        for page in pages
        for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        if place.has in one["Key"]
    ]


def list_uploads(s3: Any, place: Place) -> list[dict[str, str]]:
    """Return the incomplete multipart uploads of a place."""
    pages = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket=place.bucket, Prefix=place.prefix
    )
    return [
        {"Bucket": place.bucket, "Key": one["Key"], "UploadId": one["UploadId"]}
        for page in pages
        for one in page.get("Uploads", ())
        if place.has in one["Key"]
    ]


def take_inventory(site: Site) -> list[Inventory]:
    """Count the versions and uploads at each place."""
    versions: Counter[str] = Counter()
    uploads: Counter[str] = Counter()
    for place in list_places(site):
        versions[place.name] += len(list_versions(site.s3, place))
        uploads[place.name] += len(list_uploads(site.s3, place))
    return [Inventory(name, versions[name], uploads[name]) for name in versions]


def shown(found: list[Inventory]) -> str:
    """Return an inventory in one line."""
    return ", ".join(
        f"{one.versions:,} {one.place}" + (f" and {one.uploads} uploads" if one.uploads else "")
        for one in found
    )


def is_empty(found: list[Inventory]) -> bool:
    """Return whether nothing is left."""
    return not any(one.versions or one.uploads for one in found)


def remove_all(site: Site) -> list[Inventory]:
    """Stop this set's runs and remove all that it left; return what could not be removed.

    The order is: first the archives, so that no event starts a run; then active runs are stopped;
    then everything is removed, repeatedly until nothing new appears.
    """
    _remove(site, list_places(site)[0])
    quiet = STOPPED_SECONDS if _stop_runs(site) else QUIET_SECONDS
    until = time.monotonic() + CLEAN_SECONDS
    empty_since: float | None = None
    while True:
        found = take_inventory(site)
        now = time.monotonic()
        if not is_empty(found):
            empty_since = None
            for place in list_places(site):
                _remove(site, place)
        elif empty_since is None:
            empty_since = now
        elif now - empty_since >= quiet:
            return found
        if now >= until:
            return found
        time.sleep(0.2)


def drop_dead_letters(site: Site) -> int:
    """Delete the dead letters that name this set's token; return how many there were."""
    outputs = site.runs.outputs
    names = [name for name in outputs if name.endswith("Url") and name not in NO_DEAD_LETTERS]
    return sum(_drop(site, outputs[name]) for name in names)


def _drop(site: Site, url: str) -> int:
    dropped = 0
    for _ in range(MAX_LOOKED):
        answer = site.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN_SECONDS
        )
        messages = answer.get("Messages", [])
        if not messages:
            break
        for message in messages:
            if site.token in message["Body"]:
                sent = message["ReceiptHandle"]
                site.sqs.delete_message(QueueUrl=url, ReceiptHandle=sent)
                dropped += 1
    return dropped


def _remove(site: Site, place: Place) -> None:
    """Remove every version and every upload of a place."""
    for upload in list_uploads(site.s3, place):
        site.s3.abort_multipart_upload(**upload)
    versions = list_versions(site.s3, place)
    for at in range(0, len(versions), AT_ONCE):
        some = versions[at : at + AT_ONCE]
        keys = [{"Key": one.key, "VersionId": one.version} for one in some]
        site.s3.delete_objects(Bucket=place.bucket, Delete={"Objects": keys, "Quiet": True})


def _stop_runs(site: Site) -> bool:
    """Stop active runs and wait for their reports, which must not appear after the removal."""
    stopped = False
    for run, state, _ in list(site.runs.recent(MAX_RUNS)):
        if site.token in run and state == RUNNING:
            stopped |= site.runs.stop(run)
            records = site.runs.records(run)
            site.until(REPORT_SECONDS, lambda records=records: records.find_report() is not None)  # type: ignore[misc]  # mypy cannot infer a lambda's default
    return stopped
