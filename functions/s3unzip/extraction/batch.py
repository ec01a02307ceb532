"""A batch: many small members from one contiguous, streamed read.

Rules:

* One thread takes members from the stream, then checks and decodes them. Other threads PUT the
  members.
* A bad member gets the outcome `failed`, and the stream continues with the next member.
* Only verified bytes are submitted, and the outcome of a member is noted after its PUT.
* An error that does not concern a single member ends the batch: PUTs that have not started are
  dropped, and the batch waits for PUTs that have started.
* The bytes in memory are bounded by the `Window` (one member and one piece of the stream) and by
  the bytes that the `PutPool` may have in flight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue

from s3unzip import errors
from s3unzip.extraction.existing_objects import explain_refusal, resolve_conflicts
from s3unzip.extraction.large_members import stream_whole
from s3unzip.extraction.member_object import make_object, object_facts
from s3unzip.model import OnConflict, PlannedMember
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

MAX_REFUSALS = 20  # the run ends after this many refused PUTs without a single success


def extract_batch(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract `rows`, which are in archive order.

    Members that exceed their declared size by a multiple of 4 GiB are streamed at the end.
    """
    tuning = attempt.context.tuning
    rows = _drop_existing(attempt, rows)
    writer = _Writer(attempt)
    pool = PutPool(
        threads=tuning.puts_at_once(len(rows)),
        max_bytes=tuning.bytes_in_flight,
    )
    oversized: list[PlannedMember] = []
    try:
        for neighbours in _group_neighbours(rows, tuning.gap_bytes):
            oversized += _extract_neighbours(attempt, neighbours, writer, pool)
        pool.close()
        # `writer` has raised no error, so the refusals concern single members, not the store.
        writer.note_refusals()
    except BaseException:
        # From now on, no PUT is retried, and PUTs that wait for their turn are not sent.
        attempt.calls.end(errors.ServiceFaultError("the batch has failed"))
        pool.abandon()
        attempt.calls.reopen()  # allows the calls that write the outcomes
        raise
    for row in oversized:
        stream_whole(attempt, row)


def _drop_existing(attempt: TaskAttempt, rows: list[PlannedMember]) -> list[PlannedMember]:
    """Note the rows whose objects are kept; return the other rows.

    S3 charges even for a PUT that fails because of If-None-Match, and some stores ignore this
    header.
    """
    outcomes = resolve_conflicts(
        rows,
        attempt.run.options,
        attempt.destination,
        attempt.calls,
        threads=attempt.context.tuning.puts_in_flight,
    )
    for row in rows:
        if row.member.index in outcomes:
            attempt.note(row, outcomes[row.member.index])
    return [row for row in rows if row.member.index not in outcomes]


def _group_neighbours(rows: Sequence[PlannedMember], max_gap: int) -> Iterator[list[PlannedMember]]:
    """Yield groups of rows to read as one range; a gap in a range has at most `max_gap` bytes.

    `rows` are in the order of their offsets.
    """
    neighbours: list[PlannedMember] = []
    previous_stop = 0
    for row in rows:
        if neighbours and row.member.offset - previous_stop > max_gap:
            yield neighbours
            neighbours = []
        neighbours.append(row)
        previous_stop = _read_stop(row.member)
    if neighbours:
        yield neighbours


def _read_stop(member: Member) -> int:
    """Return the end of the byte range needed to check and decode a small member.

    The range begins at the member's offset. It is long enough for any local header, the data, and
    `AFTER_LENGTH` bytes after the data.
    """
    return min(member.stop, member.offset + MAX_HEADER + member.compressed_size + AFTER_LENGTH)


