"""Link: fit the slices of split members together, before anybody extracts them.

For a segmented member: the scans in order give each segment its window and
its place in the object. For a member copied over several tasks: just places.
One multipart upload is created for each; its parts are numbered here, so that
the tasks need not talk. Where the slices do not fit, the member is streamed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from s3unzip import deflate, run_files
from s3unzip.errors import (
    ArchiveError,
    Finding,
    MemberError,
    NotFoundError,
    RunStoppedError,
    SegmentRecordError,
    SourceChangedError,
    UsageError,
)
from s3unzip.extraction.member import open_data
from s3unzip.model import (
    Link,
    OnConflict,
    Outcome,
    SliceParts,
    Status,
    Task,
    TaskKind,
    Verdict,
    decode,
    encode,
)
from s3unzip.objects.existing import exists_finding
from s3unzip.objects.metadata import object_metadata
from s3unzip.objects.part_writer import choose_part_size
from s3unzip.objects.upload_registry import begin_upload
from s3unzip.planning.cutting import slice_id
from s3unzip.runs.outcomes import OutcomeLog, iterate_lines
from s3unzip.runs.rows import read_rows
from s3unzip.runs.stop import RUN_FAULTS, read_stop, write_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.context import Context
    from s3unzip.model import MemberRow, Run
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, PartLimits, RunStore

T = TypeVar("T")


class LinkReport(NamedTuple):
    """What linking came to."""

    linked: int  # members whose slices fit
    streamed: int  # members that must be streamed whole
    settled: int  # members that need nothing more: unchanged, or bad


def read_link(log: OutcomeLog, member: int) -> Link:
    """Return the link of a split member.

    Raises:
        UsageError: the link step did not run.
    """
    name = run_files.link(member)
    try:
        return decode(log.work.read(name), Link)
    except NotFoundError as error:
        raise UsageError(f"{name} is missing: scan and link come before {log.task.id}") from error


def split_tasks(work: RunStore) -> Iterator[Task]:
    """Yield the first task of each member that is split over several."""
    for line in iterate_lines(work.stream(run_files.PLAN)):
        task = decode(line, Task)
        if task.parts > 1 and task.part == 0:
            yield task


def linked_sizes(work: RunStore) -> dict[str, int]:
    """Return the bytes that tasks of split members write, by the task's id, as the links say."""
    sizes = {}
    for name in work.names(run_files.LINKS):
        if name.endswith(".json"):
            link = decode(work.read(name), Link)
            for piece in link.slices:
                kind = TaskKind.SEGMENT if piece.segments else TaskKind.COPY
                sizes[slice_id(kind, link.member, piece.part)] = piece.size
    return sizes


def link_members(run: Run, context: Context) -> LinkReport:
    """Write the links of all split members of the run; those that exist are kept.

    An archive that changed is a verdict: it is written down, and nothing more
    is linked.

    Raises:
        AccessDeniedError, NotFoundError, StoreFullError: what stops the run; it is written down.
        RunStoppedError: a scan met what stops the run.
        ServiceFaultError: try again later.
    """
    calls = context.calls()
    work = context.stores.run_store(run.id, calls)
    stop = read_stop(work)
    if stop is not None and stop.verdict is Verdict.SOURCE_CHANGED:
        return LinkReport(0, 0, 0)
    if stop is not None:
        raise RunStoppedError(f"nothing linked, for the run met {stop.reason}")
    try:
        links = [_link_once(run, task, work, context, calls) for task in split_tasks(work)]
    except SourceChangedError as change:
        write_stop(work, change)
        return LinkReport(0, 0, 0)
    except RUN_FAULTS as fault:
        write_stop(work, fault)
        raise
    return LinkReport(
        linked=sum(link.upload_id is not None for link in links),
        streamed=sum(link.stream for link in links),
        settled=sum(link.outcome is not None for link in links),
    )


def _link_once(run: Run, task: Task, work: RunStore, context: Context, calls: Calls) -> Link:
    row = read_rows(work, task.rows)[0]
    name = run_files.link(row.index)
    try:
        return decode(work.read(name), Link)
    except NotFoundError:
        pass
    log = OutcomeLog(run.id, task, context, calls, context.clock.now())
    link = _make_link(run, row, log)
    work.write(name, [encode(link)])
    return link


