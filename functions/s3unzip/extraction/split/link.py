"""Link: fit the slices of split members together, before anybody extracts them.

For a segmented member: the scans in order give each segment its window and
its place in the object. For a member copied over several tasks: just places.
One multipart upload is created for each; its parts are numbered here, so that
the tasks need not talk. Where the slices do not fit, the member is streamed.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from s3unzip import deflate, rates
from s3unzip.errors import ArchiveError, MemberError, RunStoppedError, SourceChangedError
from s3unzip.extraction.member import open_data
from s3unzip.model import Link, Outcome, SliceParts, TaskKind, Verdict
from s3unzip.objects.conflict import resolve_conflict
from s3unzip.objects.metadata import object_metadata
from s3unzip.objects.part_writer import choose_part_size
from s3unzip.objects.upload_registry import begin_upload
from s3unzip.planning.cutting import slice_id
from s3unzip.runs.step import Step
from s3unzip.runs.stop import stops_run
from s3unzip.stores.readahead import map_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.context import Context
    from s3unzip.model import PlannedMember, Run, Task
    from s3unzip.runs.records import RunRecords
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Clock

SEGMENTS_AHEAD = 128  # each has 65 KiB at most


class LinkReport(NamedTuple):
    """What linking came to."""

    linked: int  # members whose slices fit
    streamed: int  # members that must be streamed whole
    settled: int  # members that need nothing more: unchanged, or bad


def await_scans(records: RunRecords, clock: Clock, patience: float = 0.0) -> int:
    """Wait until all scans are done, list the others for the state machine; return their count.

    Of a run that must stop no scan is to do.

    Args:
        records: of the run.
        clock: of this worker; at most half of its remaining time is spent.
        patience: seconds at most.

    Raises:
        ServiceFaultError: try again later.
    """
    until = clock.now() + min(patience, clock.remaining() / 2)
    while left := records.list_unscanned():
        if records.find_stop() is not None:
            return 0
        if clock.now() >= until:
            records.write_rescan(left)
            return len(left)
        clock.sleep(rates.LINK_POLL_SECONDS)
    return 0


def linked_sizes(records: RunRecords) -> dict[str, int]:
    """Return the bytes that tasks of split members write, by the task's id, as the links say."""
    sizes = {}
    for link in records.links():
        for piece in link.slices:
            kind = TaskKind.SEGMENT if piece.segments else TaskKind.COPY
            sizes[slice_id(kind, link.member, piece.part)] = piece.size
    return sizes


def link_members(run: Run, context: Context, calls: Calls | None = None) -> LinkReport:
    """Write the links of all split members of the run; those that exist are kept.

    An archive that changed is a verdict: it is written down, and the members
    that are left are to be streamed. A redrive of such a run goes on after
    this step, so each split member needs a link.

    Args:
        run: the run.
        context: of this worker.
        calls: of this step so far; None: it begins here.

    Raises:
        AccessDeniedError, NotFoundError, StoreFullError: what stops the run; it is written down.
        RunStoppedError: a scan met what stops the run.
        ServiceFaultError: try again later.
    """
    step = Step(run, "link", context, calls or context.calls())
    try:
        with stops_run(step.records, step.name):
            tasks = step.records.split_tasks()
            links = list(map_ahead(partial(_link_once, step), tasks, rates.LINKED_MEMBERS_AT_ONCE))
    except SourceChangedError:
        links = _stream_all(step)
    except RunStoppedError:
        stop = step.records.find_stop()
        if stop is None or stop.verdict is not Verdict.SOURCE_CHANGED:
            raise
        links = _stream_all(step)
    step.records.add_link_cost()
    return LinkReport(
        linked=sum(link.upload_id is not None for link in links),
        streamed=sum(link.stream for link in links),
        settled=sum(link.outcome is not None for link in links),
    )


def _stream_all(step: Step) -> list[Link]:
    """Return the links of all split members; a member that has none is to be streamed."""
    links: list[Link] = []
    for task in step.records.split_tasks():
        row = step.read_rows(task.rows)[0]
        link = step.records.find_link(row.member.index)
        if link is None:
            link = Link(row.member.index, row.key, None, stream=True)
            step.records.write_link(link)
        links.append(link)
    return links


