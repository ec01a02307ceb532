"""A segment: one slice of a huge deflated member, its window known since the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import deflate, run_files
from s3unzip.errors import ArchiveError, DeadlineError, Finding
from s3unzip.extraction.split.link import read_link, read_segment
from s3unzip.objects.part_writer import (
    PartPlace,
    PartWriter,
    UploadGoneError,
    parts_at_once,
)
from s3unzip.stores.ports import Upload
from s3unzip.stores.readahead import stream_ahead
from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Link, MemberRow, Run, SliceParts
    from s3unzip.runs.outcomes import OutcomeLog


def extract_segment(run: Run, rows: list[MemberRow], log: OutcomeLog) -> None:
    """Inflate this task's segments and upload their parts; settling completes the member.

    A segment that joined the one before it has nothing to do. A segment that
    does not inflate as it was scanned is a failed outcome: settling then
    streams the member, which tells what is wrong with it.

    Raises:
        DeadlineError, SourceChangedError, AccessDeniedError, ServiceFaultError: as for a stream.
    """
    for row in rows:
        link = read_link(log, row.index)
        mine = [piece for piece in link.slices if piece.part == log.task.part]
        if link.upload_id is not None and mine:
            try:
                _upload_slice(run, row, log, link, mine[0])
            except ArchiveError as error:
                log.failed(row, error.finding)
            except UploadGoneError as gone:
                log.failed(row, Finding("slice-refused", str(gone), row.offset, row.key))
        log.slice_done = True


def _upload_slice(run: Run, row: MemberRow, log: OutcomeLog, link: Link, piece: SliceParts) -> None:
    destination = log.context.stores.destination(run.destination)
    upload = Upload(row.key, link.upload_id or "")
    sizes = part_sizes(piece)
    writer = PartWriter(
        destination,
        upload,
        log.calls,
        sizes=sizes,
        at_once=parts_at_once(max(sizes), log.context.tuning),
        first=PartPlace(piece.first_number, piece.offset),
    )
    try:
        for part in piece.segments:
            for output in _inflate(run, row, log, link.data_start, part):
                writer.write(output)
        parts = writer.close()
    except BaseException:
        writer.abandon()
        raise
    log.uploaded = parts
    log.upload_id = link.upload_id


def part_sizes(piece: SliceParts) -> list[int]:
    """Return the sizes of the slice's multipart parts: nearly equal, none too small."""
    size, count = piece.size, piece.count
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def _inflate(
    run: Run, row: MemberRow, log: OutcomeLog, data_start: int, part: int
) -> Iterator[bytes]:
    name = run_files.linked_segment(row.index, part)
    segment = read_segment(log.work, name, deflate.LinkedSegment.from_bytes)
    archive = log.context.stores.source(run.source).pinned(run.source, run.pin)
    tuning, clock = log.context.tuning, log.context.clock

    def pieces() -> Iterator[memoryview]:
        span = ByteRange(data_start + segment.span.start, data_start + segment.span.stop)
        for piece in stream_ahead(archive, span, log.calls, tuning):
            if clock.remaining() < tuning.margin_seconds:
                raise DeadlineError(f"{log.task.id}: the worker's time limit is near")
            log.bytes_read += len(piece)
            yield piece
            log.tick()

    yield from deflate.inflate_segment(segment, pieces())
