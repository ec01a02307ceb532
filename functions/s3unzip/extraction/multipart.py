"""Multipart uploads: sizes of parts, uploads in parallel, checks of the whole, and the end.

Nothing is visible in the destination until all of a member is right.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from isal.isal_zlib import crc32
from msgspec import Struct

from s3unzip.deflate import crc32_combine
from s3unzip.errors import (
    ConflictError,
    Finding,
    MemberError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
)
from s3unzip.extraction.attempt import TaskAttempt
from s3unzip.extraction.conflicts import (
    explain_refusal,
    is_member,
    must_be_absent,
    resolve_conflict,
)
from s3unzip.extraction.objects import object_metadata, stored_size
from s3unzip.model import Part, PlannedMember
from s3unzip.runs.step import Step
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, Destination, PartLimits, Upload


def choose_part_size(size: int, min_part: int, limits: PartLimits) -> int:
    """Return the part size with which an object of `size` bytes fits the store's limits."""
    if size > limits.object_bytes:
        message = f"{size} bytes; the destination takes objects up to {limits.object_bytes}"
        raise MemberError(Finding("object-too-large", message))
    needed = math.ceil(size / limits.max_parts)
    part = max(min_part, limits.min_bytes)
    if needed > part:
        part = math.ceil(needed / MIB) * MIB
    return min(part, limits.max_bytes)


def parts_at_once(part_size: int, tuning: Tuning) -> int:
    """Return how many parts may be in flight within the memory that the settings allow."""
    budget = tuning.part_bytes * tuning.parts_in_flight
    return max(1, min(tuning.parts_in_flight, budget // part_size))


def combine_parts(parts: Iterable[Part]) -> tuple[int, int] | None:
    """Return size and CRC-32 of the whole that `parts` make; None: a part has no CRC-32."""
    size = crc = 0
    for part in sorted(parts, key=lambda part: part.number):
        if part.crc32 is None:
            return None
        crc = crc32_combine(crc, part.crc32, part.size)
        size += part.size
    return size, crc


def check_whole(parts: Iterable[Part], row: PlannedMember) -> None:
    """Compare what was uploaded with the directory."""
    combined = combine_parts(parts)
    if combined != (row.member.size, row.member.crc32):
        size, crc = combined or (0, 0)
        message = (
            f"the parts have {size} bytes with CRC-32 {crc:08x}, "
            f"the directory says {row.member.size} and {row.member.crc32:08x}"
        )
        raise MemberError(row.finding("crc-mismatch", message))


def check_size(parts: Iterable[Part], row: PlannedMember, size: int) -> None:
    """Compare the length of what was uploaded with what it should be."""
    found = sum(part.size for part in parts)
    if found != size:
        message = f"the parts have {found} bytes, not {size}"
        raise MemberError(row.finding("size-mismatch", message))


def upload_gone(error: NotFoundError) -> UploadGoneError:
    """Return the error for an upload of this run that no longer exists."""
    return UploadGoneError(f"{error}; the upload was dropped by somebody else")


class UploadGoneError(ServiceFaultError):
    """The upload was aborted elsewhere: the task begins another one."""


class PartPlace(NamedTuple):
    """Where a part stands in its upload."""

    number: int = 1
    offset: int = 0  # of its first byte in the object


class PartWriter:
    """Cuts a stream of bytes into parts and uploads several at once.

    At most `at_once` parts are on the wire, and one more is being filled. Buffers are reused:
    allocating pages for new ones costs more than the copy into them.
    """

    def __init__(
        self,
        destination: Destination,
        upload: Upload,
        calls: Calls,
        *,
        sizes: Iterable[int],
        at_once: int,
        first: PartPlace | None = None,
    ) -> None:
        self._destination = destination
        self._upload = upload
        self._calls = calls
        self._sizes = iter(sizes)
        self._wanted = next(self._sizes, 0)
        self._number, self._offset = first or PartPlace()
        self._buffer = bytearray()  # of at least the part's size, once it is begun
        self._free: list[bytearray] = []
        self._filled = 0
        self._crc = 0
        self._at_once = at_once
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="part")
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
        self._pool.shutdown()
        return tuple(self._done)

    def abandon(self) -> None:
        """Drop what is queued and wait for what is on the wire."""
        self._pool.shutdown(wait=True, cancel_futures=True)

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
        except NotFoundError as gone:
            raise upload_gone(gone) from gone


class MemberUpload(Struct, frozen=True):
    """The multipart upload of one member by one task, from its record to its end."""

    attempt: TaskAttempt
    row: PlannedMember

    def wanted(self) -> bool:
        """Say whether the member is to be written at all; note its outcome if not."""
        outcome = resolve_conflict(self.row, self.attempt)
        if outcome is not None:
            self.attempt.note(self.row, outcome)
        return outcome is None

    def begin(self) -> Upload:
        """Begin the upload."""
        attempt, key = self.attempt, self.row.key
        facts = object_metadata(key, self.row.member, attempt.run)
        begun = attempt.calls.run("create", lambda: attempt.destination.create_upload(key, facts))
        return Upload(key, begun)

    def complete(self, upload: Upload, parts: tuple[Part, ...]) -> None:
        """Make the member visible and note it."""
        attempt, options = self.attempt, self.attempt.run.options
        clock = attempt.context.clock
        started = clock.now()
        try:
            etag = complete_once(attempt, self.row, upload, parts)
        except NotFoundError as gone:
            raise upload_gone(gone) from gone
        except ConflictError:
            self.abort(upload)
            attempt.note(self.row, explain_refusal(self.row, attempt))
            return
        size = stored_size(self.row.member, options)
        attempt.extracted(self.row, clock.now() - started, size, etag)

    def abort(self, upload: Upload) -> None:
        """Drop the upload."""
        abort_upload(self.attempt, upload)

    def abort_quietly(self, upload: Upload) -> None:
        """Drop the upload while another error is on its way; a lifecycle rule drops what stays."""
        self.attempt.calls.count("abort")
        try:
            self.attempt.destination.abort_upload(upload)
        except S3UnzipError:
            return


def abort_upload(step: Step, upload: Upload) -> None:
    """Drop an upload and its parts."""
    step.calls.run("abort", lambda: step.destination.abort_upload(upload))


def abort_uploads(step: Step, keys: Iterable[str], kept: Collection[str] = ()) -> int:
    """Abort the uploads of `keys`, but for those with the ids `kept`; return their number."""
    wanted = set(keys)
    if not wanted:
        return 0
    found = step.calls.run("list", lambda: list(step.destination.uploads(step.run.key_prefix)))
    left = [one for one in found if one.key in wanted and one.upload_id not in kept]
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
    if_absent = must_be_absent(options)
    attempts = 0

    def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        try:
            return destination.complete_upload(upload, parts, if_absent=if_absent)
        except NotFoundError:
            if attempts > 1 and is_member(row, options, destination, step.calls):
                return None
            raise

    return step.calls.run("complete", attempt)
