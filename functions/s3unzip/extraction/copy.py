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

from isal.isal_zlib import crc32

from s3unzip.errors import MemberError, NotFoundError, StorageError
from s3unzip.extraction.attempt import TaskAttempt
from s3unzip.extraction.multipart import (
    MemberUpload,
    PartPlace,
    UploadGoneError,
    check_whole,
    combine_parts,
    upload_gone,
)
from s3unzip.extraction.stream import MemberData, open_data, stream_whole
from s3unzip.model import Part, PlannedMember
from s3unzip.runs.step import RUN_FAULTS
from s3unzip.stores.ports import CopiesParts, PartLimits, Upload
from s3unzip.zip import ByteRange

CHECKSUM_LENGTH = 8  # of a CRC-32 in base64


class CopyRefusedError(StorageError):
    """The store will not copy this range: the member is streamed instead."""


def copy_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Copy the one member of `rows`, or this task's slice of it."""
    for row in rows:
        target = MemberUpload(attempt, row)
        if attempt.task.slice is not None:
            _copy_slice(attempt, row)
            attempt.has_no_outcome = True
            attempt.bytes_copied += sum(part.size for part in attempt.uploaded)
        elif target.wanted():
            _copy_whole(target)
            attempt.bytes_copied += row.member.size


def copy_sizes(size: int, wanted: int, limits: PartLimits) -> list[int]:
    """Return part sizes of nearly equal length for a copy of `size` bytes."""
    max_length = max(
        min(wanted, limits.max_bytes), math.ceil(size / limits.max_parts), limits.min_bytes
    )
    count = min(
        math.ceil(size / max_length), size // limits.min_bytes
    )  # equal cuts may be too small
    count = max(1, count, math.ceil(size / limits.max_bytes))
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def _copy_whole(target: MemberUpload) -> None:
    attempt, row = target.attempt, target.row
    try:
        data = open_data(attempt, row)
        data.check_after()
    except MemberError as error:
        attempt.failed(row, error.finding)
        return
    limits = attempt.destination.part_limits
    sizes = copy_sizes(row.member.size, attempt.context.tuning.copy_part_bytes, limits)
    upload = target.begin()
    try:
        parts = _copy_parts(target, upload, data, sizes=sizes)
        _verify(parts, data, row)
    except MemberError as error:
        target.abort(upload)
        attempt.failed(row, error.finding)
    except CopyRefusedError:
        target.abort(upload)
        stream_whole(target)
    except BaseException:
        target.abort_quietly(upload)
        raise
    else:
        _complete_or_stream(target, upload, parts)


def _complete_or_stream(target: MemberUpload, upload: Upload, parts: tuple[Part, ...]) -> None:
    try:
        target.complete(upload, parts)
    except RUN_FAULTS:
        raise
    except StorageError:  # it copied the parts, but will not have them
        target.abort(upload)
        stream_whole(target)


def _copy_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy one slice of a member over several tasks; settling completes the member."""
    piece, size = attempt.slice, attempt.task.size
    data = open_data(attempt, row)
    sizes = copy_sizes(size, math.ceil(size / piece.parts), attempt.destination.part_limits)
    upload, first = Upload(row.key, piece.upload_id), PartPlace(piece.first_number, piece.offset)
    try:
        parts = _copy_parts(MemberUpload(attempt, row), upload, data, sizes=sizes, first=first)
    except (CopyRefusedError, UploadGoneError) as refusal:  # settling streams the member
        attempt.failed(row, row.finding("slice-refused", str(refusal)))
        return
    attempt.uploaded = _with_crcs(parts, data, piece.offset)


def _copy_parts(
    target: MemberUpload,
    upload: Upload,
    data: MemberData,
    *,
    sizes: list[int],
    first: PartPlace | None = None,
) -> tuple[Part, ...]:
    attempt, row = target.attempt, target.row
    run, destination = attempt.run, attempt.destination
    first_number, offset = first or PartPlace()
    if not isinstance(destination, CopiesParts):
        raise CopyRefusedError(f"{run.destination}: copies nothing from {run.source}")

    def copy(number: int, at: int, size: int) -> Part:
        start = data.span.start + at
        span = ByteRange(start, start + size)
        try:
            part = attempt.calls.paced(
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
    threads = attempt.context.tuning.parts_in_flight
    parts = []
    with ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
        for part, at in zip(pool.map(copy, numbers, starts, sizes), starts, strict=True):
            parts.append(part)
            attempt.passed(row.share_of_work(at, at + part.size))
    return tuple(parts)


def _verify(parts: tuple[Part, ...], data: MemberData, row: PlannedMember) -> None:
    """Compare the copy with the directory."""
    if combine_parts(parts) == (row.member.size, row.member.crc32):
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
