"""One huge deflated member, split over many tasks: scan, link, slice, finish.

A *scan* finds one segment of the member and what it leaves behind, while the bytes before it are
unknown. When all scans are done, settling *links* them: the scans in order give each segment its
window and its place in the object, and one multipart upload is begun. A *slice* inflates some
segments and uploads their parts. When all slices are done, settling *finishes* the member: the
combined size and CRC-32 of the parts equal the directory's, or the member is streamed. A stored
member that is copied over several tasks is linked by the plan and finished likewise.

docs/deflate-splitting.md explains the method.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from s3unzip import deflate
from s3unzip.deflate.splitting import preload
from s3unzip.errors import (
    ArchiveError,
    ConflictError,
    MemberError,
    NotFoundError,
    SegmentRecordError,
    StorageError,
)
from s3unzip.extraction.large import (
    MemberData,
    UploadGoneError,
    abort_upload,
    allowed_size,
    begin_upload,
    check_whole,
    choose_part_size,
    complete_once,
    open_data,
    open_part,
    read_pieces,
    upload_parts,
)
from s3unzip.extraction.objects import (
    explain_refusal,
    is_member,
    resolve_conflict,
)
from s3unzip.model import Outcome, Part, PlannedMember, Slice, Status, Task, TaskKind
from s3unzip.runs.records import TaskOutcomes
from s3unzip.runs.step import RUN_FAULTS, Step, TaskAttempt
from s3unzip.stores.calls import map_ahead
from s3unzip.stores.ports import Upload
from s3unzip.zip import ByteRange
from s3unzip.zip.values import WRAP

READERS = 32  # segments that are read or written at once
SEGMENTS_AHEAD = 128  # each has 65 KiB at most


# Scan


def scan_segment(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Look for one segment and write it; without one, it joins the segment before it.

    The only step that needs numpy. It is imported in a thread, while the first reads wait for S3.
    """
    preload()
    task, (start, stop) = attempt.task, attempt.task.span
    step = start // task.part if task.part else stop  # between two searches for a boundary
    for row in rows:
        try:
            data = open_part(attempt, row)
        except MemberError:  # linking opens the member too, and says what is wrong
            continue
        layout = deflate.Segmentation(row.member.compressed_size, step)
        # A segment is inflated twice: beyond half of the member one stream is as quick.
        longest = max(1, layout.count // 2)
        scanned = deflate.scan_segment(layout, task.part, _reader(data), longest)
        if scanned is not None:
            record = scanned.to_bytes()
            attempt.records.write_segment(row.member.index, task.part, "scanned", record)
    attempt.has_no_outcome = True


def _reader(data: MemberData) -> Callable[[deflate.Span], Iterator[bytes | memoryview]]:
    """Return what reads a member; what was searched for a beginning is not read again."""
    held, first = b"", 0

    def read(span: deflate.Span) -> Iterator[bytes | memoryview]:
        nonlocal held, first
        start = span.start
        if first <= start < first + len(held):
            piece = held[start - first : span.stop - first]
            start += len(piece)
            yield piece
        pieces = data.read(deflate.Span(start, span.stop))
        if held:
            yield from pieces
        else:  # the first search: 1.5 MiB at most
            first, held = start, b"".join(pieces)
            yield held

    return read


# Link


def link_member(step: Step, tasks: Sequence[Task]) -> list[Task] | Outcome:
    """Return the tasks of the slices of a member, or its outcome if it needs none.

    Where the segments of its scans do not join, the one task streams the member.
    """
    first = min(tasks, key=lambda task: task.part)
    row = step.read_rows(first.rows)[0]
    outcome = resolve_conflict(row, step)
    if outcome is not None:
        return outcome
    try:
        data = open_data(step, row)
        data.check_after()
    except MemberError as error:
        return Outcome.failed(row.member.index, row.key, error.finding)
    if first.kind is TaskKind.COPY:
        return _begin_slices(data, TaskKind.COPY, first, _place_copies(step, row, tasks))
    try:
        slices = _link_segments(step, row, first)
    except ArchiveError:
        return [whole_task(first, row)]
    return _begin_slices(data, TaskKind.SLICE, first, slices)


def _place_copies(
    step: Step, row: PlannedMember, copies: Sequence[Task]
) -> list[tuple[Slice, int]]:
    """Return the slices of one stored member, each with its size."""
    slices: list[tuple[Slice, int]] = []
    limits, least = step.destination.part_limits, step.context.tuning.copy_part_bytes
    wanted = max(least, math.ceil(row.member.size / limits.max_parts) + 1, limits.min_bytes)
    number = 1
    for task in copies:
        start, size = task.span[0], task.span[1] - task.span[0]
        count = max(1, math.ceil(size / min(wanted, limits.max_bytes)))
        slices.append((Slice("", start, number, count, 0), size))
        number += count
    return slices


def _begin_slices(
    data: MemberData, kind: TaskKind, first: Task, slices: Sequence[tuple[Slice, int]]
) -> list[Task]:
    """Begin the upload of a member; return the tasks of its slices, each given with its size."""
    row, upload = data.row, begin_upload(data.step, data.row).upload_id
    # The upload is part of the name: what an earlier upload's slices left is not this.
    mark = f"{zlib.crc32(upload.encode()):08x}"
    tasks = [
        Task(
            id=f"{kind}-{row.member.index:08d}-{part:04d}-{mark}",
            kind=kind,
            rows=first.rows,
            members=1,
            span=(piece.offset, piece.offset + size),
            size=size,
            seconds=round(first.seconds * first.parts * size / max(1, row.member.size), 3),
            part=part,
            parts=len(slices),
            slice=replace(piece, upload_id=upload, data_start=data.span.start),
        )
        for part, (piece, size) in enumerate(slices)
    ]
    return sorted(tasks, key=lambda task: -task.size)  # the longest must not begin last


def _link_segments(step: Step, row: PlannedMember, first: Task) -> list[tuple[Slice, int]]:
    """Write the linked segments; return the slices that they make, each with its size.

    Raises `DeflateError` or `MemberError` where the scans do not make the whole member.
    """
    limits = step.destination.part_limits
    # Each slice rounds its count of parts up: leave that many of the store's limit.
    spare = limits._replace(max_parts=limits.max_parts - first.parts)
    slices: list[tuple[Slice, int]] = []
    start = number = 0
    groups = _group_segments(_write_linked(step, row, first), limits.min_bytes)
    total = sum(size for _, size in groups)
    if not row.member.has_size(total) or total > allowed_size(step, row.member):
        message = f"the segments have {total} bytes, the directory says {row.member.size}"
        raise MemberError(row.finding("size-mismatch", message))
    part_size = choose_part_size(total, step.context.tuning.part_bytes, spare)
    for segments, size in groups:
        count = max(1, min(math.ceil(size / part_size), size // limits.min_bytes))
        slices.append((Slice("", start, number + 1, count, 0, tuple(segments)), size))
        number += count
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
    for part, segment in linked:
        segments.append(part)
        size += segment.length
        if size >= min_bytes:
            groups.append((segments, size))
            segments = []
            size = 0
    if size or not groups:
        groups.append((segments, size))
    else:
        groups[-1][0].extend(segments)
    return groups


def _write_linked(
    step: Step, row: PlannedMember, first: Task
) -> Iterator[tuple[int, deflate.LinkedSegment]]:
    """Write the linked segments, several at once; yield each with its part when it is written."""
    index, part_of = row.member.index, dict[int, int]()

    def write(segment: deflate.LinkedSegment) -> tuple[int, deflate.LinkedSegment]:
        part = part_of[segment.start_bit]
        step.records.write_segment(index, part, "linked", segment.to_bytes())
        return part, segment

    def read(part: int) -> deflate.ScannedSegment | None:
        record = step.records.find_segment(index, part, "scanned")
        try:
            return deflate.ScannedSegment.from_bytes(record or b"")
        except SegmentRecordError:  # it joins the segment before it, or is lost: the chain breaks
            return None

    def scans() -> Iterator[deflate.ScannedSegment]:
        found = map_ahead(read, range(first.parts), READERS, SEGMENTS_AHEAD)
        for part, scanned in enumerate(found):
            if scanned is not None:
                part_of[scanned.start_bit] = part
                yield scanned

    linked = deflate.link_segments(scans(), row.member.compressed_size)
    yield from map_ahead(write, linked, READERS, SEGMENTS_AHEAD)


# Slice


def extract_slice(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Inflate this task's segments and upload their parts; settling completes the member.

    A slice that does not inflate as it was scanned is a failed outcome: settling then streams the
    member, which tells what is wrong with it.
    """
    for row in rows:
        try:
            _upload_slice(attempt, row)
        except ArchiveError as error:
            attempt.failed(row, error.finding)
        except (UploadGoneError, SegmentRecordError) as refusal:
            attempt.failed(row, row.finding("slice-refused", str(refusal)))
    attempt.has_no_outcome = True


def _upload_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    task, piece = attempt.task, attempt.slice
    sizes = [
        task.size * (n + 1) // piece.parts - task.size * n // piece.parts
        for n in range(piece.parts)
    ]

    def pieces() -> Iterator[bytes | memoryview]:
        written = piece.offset
        for part in piece.segments:
            record = attempt.records.find_segment(row.member.index, part, "linked")
            segment = deflate.LinkedSegment.from_bytes(record or b"")
            start, stop = (piece.data_start + place for place in segment.span)
            data = read_pieces(attempt, ByteRange(start, stop))
            for output in deflate.inflate_segment(segment, data):
                yield output
                attempt.passed(row.share_of_work(written, written + len(output)))
                written += len(output)

    upload, first = Upload(row.key, piece.upload_id), (piece.first_number, piece.offset)
    if row.member.is_wrapped and task.part + 1 == task.parts and task.span[1] >= WRAP:
        attempt.warnings["size-wrapped"] += 1
    attempt.uploaded = upload_parts(attempt, upload, pieces(), sizes, max(sizes), first)


# Finish


def whole_task(task: Task, row: PlannedMember) -> Task:
    """Return the task that streams a member whose slices did not fit."""
    return Task(
        id=f"stream-{row.member.index:08d}",
        kind=TaskKind.STREAM,
        rows=task.rows,
        members=1,
        span=(0, row.member.compressed_size),
        size=row.member.size,
        seconds=task.seconds * task.parts,
    )


def finish_member(step: Step, slices: Sequence[tuple[Task, TaskOutcomes]]) -> list[Task] | Outcome:
    """Complete the upload of a member whose slices are all done.

    Returns:
        The outcome of the member, or the task that streams it because its parts do not make it;
        its upload is dropped then.
    """
    first = slices[0][0]
    row = step.read_rows(first.rows)[0]
    upload = Upload(row.key, first.slice.upload_id if first.slice else "")
    parts: list[Part] = []
    for _, found in slices:
        parts += found.report.uploaded
    outcome: Outcome | None = None
    try:
        if not any(found.outcomes for _, found in slices):  # a slice has one only where it failed
            row = check_whole(parts, row)
            etag = complete_once(step, row, upload, tuple(parts))
            return row.outcome(Status.EXTRACTED, etag=etag)
    except ConflictError:
        outcome = explain_refusal(row, step)
    except NotFoundError:  # an earlier settling completed it, or somebody aborted it
        if is_member(row, step.run.options, step.destination, step.calls):
            return row.outcome(Status.EXTRACTED)
        return [whole_task(first, row)]
    except RUN_FAULTS:
        raise
    except (MemberError, StorageError):  # the store refuses these parts; a stream may work
        pass
    abort_upload(step, upload)
    return outcome or [whole_task(first, row)]
