"""What a set leaves: the places of its objects, their inventory, and their removal by token."""

import time
from collections import Counter
from typing import Any, NamedTuple

from acceptance.site import Site
from s3unzip.operate.canary import remove_versions
from s3unzip.runs.records import RUNS
from s3unzip.runs.run_list import RUNNING

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


def member_place(site: Site) -> Place:
    """Return the place of the members of this set."""
    prefix = site.member_prefix("any")
    own = prefix[: prefix.index(site.token) + len(site.token)]
    return Place("members", site.config.environment_defaults.destination.bucket, own)


def list_places(site: Site) -> list[Place]:
    """Return all places, archives first."""
    work = site.runs.work_location
    days = [time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (DAY, 0.0)]
    return [
        Place("archives", site.ingest, site.key("").rpartition("/")[0] + "/"),
        member_place(site),
        *(Place("runs", work.bucket, f"{work.key}{RUNS}{day}/", site.token) for day in days),
    ]


def list_versions(s3: Any, place: Place) -> list[Any]:
    """Return all versions and delete markers of a place, as S3 lists them."""
    pages = s3.get_paginator("list_object_versions")
    return [
        one
        for page in pages.paginate(Bucket=place.bucket, Prefix=place.prefix)
        for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        if place.has in one["Key"]
    ]


def _list_uploads(s3: Any, place: Place) -> list[dict[str, str]]:
    pages = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket=place.bucket, Prefix=place.prefix
    )
    return [
        {"Bucket": place.bucket, "Key": one["Key"], "UploadId": one["UploadId"]}
        for page in pages
        for one in page.get("Uploads", ())
        if place.has in one["Key"]
    ]


def take_inventory(site: Site) -> Counter[str]:
    """Count the versions at each place, and the uploads where there are some."""
    found: Counter[str] = Counter()
    for place in list_places(site):
        found[place.name] += len(list_versions(site.s3, place))
        if uploads := _list_uploads(site.s3, place):
            found[f"uploads of {place.name}"] += len(uploads)
    return found


def shown(found: Counter[str]) -> str:
    """Return an inventory in one line."""
    return ", ".join(f"{count:,} {name}" for name, count in found.items())


def remove_all(site: Site) -> Counter[str]:
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
        if found.total():
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
        given = {"MaxNumberOfMessages": 10, "VisibilityTimeout": HIDDEN_SECONDS}
        messages = site.sqs.receive_message(QueueUrl=url, **given).get("Messages", [])
        if not messages:
            break
        for message in messages:
            if site.token in message["Body"]:
                site.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                dropped += 1
    return dropped


def _remove(site: Site, place: Place) -> None:
    for upload in _list_uploads(site.s3, place):
        site.s3.abort_multipart_upload(**upload)
    remove_versions(site.runs, place.bucket, place.prefix, lambda key: place.has in key)


def _stop_runs(site: Site) -> bool:
    """Stop active runs and wait for their reports, which must not appear after the removal."""
    stopped = False
    for recent in list(site.runs.recent(MAX_RUNS)):
        if site.token in recent.run and recent.state == RUNNING:
            stopped |= site.runs.stop(recent.run)
            records = site.runs.records(recent.run)
            site.until(REPORT_SECONDS, lambda records=records: records.find_report() is not None)  # type: ignore[misc]  # mypy cannot infer a lambda's default
    return stopped
