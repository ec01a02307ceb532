"""A member that is split among several tasks: scan, link, extract in slices, finish.

The four stages, in this order:

- *Scan*: one task finds one segment and the last bytes of its output; the output before the
  segment is unknown. Scans run concurrently, in any order, and may be repeated: a repeated scan
  writes the same record.
- *Link*: when all scans are done, settling assigns each segment its window and its offset in the
  object, begins one multipart upload and creates the slice tasks. A stored member that several
  tasks copy needs no scan, but is also linked.
- *Slice*: one task inflates some segments and uploads their parts. Slices run concurrently, in any
  order, and may be repeated: a part that is uploaded again replaces its earlier version.
- *Finish*: when all slices are done, settling compares the size and the CRC-32 of all parts with
  the directory, and completes the upload. If the values differ, one task streams the member.

Rules:

* Linking may happen more than once, late or concurrently. Each linking begins its own upload. The
  ids of the slice tasks contain a hash of the upload id, so that slices of two uploads do not mix.
* Each slice except the last has at least the minimum part size of the store.
* A slice has an outcome only if it failed. Settling then streams the member, which reveals the
  fault.
* Finishing may be repeated: if the upload is gone, the object under the key determines the outcome.

docs/deflate-splitting.md explains the method.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from threading import Thread

from msgspec.structs import replace

from s3unzip import deflate
from s3unzip.errors import (
    ArchiveError,
    ConflictError,
    DeflateError,
    MemberError,
    NotFoundError,
    StorageError,
)
from s3unzip.extraction.existing_objects import explain_refusal, resolve_conflict
from s3unzip.extraction.large_members import (
    MemberData,
    allowed_size,
    open_data,
    open_part,
    read_range,
)
from s3unzip.extraction.uploads import (
    UploadGoneError,
    abort_upload,
    begin_upload,
    check_whole,
    choose_part_size,
    complete_once,
    cut_evenly,
    upload_parts,
)
from s3unzip.model import Outcome, PlannedMember, Slice, Status, Task, TaskKind
from s3unzip.runs.records import TaskOutcomes
from s3unzip.runs.step import RUN_FAULTS, Step, TaskAttempt
from s3unzip.stores.calls import map_ahead
from s3unzip.stores.ports import Upload
from s3unzip.zip import ByteRange
from s3unzip.zip.values import WRAP

SEGMENTS_AT_ONCE = 32  # number of records that are read or written concurrently
SEGMENTS_AHEAD = 128  # maximum number of records in memory; each has up to 65 KiB

# For each slice of a member: the numbers of the segments to inflate (none for a copy), and the
# number of bytes that the slice contributes to the object.
_Slices = list[tuple[list[int], int]]


def scan_member(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Scan one segment and write its record.

    No record is written if the segment has no boundary, because linking joins the segment to the
    preceding one. If the scan would cover more than half of the member, no record is written
    either. Linking then returns a task that streams the whole member.
    """
    # Only scans need numpy, so a thread imports it while the first reads wait for S3.
    Thread(target=import_module, args=["s3unzip.deflate.boundary"], daemon=True).start()
    task = attempt.task
    try:
        data = open_part(attempt, row)
    except MemberError:  # linking also opens the member, and reports the finding
        return
    segmentation = _segmentation_of(task, row)
    # A scan continues through later segments that have no boundary. The task of a slice inflates
    # the scanned data again. If a scan covered more than half of the member, the scan and the slice
    # together would take longer than streaming the whole member.
    max_segments = max(1, segmentation.count // 2)
    segment = deflate.scan_segment(segmentation, task.part, _keep_first_read(data), max_segments)
    if segment is not None:
        attempt.records.write_segment(row.member.index, task.part, "scanned", segment.to_bytes())


def _segmentation_of(scan: Task, row: PlannedMember) -> deflate.Segmentation:
    """Return how a member is cut into segments; `scan` is any of the member's scan tasks.

    All segments except the last have the same length, so segment number N begins at N times this
    length. `planning.cut` cuts a member into `scan.parts` such segments.
    """
    size = row.member.compressed_size
    return deflate.Segmentation(size, distance=math.ceil(size / scan.parts))


def _keep_first_read(data: MemberData) -> Callable[[int, int], Iterator[bytes | memoryview]]:
    """Return a function that yields bytes [start, stop) of a member's data.

    A scan first reads at most 1.5 MiB and searches these bytes for a boundary. The scan then reads
    again, from the boundary on, so the function keeps the bytes of the first read.
    """
    first_bytes = b""
    first_start = 0  # offset of `first_bytes` in the data

    def read(start: int, stop: int) -> Iterator[bytes | memoryview]:
        nonlocal first_bytes, first_start
        if not first_bytes:  # this is the first read
            first_start = start
            first_bytes = b"".join(data.read(ByteRange(start, stop)))
        first_stop = first_start + len(first_bytes)
        if first_start <= start < first_stop:  # the range begins with kept bytes
            yield first_bytes[start - first_start : stop - first_start]
            start = min(stop, first_stop)
        yield from data.read(ByteRange(start, stop))  # no request if the range is empty

    return read


def link_member(run_step: Step, tasks: Sequence[Task]) -> list[Task] | Outcome:
    """Begin the upload of a member; return the tasks of its slices.

    If there is nothing to upload, returns the outcome of the member instead. If the scanned
    segments do not add up to the member, returns the task that streams the member.

    Args:
        run_step: the step that settles the run.
        tasks: all scans, or all copies, of the member.
    """
    tasks = sorted(tasks, key=lambda task: task.part)
    first_task = tasks[0]
    row = run_step.read_rows(first_task.rows)[0]
    outcome = resolve_conflict(row, run_step.run.options, run_step.destination, run_step.calls)
    if outcome is not None:
        return outcome
    try:
        data = open_data(run_step, row)
        data.check_after_data()
    except MemberError as error:
        return row.failed(error.finding)
    tuning = run_step.context.tuning
    try:
        if first_task.kind is TaskKind.COPY:
            slices: _Slices = [([], task.size) for task in tasks]
            return _begin_slices(
                data, TaskKind.COPY, first_task, slices, min_part=tuning.copy_part_bytes
            )
        slices = _link_segments(run_step, row, first_task)
        return _begin_slices(data, TaskKind.SLICE, first_task, slices, min_part=tuning.part_bytes)
    except ArchiveError:  # the segments do not form the member: streaming shows why
        return [_stream_task(first_task, row)]


def _begin_slices(
    data: MemberData, kind: TaskKind, first_task: Task, slices: _Slices, *, min_part: int
) -> list[Task]:
    """Begin the upload of a member; return the tasks of its slices, the longest first.

    `first_task` is the first of the scans or copies into which the plan has cut the member.
    `min_part` is the usual size of a part in bytes; the limits of the store may require larger
    parts.
    """
    row = data.row
    limits = data.run_step.destination.part_limits
    # There are at most `first_task.parts` slices. Each slice may round up the number of parts that
    # it uploads, so reserve one part for each slice.
    reduced_limits = limits._replace(max_parts=limits.max_parts - first_task.parts)
    part_size = choose_part_size(sum(size for _, size in slices), min_part, reduced_limits)
    upload_id = begin_upload(data.run_step, row).upload_id
    # Part of the ids of the tasks, so that slices of two uploads do not mix.
    upload_mark = f"{zlib.crc32(upload_id.encode()):08x}"
    # All tasks of the member take about the same time, so the first task represents all of them.
    seconds_per_byte = first_task.seconds * first_task.parts / max(1, row.member.size)
    tasks: list[Task] = []
    offset = 0  # offset of the slice in the object
    number = 1  # number of the first part of the slice
    for slice_number, (segments, size) in enumerate(slices):
        # As many parts as needed, but none below the store's minimum size.
        part_count = max(1, min(math.ceil(size / part_size), size // limits.min_bytes))
        tasks.append(
            replace(
                first_task,
                id=f"{kind}-{row.member.index:08d}-{slice_number:04d}-{upload_mark}",
                kind=kind,
                span=(offset, offset + size),
                size=size,
                seconds=round(seconds_per_byte * size, 3),
                # These two fields count slices; `Slice.parts` counts parts of the upload.
                part=slice_number,
                parts=len(slices),
                slice=Slice(
                    upload_id=upload_id,
                    offset=offset,
                    first_number=number,
                    parts=part_count,
                    data_start=data.data_range.start,
                    segments=tuple(segments),
                ),
            )
        )
        offset += size
        number += part_count
    return sorted(tasks, key=lambda task: -task.size)


def _link_segments(run_step: Step, row: PlannedMember, first_scan: Task) -> _Slices:
    """Write the linked segments; return the slices that they form.

    Raises:
        DeflateError: the scanned segments do not form one stream.
        MemberError: the stream and the member differ in size.
    """
    groups = _group_segments(
        _write_linked(run_step, row, first_scan), run_step.destination.part_limits.min_bytes
    )
    total = sum(size for _, size in groups)
    # `has_size` also accepts a size that exceeds the declared one by a multiple of 4 GiB.
    if not row.member.has_size(total) or total > allowed_size(run_step, row.member):
        raise MemberError(
            row.finding(
                "size-mismatch",
                f"the segments have {total} bytes, but the directory declares {row.member.size}",
            )
        )
    return groups


def _group_segments(linked: Iterable[tuple[int, deflate.LinkedSegment]], min_bytes: int) -> _Slices:
    """Group segments into slices.

    Each slice except the last has at least `min_bytes`, because only the last part of an upload may
    be smaller. Segments at the end that inflate to no bytes are left out: their scans have checked
    them, and they add nothing to the object.
    """
    groups: _Slices = []
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
    return groups


def _write_linked(
    run_step: Step, row: PlannedMember, first_scan: Task
) -> Iterator[tuple[int, deflate.LinkedSegment]]:
    """Link the scanned segments; write the record of each, then yield its number and record."""
    index = row.member.index
    segmentation = _segmentation_of(first_scan, row)

    def read_scan(number: int) -> deflate.ScannedSegment | None:
        record = run_step.records.find_segment(index, number, "scanned")
        # A missing record counts as damaged. Linking then fails, unless the scan of an earlier
        # segment covers this one.
        try:
            return deflate.ScannedSegment.from_bytes(record or b"")
        except DeflateError:
            return None

    def write_linked(segment: deflate.LinkedSegment) -> tuple[int, deflate.LinkedSegment]:
        # With a distance of D between segments, segment N begins in [N * D, (N + 1) * D).
        number = segment.start_bit // (8 * segmentation.distance)
        run_step.records.write_segment(index, number, "linked", segment.to_bytes())
        return number, segment

    segments = map_ahead(read_scan, range(first_scan.parts), SEGMENTS_AT_ONCE, SEGMENTS_AHEAD)
    linked = deflate.link_segments(filter(None, segments), segmentation.size)
    yield from map_ahead(write_linked, linked, SEGMENTS_AT_ONCE, SEGMENTS_AHEAD)


def extract_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Inflate the segments of this task, upload their parts, and note the parts in the attempt."""
    task = attempt.task
    member_slice = attempt.slice
    # The last slice ends where the content ends, and content of 4 GiB or more is larger than its
    # 32-bit size in the directory.
    is_last = task.part + 1 == task.parts
    if row.member.is_wrapped and is_last and task.span[1] >= WRAP:
        attempt.warnings["size-wrapped"] += 1
    try:
        attempt.uploaded = upload_parts(
            attempt,
            Upload(row.key, member_slice.upload_id),
            _inflate_slice(attempt, row),
            cut_evenly(task.size, member_slice.parts),
            first_number=member_slice.first_number,
            offset=member_slice.offset,
        )
    except ArchiveError as error:
        attempt.note_failed(row, error.finding)
    except UploadGoneError as refusal:
        attempt.note_failed(row, row.finding("slice-refused", str(refusal)))


def _inflate_slice(attempt: TaskAttempt, row: PlannedMember) -> Iterator[bytes]:
    """Yield the content of the slice of this task, and count the work after each piece."""
    data_start = attempt.slice.data_start
    position = attempt.slice.offset  # position in the content of the member
    for number in attempt.slice.segments:
        segment = deflate.LinkedSegment.from_bytes(  # fails if there is no record
            attempt.records.find_segment(row.member.index, number, "linked") or b""
        )
        start, stop = segment.span
        data = read_range(attempt, ByteRange(data_start + start, data_start + stop))
        for content in deflate.inflate_segment(segment, data):
            yield content
            attempt.count_member_bytes(row.share_of_work(position, position + len(content)))
            position += len(content)


def _stream_task(first_task: Task, row: PlannedMember) -> Task:
    """Return the task that streams a member whose segments or slices are incomplete.

    `first_task` is the first of the tasks into which the member was split; all of these tasks take
    about the same time.
    """
    return Task(
        id=f"stream-{row.member.index:08d}",
        kind=TaskKind.STREAM,
        rows=first_task.rows,
        members=1,
        span=(0, row.member.compressed_size),
        size=row.member.size,
        seconds=first_task.seconds * first_task.parts,
        member=row.member.index,
    )


def finish_member(
    run_step: Step, slices: Sequence[tuple[Task, TaskOutcomes]]
) -> list[Task] | Outcome:
    """Complete the upload of a member whose slices are all done.

    Returns:
        The outcome of the member, even if `on_conflict` keeps another object under its key. If a
        slice failed, or the parts do not form the member, the upload is aborted, and the task that
        streams the member is returned.
    """
    first_task, _ = slices[0]
    row = run_step.read_rows(first_task.rows)[0]
    # The tasks in `slices` always have a slice; `else` is only for the type checker.
    upload = Upload(row.key, first_task.slice.upload_id if first_task.slice else "")
    parts = tuple(part for _, recorded in slices for part in recorded.report.uploaded)
    if any(recorded.outcomes for _, recorded in slices):  # a slice has an outcome only if it failed
        abort_upload(run_step, upload)
        return [_stream_task(first_task, row)]
    try:
        row = check_whole(parts, row)
        # An earlier settling may have completed the upload.
        etag = complete_once(run_step, row, upload, parts, is_repeated=True)
    except ConflictError:  # streaming would be refused too
        outcome = explain_refusal(row, run_step)
        abort_upload(run_step, upload)
        return outcome
    except NotFoundError:  # another process aborted the upload
        return [_stream_task(first_task, row)]
    except RUN_FAULTS:
        raise
    except (MemberError, StorageError):  # the parts are wrong or refused: streaming may succeed
        abort_upload(run_step, upload)
        return [_stream_task(first_task, row)]
    return row.outcome(Status.EXTRACTED, etag=etag)
