"""Extract one large member: stream it, or let the store copy it.

A streamed member is read ahead, decoded and uploaded in parts. A stored member is not compressed,
so UploadPartCopy can copy its bytes from the archive without an upload. `MemberData` reads large
members, including split members.

Rules:

* A member becomes visible only after its size and its CRC-32 have been verified.
* The declared size of a member may be too small by a multiple of 4 GiB (`is_wrapped`). If the
  member turns out to be larger, it is uploaded again with room for its maximum size.
* A failed upload is aborted.
* Before the upload of a copy is completed, the CRC-32 of the copy is compared with the one in the
  directory. The CRC-32 is computed from the checksums of the parts if the store returns them,
  otherwise from the pinned range of the archive.
* If the store refuses to copy, or its checksums show wrong bytes, the member is streamed.
* The `COPY_TRIES`-th fault of a part counts as a refusal; throttling does not count as a fault.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate

from isal.isal_zlib import crc32
from msgspec import Struct
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.extraction.existing_objects import resolve_conflict
from s3unzip.extraction.member_object import open_content, stored_size
from s3unzip.extraction.uploads import (
    CopyRefusedError,
    UploadGoneError,
    check_whole,
    choose_part_size,
    combine_parts,
    copy_sizes,
    cut_evenly,
    finish_upload,
    open_upload,
    send_part,
    upload_parts,
)
from s3unzip.model import Part, PlannedMember, TaskKind
from s3unzip.planning.reading import open_local
from s3unzip.runs.step import RUN_FAULTS, Step, TaskAttempt
from s3unzip.stores.calls import read_ahead
from s3unzip.stores.ports import Buffer, Upload
from s3unzip.zip import AFTER_LENGTH, ByteRange, Member, OpenedMember, close_member
from s3unzip.zip.decode import largest_size

COPY_TRIES = 4  # after this many faults in the copy of one part, the member is streamed
CHECKSUM_LENGTH = 8  # length of a CRC-32 in base64


class MemberData(Struct, frozen=True):
    """A large member whose local header agrees with the directory."""

    run_step: Step
    row: PlannedMember
    opened: OpenedMember

    @property
    def data_range(self) -> ByteRange:
        """The byte range of the member's data in the archive."""
        member = self.row.member
        start = member.offset + self.opened.data_start
        return ByteRange(start, start + member.compressed_size)

    def read(self, span: ByteRange) -> Iterator[memoryview]:
        """Yield a range of the member's data; `span` is relative to the first byte of the data."""
        start = self.data_range.start
        return read_range(self.run_step, ByteRange(start + span.start, start + span.stop))

    def check_after_data(self) -> None:
        """Check the data descriptor and the bytes that follow; add the warnings to the step."""
        member = self.row.member
        start = self.data_range.stop
        # Usually, the next member follows immediately: the range is empty and needs no request.
        trailing = self.run_step.calls.read(
            self.run_step.archive, ByteRange(start, min(member.stop, start + AFTER_LENGTH))
        )
        self.run_step.warnings.update(close_member(member, self.opened, trailing))


def read_range(run_step: Step, byte_range: ByteRange) -> Iterator[memoryview]:
    """Yield a range of the archive in chunks of about a MiB, reading ahead.

    One request reads a larger piece (`read_piece`), whose bytes arrive in chunks. Chunks are small
    because allocating pages for large buffers takes longer than filling them.
    """
    tuning = run_step.context.tuning
    for chunks in read_ahead(
        lambda want: list(run_step.calls.stream(run_step.archive, want)),
        byte_range,
        tuning.read_piece,
        tuning.reads_ahead,
    ):
        for chunk in chunks:
            run_step.check_time()
            yield memoryview(chunk)


def open_data(run_step: Step, row: PlannedMember) -> MemberData:
    """Read and check the local header of a large member; add the warnings to the step."""
    opened = open_local(
        row.member, partial(run_step.calls.read, run_step.archive), run_step.context.policy
    )
    run_step.warnings.update(opened.warnings)
    return MemberData(run_step, row, opened)


def open_part(attempt: TaskAttempt, row: PlannedMember) -> MemberData:
    """Open a member for one of its tasks; only its first task reports the member's warnings."""
    data = open_data(attempt, row)
    if attempt.task.part == 0:
        data.check_after_data()  # adds its warnings to those of `open_data`
    else:
        attempt.warnings.clear()
    return data