def _extract_neighbours(
    attempt: TaskAttempt, rows: list[PlannedMember], writer: _Writer, pool: PutPool
) -> list[PlannedMember]:
    """Extract members that are read as one range; return the members that must be streamed.

    The returned members exceed their declared size by a multiple of 4 GiB.
    """
    oversized: list[PlannedMember] = []
    byte_range = ByteRange(rows[0].member.offset, _read_stop(rows[-1].member))
    window = Window(attempt.calls.stream(attempt.archive, byte_range), byte_range.start)
    for row in rows:
        attempt.check_time()
        try:
            decoded = _decode_verified(attempt, row, window)
        except errors.MemberError as error:
            if row.member.is_wrapped and error.finding.code == "size-overrun":
                oversized.append(row)
            else:
                attempt.note_failed(row, error.finding)
        else:
            verified = row.with_crc(decoded.crc32)
            # Compute the facts in this thread: the same code is slower in a thread of the pool,
            # because the CPU caches are cold when that thread wakes.
            facts = object_facts(verified.key, verified.member, attempt.run)
            pool.submit(
                partial(writer.put, verified, facts, decoded.content), size=len(decoded.content)
            )
        attempt.show_progress()
    return oversized


def _decode_verified(attempt: TaskAttempt, row: PlannedMember, window: Window) -> Decoded:
    """Return the verified object of a member.

    Only the bytes up to the `_read_stop` of the member are used, even if the window contains more,
    so the result does not depend on the other members of the task.

    Args:
        attempt: the attempt to which warnings about the member are added.
        row: the member.
        window: the bytes of the archive; bytes before the member are dropped.

    Raises:
        MemberError: the member is not as declared.
    """
    policy = attempt.context.policy
    member = row.member
    raw = window.take(member.offset, _read_stop(member))
    opened = open_member(member, raw, policy)
    # `open_member` returns a number if the header needs this many bytes. Any header fits in the
    # requested range, so the store sent too few bytes.
    if isinstance(opened, int):
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
    """Bytes of an archive that arrive and are consumed in order, without a copy if possible.

    The window holds at most one member and one piece of the stream.
    """

    def __init__(self, chunks: Iterator[Buffer], start: int) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")
        self._start = start  # offset of the first held byte in the archive

    def take(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) of the archive; bytes before `start` may be dropped."""
        if stop > self._start + len(self._held):
            self._fill(start, stop)
        return self._held[start - self._start : stop - self._start]

    def _fill(self, start: int, stop: int) -> None:
        """Drop the bytes before `start`, and receive chunks until one reaches `stop`."""
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
            if position + len(chunk) > start:  # otherwise the whole chunk lies in a gap
                buffers.append(memoryview(chunk)[max(0, start - position) :])
            position += len(chunk)
        self._held = memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        self._start = start


class PutPool:
    """Threads that PUT small bodies, with a bound on the bytes in memory.

    The threads share a queue and do not use futures: at 10,000 members per second, the bookkeeping
    for a future takes as much CPU time as all other work for a member. One thread submits bodies,
    and then closes or abandons the pool; a closed pool can still be abandoned. The first error of a
    PUT stops the pool: queued bodies are dropped, and `submit` or `close` raises the error.

    Args:
        threads: number of concurrent PUTs; fewer if there is no memory for so many threads.
        max_bytes: maximum total size of the bodies that are queued or being written.
    """

    def __init__(self, threads: int, max_bytes: int) -> None:
        # The call that writes a body, and the size of the body. None ends the thread.
        self._queue: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._max_bytes = max_bytes
        # A body is in flight from `submit` to the end of its PUT. For each thread, one body is
        # being sent and three are queued, so that no thread waits for its next body.
        self._max_in_flight = 4 * threads
        self._in_flight = 0
        self._bytes = 0  # total size of the bodies in flight
        self._awaited_size: int | None = None  # size of the body that waits in `submit`
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []  # the threads that have started
        try:
            for number in range(threads):
                thread = threading.Thread(target=self._work, name=f"put-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError:
            if not self._threads:
                raise
            # There is no memory for the stack of one more thread. A quarter of the threads stay;
            # the others end, because their bodies need memory too.
            for _ in self._threads[1 + len(self._threads) // 4 :]:
                self._queue.put(None)

    def submit(self, put: Callable[[], None], size: int) -> None:
        """Wait until a body of `size` bytes has room, then queue `put`, which writes the body."""
        with self._lock:
            if self._in_flight >= self._max_in_flight or self._bytes + size > self._max_bytes:
                self._wait_for_room(size)  # releases the lock while it waits
            if self._error is not None:
                raise self._error
            self._bytes += size
            self._in_flight += 1
        self._queue.put((put, size))

    def _wait_for_room(self, size: int) -> None:
        """Wait until a body of `size` bytes may be submitted; the caller holds the lock."""
        self._awaited_size = size  # `_work` notifies only when this body may be submitted
        while not self._may_submit(size):
            self._changed.wait()
        self._awaited_size = None

    def _may_submit(self, size: int) -> bool:
        """Return whether a waiting `submit` may continue: after an error, or if there is room."""
        # `submit` waits until half of the room is free. If `submit` continued after each PUT, the
        # two thread switches would take longer than the rest of the work for a member.
        has_room = (
            self._bytes + size <= self._max_bytes // 2
            and self._in_flight <= self._max_in_flight // 2
        )
        # If no body is in flight, there is room for any body.
        return has_room or self._in_flight == 0 or self._error is not None

    def close(self) -> None:
        """Wait until all submitted bodies have been written."""
        self._end_threads()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Drop the queued bodies; wait for the PUTs that have started."""
        with self._lock:
            if self._error is None:
                self._error = errors.S3UnzipError("abandoned")  # makes the threads drop the bodies
        self._end_threads()

    def _end_threads(self) -> None:
        """Make each thread end after the bodies that are already queued; wait for the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """PUT queued bodies until the pool is closed or abandoned; each thread runs this loop."""
        for queued in iter(self._queue.get, None):  # `_end_threads` puts None into the queue
            put, size = queued
            try:
                if self._error is None:  # otherwise the body is dropped
                    put()
            except BaseException as error:  # noqa: BLE001 - re-raised in the thread that submits
                with self._lock:
                    self._error = self._error or error
            del queued, put  # free the body before `submit` accepts another one
            with self._lock:
                self._bytes -= size
                self._in_flight -= 1
                if self._awaited_size is not None and self._may_submit(self._awaited_size):
                    self._changed.notify()


class _Writer:
    """Writes members according to the run's `on_conflict`; each thread does one PUT at a time.

    If the store accepts other members, a refusal concerns only the refused member. If the store
    refuses every member, the refusal ends the run, so that a million members are not refused one by
    one.
    """

    def __init__(self, attempt: TaskAttempt) -> None:
        self._attempt = attempt
        self._if_absent = attempt.run.options.on_conflict is OnConflict.NEVER
        self._has_success = False  # whether the store has accepted any member
        # Findings, not errors: an error's traceback would keep the folder of a failed write open.
        self._refused: list[tuple[PlannedMember, errors.Finding]] = []
        self._lock = threading.Lock()

    def note_refusals(self) -> None:
        """After the last PUT of the batch, note the refused members as failed."""
        for row, finding in self._refused:
            self._attempt.note_failed(row, finding)

    def put(self, row: PlannedMember, facts: ObjectFacts, body: Buffer) -> None:
        """PUT a member and note its outcome; raise an error only if it ends the whole batch."""
        attempt = self._attempt
        started = attempt.context.clock.now()
        try:
            send = partial(attempt.destination.put, row.key, body, facts, if_absent=self._if_absent)
            etag = attempt.calls.paced("put", send)
        except errors.ConflictError:
            attempt.note(row, explain_refusal(row, attempt))
        except RUN_FAULTS:  # subclasses of `StorageError` that end the whole run
            raise
        except errors.UnsupportedError:  # the store would refuse every member
            raise
        except errors.NameRefusedError as refusal:
            attempt.note_failed(row, _describe_refusal(row, refusal))
        except errors.StorageError as refusal:
            with self._lock:
                # The refusal is noted after the last PUT, unless the store refuses every member.
                self._refused.append((row, _describe_refusal(row, refusal)))
                # If no PUT has succeeded by now, the store probably refuses every member.
                if not self._has_success and len(self._refused) >= MAX_REFUSALS:
                    raise
        else:
            self._has_success = True
            attempt.note_extracted(row, attempt.context.clock.now() - started, len(body), etag)


def _describe_refusal(row: PlannedMember, refusal: errors.StorageError) -> errors.Finding:
    return errors.Finding(refusal.reason, str(refusal), member=row.key)
