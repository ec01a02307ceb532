"""Queue archives that are already in the ingest bucket, and find those without a verdict.

The events have the format of S3's own events. A submission can be repeated: an event does not start
a second run, because the id of a run is derived from the version of its archive.

S3 sends an event at least once. But S3 may send a single event for two writes to an unversioned
key, and somebody may purge the queue. A function might be killed after writing the report of a run
but before deleting or tagging the archive. Therefore `find_missing` lists the bucket, computes the
run id of each archive in the same way as the planner, and looks up the run. If an archive cannot be
read, the search continues with the other archives.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, chain, compress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, structs

from s3unzip.api.extraction import (
    fixed_part,
    is_object,
    names_one,
    names_several,
    select_keys,
)
from s3unzip.errors import (
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.model import Location, Report, Request, SourceState, Verdict
from s3unzip.operate.runs import DeployedRuns, translating_errors
from s3unzip.run_ids import check_same_archive, run_id
from s3unzip.runs.run_list import RUNNING
from s3unzip.settling.loop import look_up_run
from s3unzip.settling.report import find_runs
from s3unzip.stores.archives import read_whole_tail
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.config import parse_source, split_bucket
from s3unzip.stores.ports import Clock, Tail
from s3unzip.zip import TAIL_LENGTH

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectTypeDef

    from s3unzip.aws.environment import LambdaConfig

MAX_BATCH = 10  # maximum number of messages in one SendMessageBatch request
SENDERS = 8  # number of concurrent requests to the queue
ATTEMPTS = 8  # maximum number of attempts to send a batch of messages
LONGEST_WAIT = 10.0  # maximum time between two attempts, in seconds
LOOKUPS = 32  # number of archives that are looked up concurrently
MAX_LOOKED_UP = 1_000  # maximum number of archives; a larger submission is queued without a lookup
# After one of these verdicts, an event for the archive starts no run. After FAILED, an event would
# resume the run.
FINAL = {Verdict.COMPLETED, Verdict.COMPLETED_WITH_ERRORS, Verdict.REJECTED}
# The maximum duration of a function. If an action on an archive has been pending for longer, the
# function that should perform it has been stopped.
ACTION_SECONDS = 900.0

State = Literal["no run", "not finished", "archive left", "put back", "not readable"]


class Unsettled(Struct, frozen=True):
    """An archive without a verdict, or one that should have been deleted or tagged but was not.

    ``no run``: the event never arrived. ``not finished``: the run never ended. ``archive left``:
    the run is COMPLETED, but the archive was not deleted or tagged. ``put back``: the run ended
    because the archive was replaced, but the same bytes have been put back. ``not readable``: the
    archive or the records of its run could not be read.
    """

    source: Location
    size: int  # size in bytes
    put: float  # time of the PUT, in Unix seconds
    run: str  # id of the run; empty if the archive could not be read
    state: State
    message: str = ""  # why the archive could not be read


class MissingArchives(Struct, frozen=True):
    """The result of ``s3unzip submit --missing``."""

    environment: str
    archives: int  # number of archives that were looked up
    running: int  # number of these archives whose runs are in progress
    unsettled: tuple[Unsettled, ...]
    started: int = 0

    @property
    def startable(self) -> tuple[Unsettled, ...]:
        """The archives that can be settled by an event or a resumed run."""
        return tuple(archive for archive in self.unsettled if archive.state != "not readable")


def list_archives(names: Sequence[str], runs: DeployedRuns) -> tuple[dict[str, int], int]:
    """List archives by their names, which are keys, prefixes or globs.

    Returns:
        The sizes of the archives by key, and the number of named archives that the environment does
        not cover.
    """
    sizes: dict[str, int] = {}
    outside: set[str] = set()
    for name in names:  # all names are checked before the first request
        _check_scope(name, runs.config)
    for name in names:
        named = _list_named(name, runs)
        taken = {key: size for key, size in named.items() if runs.config.covers(_locate(runs, key))}
        # A glob may also match objects that are not archives. Such objects are not counted.
        left_out = {key for key in named if key.lower().endswith(".zip")} - taken.keys()
        if not taken and not left_out:  # the caller reports how many were left out
            raise NotFoundError(f"{name}: matches no archive that {runs.environment} accepts")
        sizes |= taken
        outside |= left_out
    return sizes, len(outside)


def _list_named(name: str, runs: DeployedRuns) -> dict[str, int]:
    """Return the sizes, by key, of the objects that `name` (a key, prefix or glob) refers to.

    If `name` is the key of an object, it is not treated as a glob. Looking up a key takes one HEAD
    and does not require permission to list.
    """
    if not names_one(name, runs.stores):
        return {listed["Key"]: listed["Size"] for listed in _list_objects(runs, *select_keys(name))}
    source = parse_source(name)
    try:
        return {source.key: runs.stores.source(source).stat(source).pin.size}
    except NotFoundError:
        return {}


def find_ended(runs: DeployedRuns, keys: Sequence[str]) -> list[str]:
    """Return the keys of archives with a final verdict; an event would start no run for them.

    Sends a HEAD and a GET for each archive. If there are more than `MAX_LOOKED_UP` archives, none
    is looked up, and the result is empty. An archive that cannot be looked up is left out, because
    the run that its event starts reports the error.
    """
    if len(keys) > MAX_LOOKED_UP:
        return []
    with ThreadPoolExecutor(LOOKUPS, thread_name_prefix="ended") as pool:
        return list(compress(keys, pool.map(partial(_has_ended, runs=runs), keys)))


def _has_ended(key: str, runs: DeployedRuns) -> bool:
    """Return whether an archive has a final verdict, so that an event would start no run.

    Returns False if the archive must still be deleted or tagged, or cannot be looked up.
    """
    request = runs.config.request(key)
    source = request.source
    try:
        tail = runs.stores.source(source).stat(source)
        run = run_id(request, tail.pin, tail.modified)
        report = runs.records(run).find_report()
        check_same_archive(run, source, tail.pin, report)
    except S3UnzipError:  # the run that the event starts reports the error
        return False
    return report is not None and report.verdict in FINAL and not report.archive_left


def _locate(runs: DeployedRuns, key: str) -> Location:
    return Location("s3", runs.config.environment_defaults.ingest_bucket, key)


def find_missing(runs: DeployedRuns, since: float, names: Sequence[str] = ()) -> MissingArchives:
    """Look up the run of every archive that was put since a given time.

    Sends one LIST per thousand objects, and one HEAD and one GET per archive. If the GET finds no
    report, another GET checks whether the archive is split, and one HEAD is sent for each part. The
    run's id depends on the settings, so one LIST also looks for a run with another id.

    Args:
        runs: the runs of the environment.
        since: a time in Unix seconds; archives that were uploaded earlier are excluded.
        names: keys, prefixes or globs of archives; if empty, all archives of the environment.
    """
    with ThreadPoolExecutor(LOOKUPS, thread_name_prefix="missing") as pool:
        answers = list(  # for each archive: `RUNNING`, an `Unsettled`, or None if it is settled
            pool.map(partial(_find_unsettled, runs=runs), _list_recent(runs, since, names))
        )
    return MissingArchives(
        runs.environment,
        archives=len(answers),
        running=answers.count(RUNNING),
        unsettled=tuple(answer for answer in answers if isinstance(answer, Unsettled)),
    )


def start_missing(runs: DeployedRuns, archives: Sequence[Unsettled]) -> None:
    """Queue an event for each archive without a run, and resume the runs of the other archives.

    `archives` are `MissingArchives.startable`. The events have the time of this call, so the
    earlier wait is not counted as part of a run.
    """
    for archive in archives:
        if archive.state != "no run":
            with suppress(UsageError):  # somebody has resumed the run since the lookup
                runs.resume(archive.run)
    sources = [archive.source for archive in archives if archive.state == "no run"]
    for _ in send_events(runs.client("sqs"), runs.outputs["QueueUrl"], sources):
        pass  # the loop sends the events; the counts are not needed


def send_events(client: Any, queue: str, sources: Sequence[Location]) -> Iterator[int]:
    """Queue an event for each archive; yield the number sent so far.

    The events have the time of this call. The events are sent in concurrent requests, with up to
    ten events each.

    Args:
        client: the SQS client.
        queue: the URL of the queue.
        sources: the archives.
    """
    now = datetime.now(UTC).isoformat()

    def send(start: int) -> int:
        messages = [
            {
                "Id": str(number),
                "MessageBody": json.dumps(  # like S3's "Object Created" events in EventBridge
                    {
                        "detail-type": "Object Created",
                        "source": "s3unzip.submit",
                        "time": now,
                        "detail": {
                            "bucket": {"name": source.bucket},
                            "object": {"key": source.key},
                        },
                    }
                ),
            }
            for number, source in enumerate(sources[start : start + MAX_BATCH])
        ]
        _send_batch(client, queue, messages)
        return len(messages)

    yield from accumulate(map_ahead(send, range(0, len(sources), MAX_BATCH), SENDERS))


def _check_scope(name: str, config: LambdaConfig) -> None:
    """Raise `UsageError` if the environment covers none of the archives that `name` can match."""
    scheme, separator, path = name.partition("://")
    bucket, key = split_bucket(path)
    if not separator or scheme.lower() != "s3" or not bucket:
        raise UsageError(f"{name}: an environment's archives are in S3; give s3://bucket/prefix/")
    if names_several(name):  # a prefix or a glob; it must overlap an ingest prefix
        start = fixed_part(key)
        prefixes = [
            defaults.ingest_prefix
            for defaults in config.all_defaults
            if defaults.ingest_bucket == bucket
        ]
        inside = any(prefix.startswith(start) or start.startswith(prefix) for prefix in prefixes)
    else:
        inside = config.covers(Location("s3", bucket, key))
    if not inside:
        scopes = " and ".join(defaults.scope for defaults in config.all_defaults)
        raise UsageError(
            f"{name}: the environment {config.environment} accepts only {scopes}; copy the "
            "archives there, or extract them on this machine with s3unzip run"
        )


def _list_objects(
    runs: DeployedRuns, prefix: str, is_selected: Callable[[str], object]
) -> Iterator[ObjectTypeDef]:
    # `Destination` lists objects without their times, which `_list_recent` and its callers need.
    for page in runs.list_pages(
        "list_objects_v2", runs.config.environment_defaults.ingest_bucket, prefix
    ):
        yield from (listed for listed in page.get("Contents", ()) if is_selected(listed["Key"]))


def _list_recent(runs: DeployedRuns, since: float, names: Sequence[str]) -> Iterator[ObjectTypeDef]:
    """Yield the objects that were put since `since`, can start runs, and match one of `names`.

    Without names, every such object matches.
    """
    config = runs.config
    for name in names:
        _check_scope(name, config)
    selections = [select_keys(name) for name in names]  # pairs of a prefix and a test for keys
    if not names:  # every key below the prefixes that start runs
        prefixes = {defaults.ingest_prefix for defaults in config.all_defaults}
        selections = [(prefix, is_object) for prefix in sorted(prefixes)]
    yielded = set[str]()  # keys; an object may be selected by several names
    for listed in chain.from_iterable(_list_objects(runs, *selection) for selection in selections):
        key = listed["Key"]
        if (
            listed["LastModified"].timestamp() >= since
            and config.covers(_locate(runs, key))
            and key not in yielded
        ):
            yielded.add(key)
            yield listed


def _find_unsettled(archive: ObjectTypeDef, runs: DeployedRuns) -> Unsettled | str | None:
    """Return an `Unsettled`, None if the archive is settled, or `RUNNING` if its run has not ended.

    An archive that was deleted after the listing counts as settled.
    """
    request = runs.config.request(archive["Key"])
    source = request.source
    unread = Unsettled(
        source, archive["Size"], archive["LastModified"].timestamp(), run="", state="not readable"
    )
    try:
        tail = runs.stores.source(source).stat(source)
    except NotFoundError:
        return None
    except StorageError as error:
        return structs.replace(unread, message=str(error))
    run = run_id(request, tail.pin, tail.modified)
    try:
        report = runs.records(run).find_report()
        check_same_archive(run, source, tail.pin, report)
        if report is not None:
            return _assess_report(report, unread)
        return _assess_without_report(runs, request, tail, unread)
    except NotFoundError:
        return None
    except (UnreadableRecordError, UsageError) as error:
        # A record is damaged, or the run id belongs to another archive.
        return structs.replace(unread, run=run, message=str(error))


def _assess_without_report(
    runs: DeployedRuns, request: Request, last_part: Tail, unread: Unsettled
) -> Unsettled | str | None:
    """Return what is unsettled about an archive if no report has the run id of its last part.

    The run id of a split archive is derived from all its parts, so all parts are looked up. A run
    that began before the settings were changed has another id, but its report also counts. Returns
    `RUNNING` if a run of this version has not ended.

    Args:
        runs: the runs of the environment.
        request: the request for the archive; its source is the last part.
        last_part: the tail of the last part.
        unread: the archive, with the size and the time of its last part.
    """
    calls = Calls(Clock(), runs.config.tuning.retry_seconds, at_once=1)
    tail = _read_all_parts(runs, request.source, last_part, calls)
    same_second_runs = find_runs(request.source, runs.stores, calls, int(tail.modified or 0.0))
    for other in same_second_runs:
        report = runs.records(other).find_report()
        if (
            report is not None
            and (report.source, report.pin) == (request.source, tail.pin)
            and report.verdict is not Verdict.SOURCE_CHANGED  # the same bytes have been put back
        ):
            return _assess_report(report, structs.replace(unread, size=tail.pin.size))
    run = run_id(request, tail.pin, tail.modified)
    state = runs.state(run)
    # A run in progress may belong to another archive with this stem. Only the report will name the
    # archive.
    if state == RUNNING or RUNNING in map(runs.state, {*same_second_runs} - {run}):
        return RUNNING
    recorded = look_up_run(runs.records(run))
    has_begun = state is not None or recorded.plan is not None or recorded.begins_anew
    problem: State = "not finished" if has_begun else "no run"
    return structs.replace(unread, size=tail.pin.size, run=run, state=problem)


def _read_all_parts(runs: DeployedRuns, source: Location, last_part: Tail, calls: Calls) -> Tail:
    """Return the tail of an archive with all its parts, or `last_part` if a request fails.

    If an earlier part is missing, the tail contains a refusal.

    Raises:
        NotFoundError: the archive was deleted after its last part was looked up.
    """
    try:
        return read_whole_tail(
            runs.stores.source(source),
            source,
            calls,
            length=TAIL_LENGTH,
            max_parts=runs.config.limits.parts,  # as many as the planner allows
        )
    except NotFoundError:
        raise
    except StorageError:  # treat the archive as not split
        return last_part


def _assess_report(report: Report, unread: Unsettled) -> Unsettled | str | None:
    """Return what is unsettled about an archive whose run has a report; None if it is settled.

    Returns `RUNNING` while a function may still delete or tag the archive.

    Args:
        report: the report of the run.
        unread: the archive with the state "not readable"; the result has another state and a run.
    """
    # The report says that this version of the archive was replaced. But the archive has this
    # version again, so the same bytes have been put back.
    if report.verdict is Verdict.SOURCE_CHANGED:
        return structs.replace(unread, run=report.run, state="put back")
    if report.after_success is None or not report.archive_left:
        return None
    if (
        report.after_success.state is SourceState.PENDING
        and time.time() - report.finished < ACTION_SECONDS
    ):
        return RUNNING
    return structs.replace(unread, run=report.run, state="archive left")


@translating_errors("sqs:SendMessage")
def _send_batch(client: Any, queue: str, messages: Sequence[dict[str, str]]) -> None:
    """Send one batch; resend the messages that SQS refuses temporarily.

    API_SendMessageBatch: "can result in a combination of successful and unsuccessful actions".
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            # Wait for a random time. The maximum doubles with each attempt.
            time.sleep(random.uniform(0, min(LONGEST_WAIT, 0.1 * 2**attempt)))  # noqa: S311
        refused = client.send_message_batch(QueueUrl=queue, Entries=messages).get("Failed", [])
        if not refused:
            return
        ids = {refusal["Id"] for refusal in refused}
        messages = [message for message in messages if message["Id"] in ids]
        # If the sender is at fault for a refusal, the message gives the reason for that refusal.
        worst_refusal = max(refused, key=lambda refusal: bool(refusal["SenderFault"]))
        if worst_refusal["SenderFault"]:  # sending again would not help, so the call fails
            break
    raise ServiceFaultError(
        f"the queue refused {len(messages)} of the messages: "
        f"{worst_refusal['Code']}: {worst_refusal.get('Message', 'no message')}; when the cause is "
        "gone, run the command again: no archive is extracted twice"
    )
