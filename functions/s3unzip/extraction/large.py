"""One large member: streamed, or copied inside the object store; in parts, which are one upload.

A *stream* is read ahead, inflated and uploaded. A *copy* is of a stored member: its bytes lie in
the archive as they are, so UploadPartCopy takes them from there, and no byte is uploaded. Before
Complete the copy is compared with the directory's CRC-32: by the checksums of the parts, where the
store gives them; else by reading the pinned range and computing it. Where the store will not copy,
the member is streamed. Nothing is visible in the destination until all of a member is right.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from isal.isal_zlib import crc32
from msgspec import Struct
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.deflate import Span, crc32_combine
from s3unzip.extraction.objects import (
    explain_refusal,
    is_member,
    object_metadata,
    open_content,
    resolve_conflict,
    stored_size,
    with_crc,
)
from s3unzip.model import OnConflict, Outcome, Part, PlannedMember
from s3unzip.runs.step import RUN_FAULTS, Step, TaskAttempt
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.calls import stream_ahead
from s3unzip.stores.ports import Buffer, CopiesParts, PartLimits, Upload
from s3unzip.zip import (
    AFTER_LENGTH,
    HEAD_LENGTH,
    MAX_HEADER,
    ByteRange,
    Member,
    OpenedMember,
    Policy,
    close_member,
    open_member,
)
from s3unzip.zip.decode import largest_size

COPY_TRIES = 4  # of one part, after which the member is streamed
CHECKSUM_LENGTH = 8  # of a CRC-32 in base64


# Parts and their upload


def choose_part_size(size: int, min_part: int, limits: PartLimits) -> int:
    """Return the part size with which an object of `size` bytes fits the store's limits."""
    if size > limits.object_bytes:
        message = f"{size} bytes; the destination takes objects up to {limits.object_bytes}"
        raise errors.MemberError(errors.Finding("object-too-large", message))
    needed = math.ceil(size / limits.max_parts)
    part = max(min_part, limits.min_bytes)
    if needed > part:
        part = math.ceil(needed / MIB) * MIB
    return min(part, limits.max_bytes)