def stream_member(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Extract one member by streaming it, unless `on_conflict` forbids a write."""
    _write_unless_conflict(attempt, row, stream_whole)


def _write_unless_conflict(
    attempt: TaskAttempt,
    row: PlannedMember,
    write: Callable[[TaskAttempt, PlannedMember], None],
) -> None:
    """Write a large member with `write`; if `on_conflict` forbids this, note the outcome."""
    try:
        outcome = resolve_conflict(
            row,
            attempt.run.options,
            attempt.destination,
            attempt.calls,
            read_crc=partial(_read_crc, attempt, row),
        )
    except errors.MemberError as error:
        outcome = row.failed(error.finding)
    if outcome is None:
        write(attempt, row)
    else:
        attempt.note(row, outcome)


def _read_crc(attempt: TaskAttempt, row: PlannedMember) -> int:
    data = open_data(attempt, row)
    decoder = open_content(row.member, attempt.context.policy, data.opened, attempt.run.options)
    for _ in decoder.decode(read_range(attempt, data.data_range)):
        pass  # the content itself is not used
    return decoder.crc32


def stream_whole(attempt: TaskAttempt, row: PlannedMember, room: int | None = None) -> None:
    """Upload one member from its first byte to its last.

    Args:
        attempt: the attempt that notes the outcome.
        row: the member.
        room: number of bytes that the parts must be able to hold; None for the size of the object.
            If the member `is_wrapped` and its object turns out to be larger, the object is uploaded
            again.
    """
    # The member may have been read before: count its bytes and warnings from zero.
    attempt.current_member_bytes = 0
    if attempt.task.kind is not TaskKind.BATCH:  # a batch also has warnings about other members
        attempt.warnings.clear()
    limits = attempt.destination.part_limits
    if room is None:
        room = stored_size(row.member, attempt.run.options)
    max_room = min(allowed_size(attempt, row.member), limits.object_bytes)
    try:
        part_size = choose_part_size(room, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
        with open_upload(attempt, row) as upload:
            verified, parts = _upload(attempt, upload, data, part_size)
    except errors.MemberError as error:
        # The size was only the lower 32 bits of the true size: upload again with more room.
        if error.finding.code == "bomb-wrapped-size" and room < max_room:
            stream_whole(attempt, row, max_room)
        else:
            attempt.note_failed(row, error.finding)
        return
    finish_upload(attempt, verified, upload, parts)


def allowed_size(run_step: Step, member: Member) -> int:
    """Return the maximum size of the content of a member, in bytes.

    Only the lower 32 bits of the size of an `is_wrapped` member are known.
    """
    if not member.is_wrapped:
        return member.size
    # Above its declared size, a wrapped member may have `inflation` bytes of content for each
    # compressed byte. If each member stays below this size, the run stays below its limit.
    return min(
        member.size + int(member.compressed_size * run_step.run.inflation),
        largest_size(member, run_step.context.policy),
    )


def _upload(
    attempt: TaskAttempt, upload: Upload, data: MemberData, part_size: int
) -> tuple[PlannedMember, tuple[Part, ...]]:
    """Upload and check the parts; return the row with its true size and CRC-32, and the parts."""
    row = data.row
    options = attempt.run.options
    max_size = allowed_size(attempt, row.member)
    if options.as_gzip is None:  # the object is the content, so the content must fit in the parts
        max_size = min(max_size, part_size * attempt.destination.part_limits.max_parts)
    decoder = open_content(
        row.member, attempt.context.policy, data.opened, options, max_size=max_size
    )

    def content() -> Iterator[Buffer]:
        yield from decoder.decode(attempt.count_pieces(read_range(attempt, data.data_range)))
        data.check_after_data()

    parts = upload_parts(attempt, upload, content(), sizes=[part_size])  # for all parts
    attempt.warnings.update(decoder.warnings)
    row = row.with_crc(decoder.crc32)
    if options.as_gzip is None:
        return check_whole(parts, row), parts
    # The CRC-32 of the member is not that of the gzip file, so only the size is compared.
    gzip_size = stored_size(row.member, options)
    size = sum(part.size for part in parts)
    if size != gzip_size:
        raise errors.MemberError(
            row.finding("size-mismatch", f"the parts have {size} bytes, not {gzip_size}")
        )
    return row, parts


def copy_member(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy one member, or only the slice that belongs to this task."""
    if attempt.task.slice is not None:
        _copy_slice(attempt, row)  # conflicts were resolved before the upload began
    else:
        _write_unless_conflict(attempt, row, _copy_whole)


def _copy_whole(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy a member with one upload; stream it if the copy is refused or its bytes differ."""
    sizes = copy_sizes(
        row.member.size,
        attempt.context.tuning.copy_part_bytes,
        attempt.destination.part_limits,
    )
    try:
        data = open_data(attempt, row)
        data.check_after_data()
        with open_upload(attempt, row) as upload:  # only an error aborts the upload
            parts = _copy_parts(attempt, upload, data, sizes)
            _check_copy(parts, data)
    except errors.MemberError as error:  # the bytes in the archive are wrong
        attempt.note_failed(row, error.finding)
        return
    except CopyRefusedError:
        stream_whole(attempt, row)
        return
    try:
        finish_upload(attempt, row, upload, parts)
    except RUN_FAULTS:
        raise
    except (errors.StorageError, UploadGoneError):  # the store refuses the parts or has lost them
        stream_whole(attempt, row)


def _check_copy(parts: tuple[Part, ...], data: MemberData) -> None:
    """Compare a copy with the directory.

    Raises:
        MemberError: the store returned no checksums, and the archive's bytes are wrong.
        CopyRefusedError: the store's checksums show that the copy contains wrong bytes. Streaming
            the member shows whether the copy or the archive is wrong.
    """
    member = data.row.member
    size_and_crc = combine_parts(parts)
    if size_and_crc is None:  # the store returned no checksums: check the archive's bytes
        check_whole(_compute_crcs(parts, data, start=0), data.row)
    elif size_and_crc != (member.size, member.crc32):
        raise CopyRefusedError(
            f"{data.row.key}: the store's checksums differ from the CRC-32 in the directory"
        )


def _copy_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy one slice of a member into the upload that settling began, and note the parts."""
    member_slice = attempt.slice
    data = open_part(attempt, row)
    try:
        parts = _copy_parts(
            attempt,
            Upload(row.key, member_slice.upload_id),
            data,
            cut_evenly(attempt.task.size, member_slice.parts),
            first_number=member_slice.first_number,
            offset=member_slice.offset,
        )
    except (CopyRefusedError, UploadGoneError) as refusal:  # settling streams the member
        attempt.note_failed(row, row.finding("slice-refused", str(refusal)))
        return
    if any(part.crc32 is None for part in parts):
        parts = _compute_crcs(parts, data, start=member_slice.offset)
    attempt.uploaded = parts  # settling completes the member with the parts of all slices


def _copy_parts(
    attempt: TaskAttempt,
    upload: Upload,
    data: MemberData,
    sizes: Sequence[int],
    *,
    first_number: int = 1,
    offset: int = 0,
) -> tuple[Part, ...]:
    """Copy the data of a member from `offset` in parts, concurrently; return them in order."""
    run = attempt.run
    # According to the plan, the store can copy. A later refusal may have shown otherwise.
    if not attempt.destination.copies_from(run.source, run.pin):
        raise CopyRefusedError(f"{run.destination}: cannot copy from {run.source}")
    data_start = data.data_range.start
    # A part has the same offset in the object and in the member's data.
    part_offsets = list(accumulate(sizes[:-1], initial=offset))
    requests = [
        partial(
            attempt.destination.copy_part,
            upload,
            number,
            part_offset,
            source=run.source,
            pin=run.pin,
            span=ByteRange(data_start + part_offset, data_start + part_offset + size),
        )
        for number, (part_offset, size) in enumerate(
            zip(part_offsets, sizes, strict=True), first_number
        )
    ]
    parts = []
    with ThreadPoolExecutor(
        attempt.context.tuning.parts_in_flight, thread_name_prefix="copy"
    ) as pool:
        copied = pool.map(partial(_run_copy, attempt), requests)
        for part, part_offset in zip(copied, part_offsets, strict=True):
            parts.append(part)
            attempt.count_member_bytes(data.row.share_of_work(part_offset, part_offset + part.size))
    return tuple(parts)


def _run_copy(attempt: TaskAttempt, request: Callable[[], Part]) -> Part:
    """Copy one part with `request`, which is called for each try.

    Raises:
        CopyRefusedError: the store refuses the copy, or its response contains a wrong checksum. The
            member is then streamed.
        ThrottledError: the store throttles the copy even after the retries, but does not refuse it.
        UploadGoneError: another process aborted the upload.
    """
    faults = 0  # number of faults of this part, except throttling

    def copy_once() -> Part:
        nonlocal faults
        try:
            return request()
        except errors.ThrottledError:  # never counts as a refusal
            raise
        except errors.ServiceFaultError as fault:
            faults += 1
            if faults < COPY_TRIES:
                raise  # `calls` retries the request
            raise CopyRefusedError(str(fault)) from fault

    try:
        part = send_part(attempt, "copy", copy_once)
    except errors.StorageError as refusal:  # if the archive has changed, streaming will say so
        raise CopyRefusedError(str(refusal)) from refusal
    # VersityGW returns the checksum of the whole archive, which ends in "-3" if the archive was
    # uploaded in three parts. No store accepts such a checksum in CompleteMultipartUpload.
    checksum = part.checksum_crc32
    if checksum is not None and len(checksum) != CHECKSUM_LENGTH:
        raise CopyRefusedError(f"part {part.number} has an invalid checksum: {checksum!r}")
    return part


def _compute_crcs(parts: tuple[Part, ...], data: MemberData, start: int) -> tuple[Part, ...]:
    """Return `parts` with their CRC-32s, computed from the archive.

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