def _make_link(run: Run, row: MemberRow, log: OutcomeLog) -> Link:
    destination = log.context.stores.destination(run.destination)
    settled = _outcome_without_link(run, row, destination, log)
    if settled is not None:
        return Link(row.index, row.key, None, outcome=settled)
    try:
        data = open_data(run, row, log)
        data.check_after()
    except MemberError as error:
        failed = Outcome.failed(row.index, row.key, error.finding)
        return Link(row.index, row.key, None, outcome=failed)
    limits = destination.part_limits
    try:
        slices = (
            _link_segments(row, log, limits)
            if log.task.kind is TaskKind.SEGMENT
            else _link_copies(row, log, limits)
        )
    except ArchiveError:
        return Link(row.index, row.key, None, stream=True)
    facts = object_metadata(row.key, row, run)
    owner = f"link-{row.index:08d}"
    upload = begin_upload(owner, row.key, facts, destination, log.work, log.calls)
    return Link(row.index, row.key, upload.upload_id, data.span.start, tuple(slices))


def _outcome_without_link(
    run: Run, row: MemberRow, destination: Destination, log: OutcomeLog
) -> Outcome | None:
    rule = run.options.on_conflict
    if rule is OnConflict.OVERWRITE:
        return None
    found = log.calls.run("head", lambda: destination.head(row.key))
    if found is None:
        return None
    if (found.size, found.crc32) == (row.size, row.crc32):
        return Outcome(row.index, row.key, Status.UNCHANGED, row.size, row.crc32)
    if rule is OnConflict.NEVER:
        return Outcome.failed(row.index, row.key, exists_finding(row))
    return None


def _link_segments(row: MemberRow, log: OutcomeLog, limits: PartLimits) -> list[SliceParts]:
    """Write the linked segments and return the slices they make.

    Raises:
        DeflateError: the scans do not join.
        MemberError: the scans do not make the whole member.
    """
    work = log.work
    # Each slice rounds its count of parts up: leave that many of the store's limit.
    spare = limits._replace(max_parts=limits.max_parts - log.task.parts)
    part_size = choose_part_size(row.size, log.context.tuning.part_bytes, spare)
    slices: list[SliceParts] = []
    group: list[int] = []
    start = size = number = 0
    part_of: dict[int, int] = {}
    segments = deflate.link_segments(_scans(work, row, log, part_of), row.compressed_size)
    for segment in segments:
        part = part_of[segment.start_bit]
        work.write(run_files.linked_segment(row.index, part), [segment.to_bytes()])
        group.append(part)
        size += segment.length
        # A part below the store's least size can only be the last of an upload.
        if size >= limits.min_bytes or segment.stop_bit is None:
            count = max(1, min(math.ceil(size / part_size), size // limits.min_bytes))
            slices.append(SliceParts(group[0], tuple(group), start, size, number + 1, count))
            number += count
            start += size
            group, size = [], 0
    if start != row.size:
        message = f"the segments have {start} bytes, the directory says {row.size}"
        raise MemberError(Finding("size-mismatch", message, row.offset, row.key))
    return slices


def _scans(
    work: RunStore, row: MemberRow, log: OutcomeLog, part_of: dict[int, int]
) -> Iterator[deflate.ScannedSegment]:
    for part in range(log.task.parts):
        name = run_files.scanned_segment(row.index, part)
        try:
            scanned = read_segment(work, name, deflate.ScannedSegment.from_bytes)
        except NotFoundError:  # it joins the one before; a scan that is lost breaks the chain
            continue
        part_of[scanned.start_bit] = part
        yield scanned


def read_segment(work: RunStore, name: str, parse: Callable[[bytes], T]) -> T:
    """Return a stored segment.

    Raises:
        NotFoundError: there is none of that name.
        UsageError: another version wrote it, or it is damaged.
    """
    try:
        return parse(work.read(name))
    except SegmentRecordError as error:
        raise UsageError(f"{name}: {error}") from error


def _link_copies(row: MemberRow, log: OutcomeLog, limits: PartLimits) -> list[SliceParts]:
    tuning = log.context.tuning
    step = log.task.span[1] - log.task.span[0]
    wanted = max(
        tuning.copy_part_bytes, math.ceil(row.size / limits.max_parts) + 1, limits.min_bytes
    )
    slices: list[SliceParts] = []
    number = 1
    for part, start in enumerate(range(0, row.size, step)):
        size = min(step, row.size - start)
        count = max(1, math.ceil(size / min(wanted, limits.max_bytes)))
        slices.append(SliceParts(part, (), start, size, number, count))
        number += count
    return slices
