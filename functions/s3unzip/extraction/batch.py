"""A batch: many small members from one contiguous, streamed read.

Rules:

* One thread takes members from the stream, checks and decodes them. Other threads PUT them.
* A bad member gets the outcome `failed`, and the stream goes on at the next member.
* Only verified bytes are submitted, and a member's outcome is noted after its PUT.
* The first other error ends the batch: queued PUTs are dropped, those on the wire are awaited.
* The bytes in memory are bounded: by the `Window` (one member and one piece of the stream), and by
  the bytes that the `PutPool` may have in flight.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial

from s3unzip import errors
from s3unzip.extraction.existing_objects import explain_refusal, find_unchanged, with_crc
from s3unzip.extraction.member_object import make_object, object_metadata, stored_size
from s3unzip.extraction.put_pool import PutPool
from s3unzip.extraction.stream import stream_whole
from s3unzip.model import OnConflict, PlannedMember, Status
from s3unzip.runs.step import RUN_FAULTS, TaskAttempt
from s3unzip.stores.ports import Buffer, ObjectFacts
from s3unzip.zip import (
    AFTER_LENGTH,
    MAX_HEADER,
    ByteRange,
    Member,
    close_member,
    open_member,
)
from s3unzip.zip.decode import Decoded

Ready = tuple[PlannedMember, ObjectFacts]  # a PUT needs these and the bytes

MAX_REFUSALS = 20  # the run ends after this many refused PUTs without one success


def extract_batch(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract `rows`, which come in archive order.

    A member that turns out to be larger by multiples of 4 GiB is streamed at the end.
    """
    tuning = attempt.context.tuning
    rows = _drop_unchanged(attempt, rows)
    writer = _Writer(attempt)
    pool: PutPool[Ready] = PutPool(
        writer.put,
        threads=min(tuning.puts_in_flight, max(1, len(rows))),
        max_bytes=tuning.bytes_in_flight,
    )
    oversized: list[PlannedMember] = []
    try:
        for neighbours in _group_neighbours(rows, tuning.gap_bytes):
            oversized += _extract_neighbours(attempt, neighbours, pool)
        pool.close()
        writer.note_refusals()
    except BaseException:
        attempt.calls.end()  # a PUT that fails now is not tried again
        pool.abandon()
        attempt.calls.reopen()  # the outcomes are still to be written
        raise
    for row in oversized:
        stream_whole(attempt, row)


def _drop_unchanged(attempt: TaskAttempt, rows: list[PlannedMember]) -> list[PlannedMember]:
    """Note the unchanged members, and return the other rows: a PUT that is refused is billed."""
    options = attempt.run.options
    unchanged = find_unchanged(
        rows,
        options,
        attempt.destination,
        attempt.calls,
        threads=attempt.context.tuning.puts_in_flight,
    )
    if not unchanged:
        return rows
    for row in rows:
        if row.member.index in unchanged:
            attempt.note(row, row.outcome(Status.UNCHANGED, stored_size(row.member, options)))
    attempt.show_progress()
    return [row for row in rows if row.member.index not in unchanged]


def _group_neighbours(rows: Sequence[PlannedMember], max_gap: int) -> Iterator[list[PlannedMember]]:
    """Yield groups of rows. One range reads a group: no gap in it is above `max_gap` bytes."""
    neighbours: list[PlannedMember] = []
    position = 0
    for row in rows:
        if neighbours and row.member.offset - position > max_gap:
            yield neighbours
            neighbours = []
        neighbours.append(row)
        position = _read_stop(row.member)
    if neighbours:
        yield neighbours


def _read_stop(member: Member) -> int:
    """Return the end of the byte range needed to check and decode a small member.

    The range begins at the member's offset. After the member it has at most `AFTER_LENGTH` bytes.
    """
    return min(member.stop, member.offset + MAX_HEADER + member.compressed_size + AFTER_LENGTH)


def _extract_neighbours(
    attempt: TaskAttempt, rows: list[PlannedMember], pool: PutPool[Ready]
) -> list[PlannedMember]:
    """Extract members that are read with one range; return those that are larger than declared."""
    oversized: list[PlannedMember] = []
    byte_range = ByteRange(rows[0].member.offset, _read_stop(rows[-1].member))
    window = Window(attempt.calls.stream(attempt.archive, byte_range), byte_range.start)
    bytes_before = attempt.bytes_read
    for row in rows:
        attempt.check_time()
        try:
            decoded = _decode_verified(attempt, row, window)
        except errors.MemberError as error:
            if row.member.is_wrapped and error.finding.code == "size-overrun":
                oversized.append(row)
            else:
                attempt.failed(row, error.finding)
        else:
            verified = with_crc(row, decoded.crc32)
            # Not in the pool's thread, which has just woken: there the same code is slower.
            facts = object_metadata(verified.key, verified.member, attempt.run)
            pool.submit((verified, facts), decoded.content)
        attempt.bytes_read = bytes_before + window.bytes_read
        attempt.show_progress()
    return oversized