def _link_once(step: Step, task: Task) -> Link:
    row = step.read_rows(task.rows)[0]
    link = step.records.find_link(row.member.index)
    if link is None:
        link = _make_link(step, row, task)
        step.records.write_link(link)
    return link


def _make_link(step: Step, row: PlannedMember, task: Task) -> Link:
    settled = resolve_conflict(row, step)
    if settled is not None:
        return Link(row.member.index, row.key, None, outcome=settled)
    try:
        data = open_data(step, row)
        data.check_after()
    except MemberError as error:
        failed = Outcome.failed(row.member.index, row.key, error.finding)
        return Link(row.member.index, row.key, None, outcome=failed)
    cut = _link_segments if task.kind is TaskKind.SEGMENT else _link_copies
    try:
        slices = cut(step, row, task)
    except ArchiveError:
        return Link(row.member.index, row.key, None, stream=True)
    facts = object_metadata(row.key, row.member, step.run)
    upload = begin_upload(step, f"link-{row.member.index:08d}", row.key, facts)
    return Link(row.member.index, row.key, upload.upload_id, data.span.start, tuple(slices))


def _link_segments(step: Step, row: PlannedMember, task: Task) -> list[SliceParts]:
    """Write the linked segments and return the slices they make.

    Raises:
        DeflateError: the scans do not join.
        MemberError: the scans do not make the whole member.
    """
    limits = step.destination.part_limits
    # Each slice rounds its count of parts up: leave that many of the store's limit.
    spare = limits._replace(max_parts=limits.max_parts - task.parts)
    part_size = choose_part_size(row.member.size, step.context.tuning.part_bytes, spare)
    slices: list[SliceParts] = []
    group: list[int] = []
    start = size = number = 0
    for part, segment in _write_linked(step, row, task):
        group.append(part)
        size += segment.length
        # A part below the store's least size can only be the last of an upload.
        if size >= limits.min_bytes or segment.stop_bit is None:
            count = max(1, min(math.ceil(size / part_size), size // limits.min_bytes))
            slices.append(SliceParts(group[0], tuple(group), start, size, number + 1, count))
            number += count
            start += size
            group, size = [], 0
    if start != row.member.size:
        message = f"the segments have {start} bytes, the directory says {row.member.size}"
        raise MemberError(row.finding("size-mismatch", message))
    return slices


def _write_linked(
    step: Step, row: PlannedMember, task: Task
) -> Iterator[tuple[int, deflate.LinkedSegment]]:
    """Write the linked segments, several at once; yield each with its part when it is written."""
    index, part_of = row.member.index, dict[int, int]()

    def write(segment: deflate.LinkedSegment) -> tuple[int, deflate.LinkedSegment]:
        part = part_of[segment.start_bit]
        step.records.write_linked(index, part, segment)
        return part, segment

    scans = _scans(step, row, task, part_of)
    linked = deflate.link_segments(scans, row.member.compressed_size)
    yield from map_ahead(write, linked, rates.SMALL_CALLS_AT_ONCE, SEGMENTS_AHEAD)


def _scans(
    step: Step, row: PlannedMember, task: Task, part_of: dict[int, int]
) -> Iterator[deflate.ScannedSegment]:
    """Yield the scanned segments in order, several read at once; note the part of each."""
    found = map_ahead(
        lambda part: step.records.find_scanned(row.member.index, part),
        range(task.parts),
        rates.SMALL_CALLS_AT_ONCE,
        SEGMENTS_AHEAD,
    )
    for part, scanned in enumerate(found):
        if scanned is not None:  # a scan that is lost breaks the chain
            part_of[scanned.start_bit] = part
            yield scanned


def _link_copies(step: Step, row: PlannedMember, task: Task) -> list[SliceParts]:
    tuning, limits = step.context.tuning, step.destination.part_limits
    length = task.span[1] - task.span[0]
    wanted = max(
        tuning.copy_part_bytes, math.ceil(row.member.size / limits.max_parts) + 1, limits.min_bytes
    )
    slices: list[SliceParts] = []
    number = 1
    for part, start in enumerate(range(0, row.member.size, length)):
        size = min(length, row.member.size - start)
        count = max(1, math.ceil(size / min(wanted, limits.max_bytes)))
        slices.append(SliceParts(part, (), start, size, number, count))
        number += count
    return slices
