"""Copy a stored member inside the object store, without an upload of its bytes.

A stored member is not compressed, so UploadPartCopy can copy its bytes from the archive.

Rules:

* Before Complete, the CRC-32 of the copy is compared with the directory's. It follows from the
  checksums of the parts if the store returns them; otherwise the pinned range is read for it.
* If the store refuses to copy, or its checksums show other bytes, the member is streamed.
* Fault number `COPY_TRIES` of a part is taken for a refusal; throttling does not count.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, count

from isal.isal_zlib import crc32
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.extraction.stream import MemberData, open_data, open_part, resolve_rows, stream_whole
from s3unzip.extraction.uploads import (
    CopyRefusedError,
    PartPlan,
    UploadGoneError,
    abort_upload,
    check_whole,
    combine_parts,
    copy_sizes,
    cut_evenly,
    filling,
    finish_upload,
)
from s3unzip.model import Part, PlannedMember
from s3unzip.runs.step import RUN_FAULTS, TaskAttempt
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Upload
from s3unzip.zip import ByteRange

COPY_TRIES = 4  # of one part that may fail; then the member is streamed
CHECKSUM_LENGTH = 8  # of a CRC-32 in base64


def copy_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Copy the one member of `rows`, or this task's slice of it."""
    if attempt.task.slice is not None:
        for row in rows:
            _copy_slice(attempt, row)
            attempt.has_no_outcome = True
        return
    for row in resolve_rows(attempt, rows):
        _copy_whole(attempt, row)


def _copy_whole(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy a member by one upload; stream it if the store refuses to, or copies other bytes."""
    sizes = copy_sizes(
        row.member.size,
        attempt.context.tuning.copy_part_bytes,
        attempt.destination.part_limits,
    )
    try:
        data = open_data(attempt, row)
        data.check_after()
        with filling(attempt, row) as upload:
            parts = _copy_parts(attempt, upload, data, PartPlan(sizes))
            _check_copy(parts, data)
    except errors.MemberError as error:
        attempt.note_failed(row, error.finding)
        return
    except CopyRefusedError:
        stream_whole(attempt, row)
        return
    try:
        finish_upload(attempt, row, upload, parts)
    except RUN_FAULTS:
        raise
    except (errors.StorageError, UploadGoneError):  # the store refuses or has lost the parts
        abort_upload(attempt, upload)
        stream_whole(attempt, row)


def _check_copy(parts: tuple[Part, ...], data: MemberData) -> None:
    """Compare a copy with the directory.

    Raises:
        MemberError: the store returned no checksums, and the archive's bytes are wrong.
        CopyRefusedError: the store's checksums show that it copied other bytes. A stream shows
            whether the copy or the archive is wrong.
    """
    member = data.row.member
    size_and_crc = combine_parts(parts)
    if size_and_crc is None:  # the store returned no checksums
        check_whole(_compute_crcs(parts, data, 0), data.row)
    elif size_and_crc != (member.size, member.crc32):
        raise CopyRefusedError(f"{data.row.key}: the store's checksums are not the directory's")


def _copy_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy one slice of a member into the upload that settling began; note its parts."""
    member_slice = attempt.slice
    data = open_part(attempt, row)
    plan = PartPlan(
        cut_evenly(attempt.task.size, member_slice.parts),
        member_slice.first_number,
        member_slice.offset,
    )
    try:
        parts = _copy_parts(attempt, Upload(row.key, member_slice.upload_id), data, plan)
    except (CopyRefusedError, UploadGoneError) as refusal:  # settling streams the member
        attempt.note_failed(row, row.finding("slice-refused", str(refusal)))
        return
    if any(part.crc32 is None for part in parts):
        parts = _compute_crcs(parts, data, member_slice.offset)
    attempt.uploaded = parts  # settling completes the member with the parts of all slices


def _copy_parts(
    attempt: TaskAttempt, upload: Upload, data: MemberData, plan: PartPlan
) -> tuple[Part, ...]:
    """Copy the parts of `plan`, several at a time, from a member's data; return them in order."""
    run = attempt.run
    destination = attempt.destination
    if not destination.copies_from(run.source, run.pin):  # since the plan was made
        raise CopyRefusedError(f"{run.destination}: copies nothing from {run.source}")

    # A part has the same offset (`start`) in the object and in the member's data.
    def copy(number: int, start: int, size: int) -> Part:
        range_start = data.data_range.start + start
        request = partial(
            destination.copy_part,
            upload,
            number,
            start,
            source=run.source,
            pin=run.pin,
            span=ByteRange(range_start, range_start + size),
        )
        return _run_copy(attempt.calls, request)

    starts = list(accumulate(plan.sizes[:-1], initial=plan.offset))
    parts = []
    with ThreadPoolExecutor(
        attempt.context.tuning.parts_in_flight, thread_name_prefix="copy"
    ) as pool:
        copied = pool.map(copy, count(plan.first_number), starts, plan.sizes)
        for part, start in zip(copied, starts, strict=True):
            parts.append(part)
            attempt.count_passed(data.row.share_of_work(start, start + part.size))
    return tuple(parts)


def _run_copy(calls: Calls, request: Callable[[], Part]) -> Part:
    """Copy one part by `request`, which is called for each try.

    Raises:
        CopyRefusedError: the store refuses, or its answer has a wrong checksum.
        UploadGoneError: another process aborted the upload.
    """
    faults = count(1)  # except throttling

    def copy_once() -> Part:
        try:
            return request()
        except errors.ThrottledError:  # never taken for a refusal
            raise
        except errors.ServiceFaultError as fault:
            if next(faults) < COPY_TRIES:
                raise  # `calls` tries again
            raise CopyRefusedError(str(fault)) from fault

    try:
        part = calls.paced("copy", copy_once)
    except errors.NotFoundError as gone:
        raise UploadGoneError(gone) from gone
    except RUN_FAULTS:
        raise
    except errors.StorageError as refusal:
        raise CopyRefusedError(str(refusal)) from refusal
    # VersityGW returns the checksum of the whole archive, which ends in "-3" if the archive was
    # uploaded in 3 parts. No store accepts such a checksum in Complete.
    checksum = part.checksum_crc32
    if checksum is not None and len(checksum) != CHECKSUM_LENGTH:
        raise CopyRefusedError(f"part {part.number} came back with the checksum {checksum!r}")
    return part


def _compute_crcs(parts: tuple[Part, ...], data: MemberData, start: int) -> tuple[Part, ...]:
    """Return `parts` with their CRC-32s, which are computed from the archive.

    `start` is the offset of the first part in the member's data.
    """
    computed = []
    for part in parts:
        crc = 0
        for chunk in data.read(ByteRange(start, start + part.size)):
            crc = crc32(chunk, crc)
        computed.append(replace(part, crc32=crc))
        start += part.size
    return tuple(computed)
