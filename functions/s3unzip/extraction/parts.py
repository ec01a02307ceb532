"""The parts of a multipart upload: their sizes, their upload, and the CRC-32 of the whole.

Rules of a `PartWriter`:

* One thread writes and closes. Other threads send parts, each from a buffer of its own.
* A buffer is used again only after its part was sent.
* Parts have the numbers and sizes that were planned; only the last part may be shorter.
* At most `at_once` parts are sent at a time, and one more is being filled.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from isal.isal_zlib import crc32
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.deflate import crc32_combine
from s3unzip.extraction.uploads import UploadGoneError
from s3unzip.model import Part, PlannedMember
from s3unzip.runs.step import Step
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.ports import Buffer, PartLimits, Upload


def choose_part_size(size: int, min_part: int, limits: PartLimits) -> int:
    """Return the part size with which an object of `size` bytes fits the store's limits."""
    if size > limits.object_bytes:
        message = f"{size} bytes; the destination takes objects up to {limits.object_bytes}"
        raise errors.MemberError(errors.Finding("object-too-large", message))
    needed = math.ceil(size / limits.max_parts)
    part_size = max(min_part, limits.min_bytes)
    if needed > part_size:
        part_size = math.ceil(needed / MIB) * MIB
    return min(part_size, limits.max_bytes)


def copy_sizes(size: int, preferred: int, limits: PartLimits) -> list[int]:
    """Return part sizes of nearly equal length for a copy of `size` bytes."""
    max_size = max(
        min(preferred, limits.max_bytes), math.ceil(size / limits.max_parts), limits.min_bytes
    )
    # Equal cuts may be smaller than the store allows, or larger.
    count = min(math.ceil(size / max_size), size // limits.min_bytes)
    return cut_evenly(size, max(1, count, math.ceil(size / limits.max_bytes)))


def cut_evenly(size: int, count: int) -> list[int]:
    """Return `count` sizes of nearly equal length that make `size`."""
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def parts_at_once(part_size: int, tuning: Tuning) -> int:
    """Return how many parts may be in flight within the memory that the settings allow.

    The one part of an empty member has no bytes.
    """
    budget = tuning.part_bytes * tuning.parts_in_flight
    return max(1, min(tuning.parts_in_flight, budget // max(1, part_size)))


def combine_parts(parts: Iterable[Part]) -> tuple[int, int] | None:
    """Return size and CRC-32 of the whole that `parts` make; None: a part has no CRC-32."""
    size = 0
    crc = 0
    for part in sorted(parts, key=lambda part: part.number):
        if part.crc32 is None:
            return None
        crc = crc32_combine(crc, part.crc32, part.size)
        size += part.size
    return size, crc


def check_whole(parts: Iterable[Part], row: PlannedMember) -> PlannedMember:
    """Compare the uploaded parts with the directory; return the row with their size."""
    combined = combine_parts(parts)
    size, crc = combined or (0, 0)
    if combined is None or crc != row.member.crc32 or not row.member.has_size(size):
        message = (
            f"the parts have {size} bytes with CRC-32 {crc:08x}, "
            f"the directory says {row.member.size} and {row.member.crc32:08x}"
        )
        raise errors.MemberError(row.finding("crc-mismatch", message))
    return replace(row, member=replace(row.member, size=size))


class PartPlan(NamedTuple):
    """How a stream of bytes is cut into parts."""

    sizes: Sequence[int]  # the last size counts for all parts after it
    first_number: int = 1
    offset: int = 0  # of the first part in the object


class PartWriter:
    """Cuts a stream of bytes into parts and uploads several at once.

    Buffers are reused: to allocate pages for new ones costs more than the copy into them.
    """

    def __init__(
        self,
        run_step: Step,
        upload: Upload,
        pool: ThreadPoolExecutor,
        plan: PartPlan,
        *,
        at_once: int,
    ) -> None:
        self._run_step = run_step
        self._upload = upload
        self._sizes = iter(plan.sizes)
        self._part_size = next(self._sizes, 0)
        self._number = plan.first_number
        self._offset = plan.offset
        self._buffer = bytearray()  # at least of the part's size, once the part is begun
        self._free: list[bytearray] = []
        self._filled = 0
        self._crc = 0
        self._at_once = at_once
        self._pool = pool
        self._pending: deque[tuple[Future[Part], bytearray]] = deque()
        self._parts: list[Part] = []

    def write(self, data: Buffer) -> None:
        """Take bytes; wait while too many parts are in flight."""
        view = memoryview(data)
        while view:
            room = self._part_size - self._filled
            fitting = view
            if room > 0:
                fitting = view[:room]
            self._append(fitting)
            self._crc = crc32(fitting, self._crc)
            view = view[len(fitting) :]
            if self._filled >= self._part_size:
                self._flush()

    def close(self) -> tuple[Part, ...]:
        """Upload the last part, wait for all parts and return them in order."""
        if self._filled or not (self._parts or self._pending):
            self._flush()
        while self._pending:
            self._wait_for_one()
        return tuple(self._parts)

    def _append(self, data: memoryview) -> None:
        """Copy bytes into the part's buffer."""
        if not self._filled:
            self._buffer = self._free.pop() if self._free else bytearray(self._part_size)
        end = self._filled + len(data)
        if end > len(self._buffer):  # a part longer than those before it
            self._buffer += bytes(end - len(self._buffer))
        with memoryview(self._buffer) as view:  # a bytearray would copy the data first
            view[self._filled : end] = data
        self._filled = end

    def _flush(self) -> None:
        """Send the part; begin the next one."""
        if len(self._pending) >= self._at_once:
            self._free.append(self._wait_for_one())
        body: Buffer = self._buffer
        if self._filled < len(self._buffer):
            body = self._buffer[: self._filled]
        sent = self._pool.submit(self._send, self._number, self._offset, body, crc=self._crc)
        self._pending.append((sent, self._buffer))
        self._buffer = bytearray()
        self._number += 1
        self._offset += self._filled
        self._filled = 0
        self._crc = 0
        self._part_size = next(self._sizes, self._part_size)

    def _wait_for_one(self) -> bytearray:
        """Wait until the oldest part is sent; return its buffer."""
        sent, buffer = self._pending.popleft()
        self._parts.append(sent.result())
        return buffer

    def _send(self, number: int, offset: int, body: Buffer, crc: int) -> Part:
        """Upload one part, in a thread of the pool; `offset` is that of its bytes in the object."""
        try:
            return self._run_step.calls.paced(
                "part",
                lambda: self._run_step.destination.upload_part(
                    self._upload, number, offset, body, crc32=crc
                ),
            )
        except errors.NotFoundError as gone:
            raise UploadGoneError(gone) from gone


def upload_parts(
    run_step: Step, upload: Upload, content: Iterable[Buffer], plan: PartPlan
) -> tuple[Part, ...]:
    """Cut a stream of bytes into parts, upload several at once, and return them in order.

    The settings of `run_step` bound the memory of the parts in flight.
    """
    at_once = parts_at_once(max(plan.sizes), run_step.context.tuning)
    with ThreadPoolExecutor(at_once, thread_name_prefix="part") as pool:
        writer = PartWriter(run_step, upload, pool, plan, at_once=at_once)
        for data in content:
            writer.write(data)
        return writer.close()
