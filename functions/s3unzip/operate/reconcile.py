"""Finds archives that never got a verdict, and those that should be gone after their runs.

S3 sends an event at least once, but may send one for two writes of an unversioned key, and somebody
may purge a queue. A function may be killed after it wrote a run's report, and before it deleted
or tagged the archive. So `reconcile` lists the bucket, computes each archive's run id as the
planner does, and looks up the run. What it cannot read of one archive hides no other one.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from s3unzip.errors import NotFoundError, StorageError, UnreadableRecordError, UsageError
from s3unzip.model import Location, SourceState, Verdict, check_same_archive, run_id
from s3unzip.operate.control_plane import asking
from s3unzip.operate.runs import RUNNING, DeployedRuns
from s3unzip.operate.submit import send_events
from s3unzip.planning.plan import read_whole_tail
from s3unzip.settling.loop import look_up_run
from s3unzip.stores.calls import Calls
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.listing import bound_pages
from s3unzip.zip import TAIL_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_s3.type_defs import ObjectTypeDef

    from s3unzip.model import Report, Request
    from s3unzip.stores.ports import Tail

THREADS = 32  # archives that are looked up concurrently
# The longest time of a function: an action that is pending for longer was cut off.
ACTION_SECONDS = 900.0

State = Literal["no run", "not finished", "archive left", "put back", "not readable"]


class Unsettled(Struct, frozen=True):
    """An archive without a verdict, or one that was to be deleted or tagged.

    ``no run``: the event never came. ``not finished``: the run never ended. ``archive left``: the
    run is COMPLETED, and what was to follow has not happened. ``put back``: the run ended because
    the archive was replaced, but the same bytes are there again. ``not readable``: the archive or
    the records of its run could not be read.
    """

    source: Location
    size: int  # bytes
    put: float  # Unix seconds
    run: str  # empty if the archive could not be read
    state: State
    message: str = ""  # why it could not be read


class Reconciliation(Struct, frozen=True):
    """The result of comparing the ingest bucket with the runs."""

    archives: int  # archives that were put since the requested day
    running: int  # of these, archives whose runs are active
    unsettled: tuple[Unsettled, ...]


def reconcile(runs: DeployedRuns, since: float) -> Reconciliation:
    """Look up the run of every archive that was put since `since`, Unix seconds.

    Sends one LIST for each thousand objects, and one HEAD and one GET for each archive. If the GET
    finds no report, another one finds out whether the archive is split, and a HEAD each its parts.
    """
    find = partial(_find_unsettled, runs=runs)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="reconcile") as pool:
        states = list(pool.map(find, _archives(runs, since)))
    unsettled = tuple(state for state in states if isinstance(state, Unsettled))
    return Reconciliation(len(states), states.count(RUNNING), unsettled)


def start(runs: DeployedRuns, archives: Iterable[Unsettled]) -> int:
    """Queue the events of archives without a run, and resume the other runs; return how many."""
    startable = [archive for archive in archives if archive.state != "not readable"]
    events = [(archive.source, archive.put) for archive in startable if archive.state == "no run"]
    for _ in send_events(runs.client("sqs"), runs.outputs["QueueUrl"], events, "reconcile"):
        pass
    for archive in startable:
        if archive.state != "no run":
            runs.resume(archive.run)
    return len(startable)


def _find_unsettled(archive: ObjectTypeDef, runs: DeployedRuns) -> Unsettled | str | None:
    """Return the problem of an archive's run, the state of an active run, or None."""
    request = runs.defaults.request(archive["Key"])
    source = request.source
    put = archive["LastModified"].timestamp()
    unread = Unsettled(source, archive["Size"], put, run="", state="not readable")
    try:
        tail = runs.stores.source(source).stat(source)
    except NotFoundError:  # deleted after the listing
        return None
    except StorageError as error:
        return structs.replace(unread, message=str(error))
    run = run_id(request, tail.pin, tail.modified)
    try:
        report = runs.records(run).find_report()
        check_same_archive(run, source, tail.pin, report)
        if report is not None:
            size = tail.pin.size
            unfinished = Unsettled(source, size, put, run=run, state="archive left")
            return _judge_end(report, unfinished)
        return _find_state(runs, request, tail, put)
    except NotFoundError:
        return None
    except (UnreadableRecordError, UsageError) as error:  # damaged, or of another archive
        return structs.replace(unread, run=run, message=str(error))


def _find_state(
    runs: DeployedRuns, request: Request, stat: Tail, put: float
) -> Unsettled | str | None:
    """Return the problem of an archive whose run has no report, unless it is split; or RUNNING."""
    tail = _read_whole(runs, request.source, stat)
    run = run_id(request, tail.pin, tail.modified)
    records = runs.records(run)
    if tail.pin.parts and records.find_report() is not None:
        return None
    state = runs.state(run)
    if state == RUNNING:
        return RUNNING
    recorded = look_up_run(records)
    began = state is not None or recorded.plan is not None or recorded.begins_anew
    problem: State = "not finished" if began else "no run"
    return Unsettled(request.source, tail.pin.size, put, run=run, state=problem)


def _read_whole(runs: DeployedRuns, source: Location, stat: Tail) -> Tail:
    """Return the tail of an archive with all its parts, which name the run of a split archive.

    The limits are the environment's, as for the planner. If the archive cannot be read, return
    `stat`, the description of the one object.
    """
    defaults = runs.defaults
    calls = Calls(LocalClock(), defaults.tuning.retry_seconds, 1)
    store = runs.stores.source(source)
    try:
        max_parts = defaults.limits.parts
        return read_whole_tail(store, source, length=TAIL_LENGTH, max_parts=max_parts, calls=calls)
    except NotFoundError:
        raise
    except StorageError:
        return stat


def _judge_end(report: Report, unfinished: Unsettled) -> Unsettled | str | None:
    """Return what is wrong although the run ended; RUNNING while a function may be at its archive.

    `unfinished` is the archive, as one whose after-success action is not done.
    """
    if report.verdict is Verdict.SOURCE_CHANGED:
        return structs.replace(unfinished, state="put back")
    action = report.after_success
    if action is None or not report.archive_left:
        return None
    is_recent = time.time() - report.finished < ACTION_SECONDS
    if action.state is SourceState.PENDING and is_recent:
        return RUNNING
    return unfinished


def _archives(runs: DeployedRuns, since: float) -> Iterator[ObjectTypeDef]:
    """Yield the current objects of the ingest bucket that start runs."""
    trigger = runs.defaults.trigger
    # A separate client, because the stores' client does not parse times.
    pages = runs.client("s3").get_paginator("list_objects_v2")
    with asking("s3:ListBucket"):
        listing = pages.paginate(Bucket=trigger.bucket, Prefix=trigger.prefix)
        for page in bound_pages(listing, f"s3://{trigger.bucket}/{trigger.prefix}"):
            for archive in page.get("Contents", ()):
                is_recent = archive["LastModified"].timestamp() >= since
                if is_recent and trigger.covers(trigger.bucket, archive["Key"]):
                    yield archive
