"""A copy: a stored member, copied inside the object store.

Its bytes lie in the archive as they are, so UploadPartCopy takes them from
there: no byte is uploaded. Before Complete the copy is compared with the
directory's CRC-32: by the checksums of the parts, where the store gives them;
else by reading the pinned range and computing it. Where the store will not
copy, the member is streamed.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from s3unzip.errors import Finding, MemberError, NotFoundError, StorageError
from s3unzip.extraction.member import open_data
from s3unzip.extraction.split.link import read_link
from s3unzip.extraction.stream import stream_whole
from s3unzip.model import Part
from s3unzip.objects.part_writer import (
    MemberUpload,
    UploadGoneError,
    check_whole,
    combine_parts,
    upload_gone,
)
from s3unzip.runs.stop import RUN_FAULTS
from s3unzip.stores.ports import Upload
from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from s3unzip.extraction.member import MemberData
    from s3unzip.model import MemberRow, Run
    from s3unzip.runs.outcomes import OutcomeLog
    from s3unzip.stores.ports import Destination, PartLimits


CHECKSUM_LENGTH = 8  # of a CRC-32 in base64


class CopyRefusedError(StorageError):
    """The store will not copy this range: the member is streamed instead."""


def copy_member(run: Run, rows: list[MemberRow], log: OutcomeLog) -> None:
    """Copy the one member of `rows`, or this task's slice of it.

    Raises:
        SourceChangedError, AccessDeniedError, ...: what stops the run.
        ServiceFaultError: a call's budget is spent.
    """
    destination = log.context.stores.destination(run.destination)
    for row in rows:
        if log.task.parts > 1:
            _copy_slice(run, row, log, destination)
            continue
        attempt = MemberUpload(run, row, log, destination)
        if attempt.resume_upload():
            log.extracted(row, 0.0)
        elif attempt.wanted():
            _copy_whole(attempt)


def copy_sizes(size: int, wanted: int, limits: PartLimits) -> list[int]:
    """Return part sizes of nearly equal length for a copy of `size` bytes."""
    most = max(min(wanted, limits.max_bytes), math.ceil(size / limits.max_parts), limits.min_bytes)
    count = min(math.ceil(size / most), size // limits.min_bytes)  # equal cuts may be too small
    count = max(1, count, math.ceil(size / limits.max_bytes))
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def _copy_whole(attempt: MemberUpload) -> None:
    row, log = attempt.row, attempt.log
    try:
        data = open_data(attempt.run, row, log)
        data.check_after()
    except MemberError as error:
        log.failed(row, error.finding)
        return
    limits = attempt.destination.part_limits
    sizes = copy_sizes(row.size, log.context.tuning.copy_part_bytes, limits)
    upload = attempt.begin()
    try:
        parts = _copy_parts(attempt.destination, upload, data, log, sizes=sizes)
        _verify(parts, data, row)
    except MemberError as error:
        attempt.abort(upload)
        log.failed(row, error.finding)
    except CopyRefusedError:
        attempt.abort(upload)
        stream_whole(attempt)
    except BaseException:
        attempt.abort_quietly(upload)
        raise
    else:
        _complete_or_stream(attempt, upload, parts)


def _complete_or_stream(attempt: MemberUpload, upload: Upload, parts: tuple[Part, ...]) -> None:
    try:
        attempt.complete(upload, parts)
    except RUN_FAULTS:
        raise
    except StorageError:  # it copied the parts, but will not have them
        attempt.abort(upload)
        stream_whole(attempt)


def _copy_slice(run: Run, row: MemberRow, log: OutcomeLog, destination: Destination) -> None:
    """Copy one slice of a member over several tasks; settling completes the member."""
    link = read_link(log, row.index)
    mine = [piece for piece in link.slices if piece.part == log.task.part]
    if link.upload_id is None or not mine:
        log.slice_done = True
        return
    piece = mine[0]
    data = open_data(run, row, log)
    sizes = copy_sizes(piece.size, math.ceil(piece.size / piece.count), destination.part_limits)
    try:
        parts = _copy_parts(
            destination,
            Upload(row.key, link.upload_id),
            data,
            log,
            sizes=sizes,
            offset=piece.offset,
            first_number=piece.first_number,
        )
    except (CopyRefusedError, UploadGoneError) as refusal:  # settling streams the member
        log.failed(row, Finding("slice-refused", str(refusal), row.offset, row.key))
        log.slice_done = True
        return
    log.uploaded = _with_crcs(parts, data, piece.offset)
    log.upload_id = link.upload_id
    log.slice_done = True


def _copy_parts(  # noqa: PLR0913 - where from, where to, and which parts
    destination: Destination,
    upload: Upload,
    data: MemberData,
    log: OutcomeLog,
    *,
    sizes: list[int],
    offset: int = 0,
    first_number: int = 1,
) -> tuple[Part, ...]:
    run = data.run

    def copy(number: int, at: int, size: int) -> Part:
        start = data.span.start + at
        span = ByteRange(start, start + size)
        try:
            part = log.calls.paced(
                "copy",
                lambda: destination.copy_part(upload, number, at, run.source, run.pin, span),
            )
        except NotFoundError as gone:
            raise upload_gone(gone) from gone
        except RUN_FAULTS:
            raise
        except StorageError as refusal:
            raise CopyRefusedError(str(refusal)) from refusal
        # VersityGW gives the source's own checksum, "...-3" of one uploaded in parts, which
        # neither it nor anybody else takes on Complete.
        checksum = part.checksum_crc32
        if checksum is not None and len(checksum) != CHECKSUM_LENGTH:
            raise CopyRefusedError(f"part {number} came back with the checksum {checksum!r}")
        return part

    starts = [offset + sum(sizes[:n]) for n in range(len(sizes))]
    numbers = range(first_number, first_number + len(sizes))
    threads = log.context.tuning.parts_in_flight
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        return tuple(pool.map(copy, numbers, starts, sizes))


def _verify(parts: tuple[Part, ...], data: MemberData, row: MemberRow) -> None:
    """Compare the copy with the directory.

    Raises:
        MemberError: the member's bytes in the archive are not what the directory says.
    """
    if combine_parts(parts) == (row.size, row.crc32):
        return
    # Emulators return no part checksum or a wrong one; the range itself is the arbiter.
    check_whole(_with_crcs(parts, data, 0, trust=False), row)


def _with_crcs(
    parts: tuple[Part, ...], data: MemberData, offset: int, *, trust: bool = True
) -> tuple[Part, ...]:
    """Return `parts` with CRC-32s; those that the store did not give are read and computed."""
    if trust and all(part.crc32 is not None for part in parts):
        return parts
    known = []
    for part in parts:
        crc = 0
        for piece in data.pieces(offset, offset + part.size):
            crc = crc32(piece, crc)
        known.append(Part(part.number, part.etag, part.size, crc, part.checksum_crc32))
        offset += part.size
    return tuple(known)