def parts_at_once(part_size: int, tuning: Tuning) -> int:
    """Return how many parts may be in flight within the memory that the settings allow.

    The one part of an empty member has no bytes.
    """
    budget = tuning.part_bytes * tuning.parts_in_flight
    return max(1, min(tuning.parts_in_flight, budget // max(1, part_size)))


def combine_parts(parts: Iterable[Part]) -> tuple[int, int] | None:
    """Return size and CRC-32 of the whole that `parts` make; None: a part has no CRC-32."""
    size = crc = 0
    for part in sorted(parts, key=lambda part: part.number):
        if part.crc32 is None:
            return None
        crc = crc32_combine(crc, part.crc32, part.size)
        size += part.size
    return size, crc


def check_whole(parts: Iterable[Part], row: PlannedMember) -> PlannedMember:
    """Compare what was uploaded with the directory; return the row with the size that it has."""
    combined = combine_parts(parts)
    size, crc = combined or (0, 0)
    if combined is None or crc != row.member.crc32 or not row.member.has_size(size):
        message = (
            f"the parts have {size} bytes with CRC-32 {crc:08x}, "
            f"the directory says {row.member.size} and {row.member.crc32:08x}"
        )
        raise errors.MemberError(row.finding("crc-mismatch", message))
    return replace(row, member=row.member._replace(size=size))


class UploadGoneError(errors.ServiceFaultError):
    """The upload was aborted elsewhere: the task begins another one."""

    def __init__(self, error: errors.NotFoundError) -> None:
        super().__init__(f"{error}; the upload was dropped by somebody else")


class PartWriter:
    """Cuts a stream of bytes into parts and uploads several at once.

    At most `at_once` parts are on the wire, and one more is being filled. Buffers are reused:
    allocating pages for new ones costs more than the copy into them.
    """

    def __init__(
        self,
        step: Step,
        upload: Upload,
        pool: ThreadPoolExecutor,
        at_once: int,
        sizes: Iterable[int],
        first: tuple[int, int],
    ) -> None:
        self._destination = step.destination
        self._upload = upload
        self._calls = step.calls
        self._sizes = iter(sizes)
        self._wanted = next(self._sizes, 0)
        self._number, self._offset = first  # of the next part: its number, its place in the object
        self._buffer = bytearray()  # of at least the part's size, once it is begun
        self._free: list[bytearray] = []
        self._filled = 0
        self._crc = 0
        self._at_once = at_once
        self._pool = pool
        self._pending: deque[tuple[Future[Part], bytearray]] = deque()
        self._done: list[Part] = []

    def write(self, piece: Buffer) -> None:
        """Take bytes; wait while too many parts are in flight."""
        view = memoryview(piece)
        while view:
            room = self._wanted - self._filled
            taken = view[:room] if room > 0 else view
            self._keep(taken)
            self._crc = crc32(taken, self._crc)
            view = view[len(taken) :]
            if self._filled >= self._wanted:
                self._flush()

    def close(self) -> tuple[Part, ...]:
        """Upload what is left, wait for all parts and return them in order."""
        if self._filled or not (self._done or self._pending):
            self._flush()
        while self._pending:
            self._done.append(self._pending.popleft()[0].result())
        return tuple(self._done)

    def _keep(self, piece: memoryview) -> None:
        """Copy a piece into the part's buffer."""
        if not self._filled:
            self._buffer = self._free.pop() if self._free else bytearray(self._wanted)
        end = self._filled + len(piece)
        if end > len(self._buffer):  # a part longer than those before it
            self._buffer += bytes(end - len(self._buffer))
        with memoryview(self._buffer) as view:  # a bytearray would copy the piece first
            view[self._filled : end] = piece
        self._filled = end

    def _flush(self) -> None:
        if len(self._pending) >= self._at_once:
            sent, buffer = self._pending.popleft()
            self._done.append(sent.result())
            self._free.append(buffer)
        body = self._buffer if self._filled == len(self._buffer) else self._buffer[: self._filled]
        number, offset, crc = self._number, self._offset, self._crc
        sent = self._pool.submit(self._send, number, offset, body, crc)
        self._pending.append((sent, self._buffer))
        self._buffer = bytearray()
        self._number += 1
        self._offset += self._filled
        self._filled = self._crc = 0
        self._wanted = next(self._sizes, self._wanted)

    def _send(self, number: int, offset: int, body: Buffer, crc: int) -> Part:
        try:
            return self._calls.paced(
                "part",
                lambda: self._destination.upload_part(self._upload, number, offset, body, crc),
            )
        except errors.NotFoundError as gone:
            raise UploadGoneError(gone) from gone


def upload_parts(
    step: Step,
    upload: Upload,
    pieces: Iterable[Buffer],
    sizes: Iterable[int],
    max_size: int,
    first: tuple[int, int] = (1, 0),
) -> tuple[Part, ...]:
    """Cut a stream of bytes into parts, upload several at once, and return them in order.

    Args:
        step: its settings bound the memory of the parts in flight.
        sizes: of the parts, none above `max_size`.
        first: number of the first part, and its place in the object.
    """
    at_once = parts_at_once(max_size, step.context.tuning)
    with ThreadPoolExecutor(at_once, thread_name_prefix="part") as pool:
        writer = PartWriter(step, upload, pool, at_once, sizes, first)
        for piece in pieces:
            writer.write(piece)
        return writer.close()


def is_wanted(attempt: TaskAttempt, row: PlannedMember) -> bool:
    """Say whether a large member is to be written at all; note its outcome if not."""
    try:
        outcome = resolve_conflict(row, attempt, partial(_read_crc, attempt, row))
    except errors.MemberError as error:
        outcome = Outcome.failed(row.member.index, row.key, error.finding)
    if outcome is not None:
        attempt.note(row, outcome)
    return outcome is None


def _read_crc(attempt: TaskAttempt, row: PlannedMember) -> int:
    """Return the CRC-32 of a member's content; `MemberError`: it is bad."""
    data = open_data(attempt, row)
    content = open_content(row.member, attempt.context.policy, data.opened, attempt.run.options)
    for _ in content.decode(read_pieces(attempt, data.span)):
        pass
    return content.crc32


def begin_upload(step: Step, row: PlannedMember) -> Upload:
    """Begin the upload of a member."""
    facts = object_metadata(row.key, row.member, step.run)
    begun = step.calls.run("create", lambda: step.destination.create_upload(row.key, facts))
    return Upload(row.key, begun)


def finish_upload(
    attempt: TaskAttempt, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> None:
    """Make the member visible and note it."""
    clock = attempt.context.clock
    started = clock.now()
    try:
        etag = complete_once(attempt, row, upload, parts)
    except errors.NotFoundError as gone:
        raise UploadGoneError(gone) from gone
    except errors.ConflictError:
        abort_upload(attempt, upload)
        attempt.note(row, explain_refusal(row, attempt))
        return
    size = stored_size(row.member, attempt.run.options)
    attempt.extracted(row, clock.now() - started, size, etag)


def abort_quietly(step: Step, upload: Upload) -> None:
    """Drop the upload while another error is on its way; a lifecycle rule drops what stays."""
    step.calls.count("abort")
    with suppress(errors.S3UnzipError):
        step.destination.abort_upload(upload)


def abort_upload(step: Step, upload: Upload) -> None:
    """Drop an upload and its parts."""
    step.calls.run("abort", lambda: step.destination.abort_upload(upload))


def abort_uploads(step: Step, keys: Iterable[str], kept: Collection[str] = ()) -> int:
    """Abort the uploads of `keys`, but for those with the ids `kept`; return their number."""
    wanted = set(keys)
    if not wanted:
        return 0

    def list_left() -> list[Upload]:
        uploads = step.destination.uploads(step.run.key_prefix)
        return [one for one in uploads if one.key in wanted and one.upload_id not in kept]

    left = step.calls.run("list", list_left)
    for upload in left:
        abort_upload(step, upload)
    return len(left)


def complete_once(
    step: Step, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> str | None:
    """Complete an upload; where the answer to an earlier try was lost, the object tells.

    Returns:
        The object's ETag without quotes; None where the answer that had it was lost.
    """
    options, destination = step.run.options, step.destination
    if_absent = options.on_conflict is OnConflict.NEVER
    attempts = 0

    def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        try:
            return destination.complete_upload(upload, parts, if_absent=if_absent)
        except (errors.NotFoundError, errors.UnconfirmedError) as error:
            may_be_done = attempts > 1 or isinstance(error, errors.UnconfirmedError)
            if may_be_done and is_member(row, options, destination, step.calls):
                return None
            raise

    return step.calls.run("complete", attempt)


# Stream


class MemberData(Struct, frozen=True):
    """A large member whose local header agrees with the directory."""

    step: Step
    row: PlannedMember
    opened: OpenedMember

    @property
    def span(self) -> ByteRange:
        """The bytes of the archive that are the member's data."""
        member = self.row.member
        start = member.offset + self.opened.data_start
        return ByteRange(start, start + member.compressed_size)

    def read(self, span: Span) -> Iterator[memoryview]:
        """Yield some of the member's data, some of it read ahead of need."""
        start = self.span.start
        return read_pieces(self.step, ByteRange(start + span.start, start + span.stop))

    def check_after(self) -> None:
        """Check the data descriptor and what follows it."""
        step, member, start = self.step, self.row.member, self.span.stop
        want = ByteRange(start, min(member.stop, start + AFTER_LENGTH))
        after = step.calls.run("get", lambda: step.archive.read(want)) if want.length else b""
        step.warnings.update(close_member(member, self.opened, after))


def read_pieces(step: Step, want: ByteRange) -> Iterator[memoryview]:
    """Yield a range of the archive, some of it read ahead of need."""
    for piece in stream_ahead(step.archive, want, step.calls, step.context.tuning):
        step.check_time()
        step.bytes_read += len(piece)
        yield piece


def open_data(step: Step, row: PlannedMember) -> MemberData:
    """Read and check the local header of a large member."""

    def read(want: ByteRange) -> bytes:
        step.bytes_read += want.length
        return step.calls.run("get", lambda: step.archive.read(want))

    opened = open_local(row.member, read, step.context.policy)
    step.warnings.update(opened.warnings)
    return MemberData(step, row, opened)


def open_part(attempt: TaskAttempt, row: PlannedMember) -> MemberData:
    """Open a member for one of its tasks; the first one notes the warnings about the member."""
    data = open_data(attempt, row)
    if attempt.task.part:
        attempt.warnings.clear()
    else:
        data.check_after()
    return data


def open_local(member: Member, read: Callable[[ByteRange], bytes], policy: Policy) -> OpenedMember:
    """Read and check a local header: one short range, a second only for a long header."""
    max_stop = min(member.stop, member.offset + MAX_HEADER)
    for length in (HEAD_LENGTH, MAX_HEADER):
        head = read(ByteRange(member.offset, min(member.offset + length, max_stop)))
        opened = open_member(member, head, policy)
        if not isinstance(opened, int):
            return opened
    raise errors.ServiceFaultError(f"the local header at {member.offset} was cut short")


def stream_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the one member of `rows`; it becomes visible only when it is whole and right."""
    for row in rows:
        if is_wanted(attempt, row):
            stream_whole(attempt, row)


def stream_whole(attempt: TaskAttempt, row: PlannedMember, size: int | None = None) -> None:
    """Upload one member from its first byte to its last.

    Args:
        attempt: notes the outcome.
        row: the member.
        size: that the parts have room for; None: that of the object, which is a guess if the
            member `is_wrapped`. If the object turns out to need more room, it is uploaded again.
    """
    attempt.begin_again()
    limits = attempt.destination.part_limits
    if size is None:
        size = stored_size(row.member, attempt.run.options)
    most = min(allowed_size(attempt, row.member), limits.object_bytes)
    try:
        part_size = choose_part_size(size, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
    except errors.MemberError as error:
        attempt.failed(row, error.finding)
        return
    upload = begin_upload(attempt, row)
    try:
        whole, parts = _upload(attempt, upload, data, part_size)
    except errors.MemberError as error:
        abort_upload(attempt, upload)
        if error.finding.code == "bomb-wrapped-size" and size < most:
            stream_whole(attempt, row, most)
        else:
            attempt.failed(row, error.finding)
    except BaseException:
        abort_quietly(attempt, upload)
        raise
    else:
        finish_upload(attempt, whole, upload, parts)


def allowed_size(step: Step, member: Member) -> int:
    """Return how many bytes the content of a member may have."""
    if not member.is_wrapped:
        return member.size
    most = member.size + int(member.compressed_size * step.run.inflation)
    return min(most, largest_size(member, step.context.policy))


def _upload(
    attempt: TaskAttempt, upload: Upload, data: MemberData, part_size: int
) -> tuple[PlannedMember, tuple[Part, ...]]:
    """Upload the parts; return them, and the row with what is known of the member now."""
    row, options = data.row, attempt.run.options
    max_size = allowed_size(attempt, row.member)
    if options.as_gzip is None:
        max_size = min(max_size, part_size * attempt.destination.part_limits.max_parts)
    content = open_content(
        row.member, attempt.context.policy, data.opened, options, max_size=max_size
    )

    def pieces() -> Iterator[Buffer]:
        yield from content.decode(attempt.passing(read_pieces(attempt, data.span)))
        data.check_after()

    parts = upload_parts(attempt, upload, pieces(), itertools.repeat(part_size), part_size)
    attempt.warnings.update(content.warnings)
    whole = with_crc(row, content.crc32)
    size, found = stored_size(row.member, options), sum(part.size for part in parts)
    if options.as_gzip is None:
        whole = check_whole(parts, whole)
    elif found != size:
        message = f"the parts have {found} bytes, not {size}"
        raise errors.MemberError(row.finding("size-mismatch", message))
    return whole, parts


# Copy


class CopyRefusedError(errors.StorageError):
    """The store will not copy this range: the member is streamed instead."""


def copy_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Copy the one member of `rows`, or this task's slice of it."""
    for row in rows:
        if attempt.task.slice is not None:
            _copy_slice(attempt, row)
            attempt.has_no_outcome = True
            attempt.bytes_copied += sum(part.size for part in attempt.uploaded)
        elif is_wanted(attempt, row):
            _copy_whole(attempt, row)
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


def _copy_whole(attempt: TaskAttempt, row: PlannedMember) -> None:
    try:
        data = open_data(attempt, row)
        data.check_after()
    except errors.MemberError as error:
        attempt.failed(row, error.finding)
        return
    limits = attempt.destination.part_limits
    sizes = copy_sizes(row.member.size, attempt.context.tuning.copy_part_bytes, limits)
    upload = begin_upload(attempt, row)
    try:
        parts = _copy_parts(attempt, upload, data, sizes)
        _check_copy(parts, data)
    except errors.MemberError as error:
        abort_upload(attempt, upload)
        attempt.failed(row, error.finding)
    except CopyRefusedError:
        abort_upload(attempt, upload)
        stream_whole(attempt, row)
    except BaseException:
        abort_quietly(attempt, upload)
        raise
    else:
        try:
            finish_upload(attempt, row, upload, parts)
        except RUN_FAULTS:
            raise
        except errors.StorageError:  # it copied the parts, but will not have them
            abort_upload(attempt, upload)
            stream_whole(attempt, row)


def _check_copy(parts: tuple[Part, ...], data: MemberData) -> None:
    """Compare a copy with the directory.

    Raises:
        MemberError: the store tells no checksums, and the archive's bytes are wrong.
        CopyRefusedError: by the store's checksums it copied other bytes. Either these or the
            archive's are wrong: a stream tells.
    """
    combined = combine_parts(parts)
    if combined is None:
        check_whole(_with_crcs(parts, data, 0), data.row)
    elif combined != (data.row.member.size, data.row.member.crc32):
        raise CopyRefusedError(f"{data.row.key}: the store's checksums are not the directory's")


def _copy_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Copy one slice of a member over several tasks; settling completes the member."""
    piece, size = attempt.slice, attempt.task.size
    data = open_part(attempt, row)
    sizes = copy_sizes(size, math.ceil(size / piece.parts), attempt.destination.part_limits)
    upload = Upload(row.key, piece.upload_id)
    try:
        parts = _copy_parts(attempt, upload, data, sizes, piece.first_number, piece.offset)
    except (CopyRefusedError, UploadGoneError) as refusal:  # settling streams the member
        attempt.failed(row, row.finding("slice-refused", str(refusal)))
        return
    known = all(part.crc32 is not None for part in parts)
    attempt.uploaded = parts if known else _with_crcs(parts, data, piece.offset)


def _copy_parts(
    attempt: TaskAttempt,
    upload: Upload,
    data: MemberData,
    sizes: list[int],
    first_number: int = 1,
    offset: int = 0,
) -> tuple[Part, ...]:
    run, destination = attempt.run, attempt.destination
    if not isinstance(destination, CopiesParts):
        raise CopyRefusedError(f"{run.destination}: copies nothing from {run.source}")

    def copy(number: int, at: int, size: int) -> Part:
        start = data.span.start + at
        span = ByteRange(start, start + size)
        tries = 0

        def copy_once() -> Part:
            nonlocal tries
            tries += 1
            try:
                return destination.copy_part(upload, number, at, run.source, run.pin, span)
            except errors.ThrottledError:
                raise
            except errors.ServiceFaultError as fault:
                if tries < COPY_TRIES:
                    raise
                raise CopyRefusedError(str(fault)) from fault

        try:
            part = attempt.calls.paced("copy", copy_once)
        except errors.NotFoundError as gone:
            raise UploadGoneError(gone) from gone
        except RUN_FAULTS:
            raise
        except errors.StorageError as refusal:
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
            attempt.passed(data.row.share_of_work(at, at + part.size))
    return tuple(parts)


def _with_crcs(parts: tuple[Part, ...], data: MemberData, offset: int) -> tuple[Part, ...]:
    """Return `parts` with CRC-32s that are computed of the archive's bytes."""
    known = []
    for part in parts:
        crc = 0
        for piece in data.read(Span(offset, offset + part.size)):
            crc = crc32(piece, crc)
        known.append(replace(part, crc32=crc))
        offset += part.size
    return tuple(known)
