"""Link a split member: make the tasks of its slices, and begin its upload.

Settling links a member when all its scans are done, or when a stored member is planned for several
copies. `scan` shows all steps of a split member. Rules:

* Linking may be repeated, late or at once. Each time begins an upload of its own, and the ids of
  the slices' tasks name the upload, so that slices of two uploads do not mix.
* A slice has at least the store's smallest part, except the last slice.
* If the scans do not make the whole member, one task streams it.
"""

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from s3unzip import deflate
from s3unzip.errors import ArchiveError, MemberError, SegmentRecordError
from s3unzip.extraction.conflicts import resolve_conflict
from s3unzip.extraction.member_data import MemberData, open_data
from s3unzip.extraction.parts import choose_part_size, copy_sizes
from s3unzip.extraction.scan import segmentation_of
from s3unzip.extraction.slices import whole_task
from s3unzip.extraction.stream import allowed_size
from s3unzip.extraction.uploads import begin_upload
from s3unzip.model import Outcome, PlannedMember, Slice, Task, TaskKind
from s3unzip.runs.step import Step
from s3unzip.stores.ahead import map_ahead

SEGMENTS_AT_ONCE = 32  # that are read or written
SEGMENTS_AHEAD = 128  # each has 65 KiB at most


class _SlicePlan(NamedTuple):
    """A slice before the upload has begun."""

    offset: int  # of its first byte in the object
    size: int  # bytes of the object
    first_number: int  # of its first part
    parts: int
    segments: tuple[int, ...] = ()  # that it inflates; a copy has none


def link_member(run_step: Step, tasks: Sequence[Task]) -> list[Task] | Outcome:
    """Return the tasks of the slices of a member, or its outcome if it needs none.

    Args:
        run_step: settles the run.
        tasks: all scans, or all copies, of the member.
    """
    first = min(tasks, key=lambda task: task.part)
    row = run_step.read_rows(first.rows)[0]
    outcome = resolve_conflict(row, run_step)
    if outcome is not None:
        return outcome
    try:
        data = open_data(run_step, row)
        data.check_after()
    except MemberError as error:
        return Outcome.failed(row.member.index, row.key, error.finding)
    if first.kind is TaskKind.COPY:
        return _begin_slices(data, TaskKind.COPY, first, _plan_copies(run_step, row, tasks))
    try:
        slices = _link_segments(run_step, row, first)
    except ArchiveError:
        return [whole_task(first, row)]
    return _begin_slices(data, TaskKind.SLICE, first, slices)


def _plan_copies(run_step: Step, row: PlannedMember, copies: Sequence[Task]) -> list[_SlicePlan]:
    """Return the slices of one stored member."""
    limits = run_step.destination.part_limits
    fitting = math.ceil(row.member.size / limits.max_parts) + 1  # each slice rounds its parts up
    part_size = max(run_step.context.tuning.copy_part_bytes, fitting)
    slices: list[_SlicePlan] = []
    number = 1
    for task in copies:
        start, stop = task.span
        parts = len(copy_sizes(stop - start, part_size, limits))
        slices.append(_SlicePlan(start, stop - start, number, parts))
        number += parts
    return slices


def _begin_slices(
    data: MemberData, kind: TaskKind, first: Task, slices: Sequence[_SlicePlan]
) -> list[Task]:
    """Begin the upload of a member; return the tasks of its slices, the longest first."""
    row = data.row
    upload_id = begin_upload(data.run_step, row).upload_id
    upload_mark = f"{zlib.crc32(upload_id.encode()):08x}"
    seconds_per_byte = first.seconds * first.parts / max(1, row.member.size)
    tasks = [
        Task(
            id=f"{kind}-{row.member.index:08d}-{part:04d}-{upload_mark}",
            kind=kind,
            rows=first.rows,
            members=1,
            span=(plan.offset, plan.offset + plan.size),
            size=plan.size,
            seconds=round(seconds_per_byte * plan.size, 3),
            part=part,
            parts=len(slices),
            member=row.member.index,
            slice=Slice(
                upload_id=upload_id,
                offset=plan.offset,
                first_number=plan.first_number,
                parts=plan.parts,
                data_start=data.data_range.start,
                segments=plan.segments,
            ),
        )
        for part, plan in enumerate(slices)
    ]
    return sorted(tasks, key=lambda task: -task.size)


def _link_segments(run_step: Step, row: PlannedMember, first: Task) -> list[_SlicePlan]:
    """Write the linked segments; return the slices that they make.

    Raises:
        DeflateError: the scans do not make one stream.
        MemberError: the stream has another size than the member.
    """
    limits = run_step.destination.part_limits
    groups = _group_segments(_write_linked(run_step, row, first), limits.min_bytes)
    total = sum(size for _, size in groups)
    if not row.member.has_size(total) or total > allowed_size(run_step, row.member):
        message = f"the segments have {total} bytes, the directory says {row.member.size}"
        raise MemberError(row.finding("size-mismatch", message))
    # Each slice rounds its count of parts up: leave that many of the store's limit.
    reduced_limits = limits._replace(max_parts=limits.max_parts - first.parts)
    part_size = choose_part_size(total, run_step.context.tuning.part_bytes, reduced_limits)
    slices: list[_SlicePlan] = []
    start = 0
    number = 1
    for segments, size in groups:
        parts = max(1, min(math.ceil(size / part_size), size // limits.min_bytes))
        slices.append(_SlicePlan(start, size, number, parts, segments=tuple(segments)))
        number += parts
        start += size
    return slices


def _group_segments(
    linked: Iterable[tuple[int, deflate.LinkedSegment]], min_bytes: int
) -> list[tuple[list[int], int]]:
    """Return the segments of each slice, and its size in bytes.

    A slice has at least `min_bytes`, because a smaller part can only be the last of an upload. A
    segment may have no bytes at all: at the end it belongs to the slice before it.
    """
    groups: list[tuple[list[int], int]] = []
    segments: list[int] = []
    size = 0
    for number, segment in linked:
        segments.append(number)
        size += segment.length
        if size >= min_bytes:
            groups.append((segments, size))
            segments = []
            size = 0
    if size or not groups:
        groups.append((segments, size))
    else:
        last_segments, _ = groups[-1]
        last_segments.extend(segments)
    return groups


def _write_linked(
    run_step: Step, row: PlannedMember, first: Task
) -> Iterator[tuple[int, deflate.LinkedSegment]]:
    """Write the linked segments, several at once; yield each with its number when it is written."""
    index = row.member.index
    layout = segmentation_of(first, row)

    def read(number: int) -> deflate.ScannedSegment | None:
        record = run_step.records.find_segment(index, number, "scanned")
        try:
            return deflate.ScannedSegment.from_bytes(record or b"")
        except SegmentRecordError:  # it joins the segment before it, or is lost: the chain breaks
            return None

    def write(segment: deflate.LinkedSegment) -> tuple[int, deflate.LinkedSegment]:
        number = layout.segment_at(segment.start_bit)
        run_step.records.write_segment(index, number, "linked", segment.to_bytes())
        return number, segment

    scans = map_ahead(read, range(first.parts), SEGMENTS_AT_ONCE, SEGMENTS_AHEAD)
    linked = deflate.link_segments((scan for scan in scans if scan is not None), layout.size)
    yield from map_ahead(write, linked, SEGMENTS_AT_ONCE, SEGMENTS_AHEAD)