def _decode_verified(attempt: TaskAttempt, row: PlannedMember, window: Window) -> Decoded:
    """Return the verified object of a member; `MemberError`: it is not as declared.

    Only the bytes up to the member's own `_read_stop` are used, even if the window has more. So the
    result does not depend on the other members of the task.

    Args:
        attempt: takes the warnings of the member.
        row: the member.
        window: the archive's bytes; those before the member are dropped.
    """
    policy = attempt.context.policy
    member = row.member
    raw = window.take(member.offset, _read_stop(member))
    opened = open_member(member, raw, policy)
    if isinstance(opened, int):  # bytes that it needs, although `raw` has room for any header
        raise errors.ServiceFaultError(f"the local header at {member.offset} was cut short")
    stop = opened.data_start + member.compressed_size
    decoded = make_object(
        member, raw[opened.data_start : stop], policy, opened, options=attempt.run.options
    )
    warnings = [*opened.warnings, *decoded.warnings, *close_member(member, opened, raw[stop:])]
    if warnings:
        attempt.warnings.update(warnings)
    return decoded


class Window:
    """Bytes of an archive that arrive and are taken in order, without a copy if possible.

    Holds the bytes from the start of the last `take` to the last one that arrived: one member and
    one piece of the stream at most.
    """

    def __init__(self, chunks: Iterator[Buffer], start: int) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")
        self._start = start  # offset in the archive of the first byte held
        self.bytes_read = 0

    def take(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) of the archive; bytes before `start` are dropped."""
        if stop > self._start + len(self._held):
            self._fill(start, stop)
        elif start > self._start:
            self._held = self._held[start - self._start :]
            self._start = start
        begin = start - self._start
        return self._held[begin : begin + stop - start]

    def _fill(self, start: int, stop: int) -> None:
        """Hold the archive's bytes from `start` to the end of the chunk that reaches `stop`."""
        position = self._start + len(self._held)  # end of the bytes that have arrived
        buffers: list[Buffer] = []
        if start < position:
            buffers.append(self._held[start - self._start :])
        while position < stop:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise errors.ServiceFaultError(
                    f"the archive's stream ended at {position}, not at {stop}"
                )
            self.bytes_read += len(chunk)
            if position + len(chunk) > start:  # else the whole chunk lies in a gap
                buffers.append(memoryview(chunk)[max(0, start - position) :])
            position += len(chunk)
        self._held = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        self._start = start


class _Writer:
    """Writes members by the run's rule on conflicts; each thread does one PUT at a time.

    A refusal is the fault of one member if the store accepts other members. If the bucket refuses
    everything, the refusal ends the run: otherwise a million members would be refused one by one.
    """

    def __init__(self, attempt: TaskAttempt) -> None:
        self._attempt = attempt
        self._if_absent = attempt.run.options.on_conflict is OnConflict.NEVER
        self._has_success = False  # whether the store accepted any member
        self._refused: list[tuple[PlannedMember, errors.StorageError]] = []
        self._lock = threading.Lock()

    def note_refusals(self) -> None:
        for row, refusal in self._refused:
            self._fail(row, refusal)

    def put(self, ready: Ready, body: Buffer) -> None:
        row, facts = ready
        attempt = self._attempt
        clock = attempt.context.clock
        started = clock.now()
        try:
            put = partial(attempt.destination.put, row.key, body, facts, if_absent=self._if_absent)
            etag = attempt.calls.paced("put", put)
        except errors.ConflictError:
            attempt.note(row, explain_refusal(row, attempt))
        except RUN_FAULTS:
            raise
        except errors.UnsupportedError:  # it would refuse each member
            raise
        except errors.NameRefusedError as refusal:
            self._fail(row, refusal)
        except errors.StorageError as refusal:
            with self._lock:
                self._refused.append((row, refusal))
                if not self._has_success and len(self._refused) >= MAX_REFUSALS:
                    raise
        else:
            self._has_success = True
            attempt.extracted(row, clock.now() - started, len(body), etag)

    def _fail(self, row: PlannedMember, refusal: errors.StorageError) -> None:
        self._attempt.failed(row, errors.Finding(refusal.reason, str(refusal), member=row.key))
