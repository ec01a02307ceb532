"""Calls to object stores: counted, retried with full jitter, and slowed down if a store throttles.

Rules:

* Each `Calls` object belongs to one step (a plan, attempt or settling), and counts its requests.
* All `Calls` objects of a worker share one `AimdLimiter`. If a store throttles one thread, all
  threads slow down, and the next step begins at the pace that the store accepts.
* All `Calls` objects of a worker also share one `FaultBudget`. If a store does not respond, the
  process waits for the store once, not again in each step.
* A function passed as `call` makes one attempt. After a `ServiceFaultError` it is called again, so
  it must be safe to repeat. After any other `S3UnzipError`, the store has responded, so it works.
* Threads may call `run`, `paced` and `stream` concurrently. After `end`, no call is repeated, and
  calls in progress are left to finish.
* This module does not depend on the kind of store: it runs the calls that are passed to it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import islice
from threading import get_ident
from typing import Literal, TypeVar

from msgspec import Struct

from s3unzip.errors import ExpiredKeysError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Requests
from s3unzip.stores.fault_budget import LONGEST_DELAY, FaultBudget, draw_delay
from s3unzip.stores.ports import PIECE, Buffer, Clock, Kind, PinnedArchive, Store
from s3unzip.zip import ByteRange

S = TypeVar("S")
T = TypeVar("T")
_log = logging.getLogger("s3unzip.calls")
FIRST_CALLS = 16  # concurrent paced calls at the beginning
CUT = 0.7  # a throttled call multiplies the limit on concurrent calls by this factor
SLOW_PUT = 10.0  # seconds after which a PUT counts as throttled, because the link is full
WARN_AFTER = 2.0  # seconds without a successful call before the user is warned
GATHER_SECONDS = 1.0  # after this time, even a piece of less than 1 MiB is passed on
MIN_RATE = 1024  # bytes of a body per second; a slower store is treated as unresponsive
TAIL_SECONDS = 60.0  # after this time, a tail that arrives below `MIN_RATE` is a fault

# The `Calls` object whose call is running in this thread.
_current: ContextVar[Calls | None] = ContextVar("calls", default=None)


def count_request(kind: Kind) -> None:
    """Count one more request. Adapters call this for each request of a call except the first."""
    calls = _current.get()
    if calls is not None:
        calls.count(kind)


class AimdLimiter:
    """The limit on concurrent calls: throttling and slow PUTs reduce it, and successes raise it.

    The limit starts low, so that a destination that refuses everything receives only a few
    requests, not one from each thread. Until the first throttling, each success raises the limit by
    one, so the limit doubles with each round of calls. After that, the rule of TCP applies (Chiu
    and Jain, 1989): throttling multiplies the limit by `CUT`, and `limit` successes raise it by
    one. Only calls that began after the last cut can cause the next cut.
    """

    def __init__(self, max_concurrency: int) -> None:
        self._max_concurrency = max_concurrency
        self.limit = min(max_concurrency, FIRST_CALLS)  # current maximum of `_active`
        self._active = 0  # number of calls that are running
        self._successes = 0  # successful calls since the limit last changed
        self._cuts = 0  # number of times that the limit was cut
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def run(self, call: Callable[[], T], *, is_put: bool = False) -> T:
        """Wait until fewer than `limit` calls are running, then return the result of `call`."""
        with self._lock:  # the lock of `_changed`; `with self._changed` takes ten times as long
            while self._active >= self.limit:
                self._changed.wait()
            self._active += 1
            cuts_before_call = self._cuts
        began = time.monotonic()
        throttled = succeeded = False
        try:
            value = call()
            succeeded = True
        except ThrottledError:
            throttled = True
            raise
        finally:
            is_slow = is_put and time.monotonic() - began > SLOW_PUT
            with self._lock:
                self._active -= 1
                if (throttled or is_slow) and self._cuts == cuts_before_call:
                    self._cuts += 1
                    self._successes = 0
                    self.limit = max(1, int(self.limit * CUT))
                elif succeeded and not is_slow and self.limit < self._max_concurrency:
                    self._grow()
                # This call has ended, and the limit may have risen, so two calls may begin.
                self._changed.notify(2)
        return value

    def _grow(self) -> None:
        """Raise the limit by one: at once before the first cut, later after `limit` successes."""
        self._successes += 1
        if not self._cuts or self._successes >= self.limit:
            self._successes = 0
            self.limit += 1


class Calls:
    """Runs the calls of one step.

    Args:
        clock: clock of the process.
        budget_seconds: time for which calls are retried; used only if `faults` is None.
        at_once: maximum number of concurrent paced calls; used only if `pace` is None.
        faults: budget shared by all calls of the process. If None, the step has its own budget.
        pace: limiter shared by all calls of the process. If None, the step has its own limiter.
    """

    def __init__(
        self,
        clock: Clock,
        budget_seconds: float,
        at_once: int,
        faults: FaultBudget | None = None,
        pace: AimdLimiter | None = None,
    ) -> None:
        self._clock = clock
        self._faults = faults or FaultBudget(budget_seconds)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # If set, no call of this step is retried: the budget is spent, or the keys have expired.
        self._final_fault: ServiceFaultError | None = None
        self.pace = pace or AimdLimiter(at_once)

    def run(self, kind: Kind, call: Callable[[], T], store: Store | None = None) -> T:
        """Return the result of `call`; retry while the budget lasts.

        The budget limits the duration of an outage, which begins with the first fault after a
        success. Faults are tracked for this call (unless the store throttles the call), for calls
        of its kind, and for all calls to the store. The time spent in failing calls counts: a store
        that does not respond uses up the budget as fast as a store that refuses each call.

        Args:
            kind: kind of request to count.
            call: function that sends the request, perhaps more than once.
            store: receives the request; by default the source for "get", else the destination.
        """
        target: Store = store or ("source" if kind == "get" else "destination")
        progress = _Progress(self._clock.now())
        while True:
            self.count(kind)
            progress.began = self._clock.now()
            try:
                value = self._attempt(call, target)
            except ServiceFaultError as fault:
                if not self._wait_for_retry(progress, (target, kind), fault):
                    raise
            except S3UnzipError:  # a response from the store, not a fault
                self._faults.note_success(target, kind, progress.began)
                raise
            else:
                self._faults.note_success(target, kind, progress.began)
                return value

    def _attempt(self, call: Callable[[], T], store: Store) -> T:
        """Return the result of `call`; while `call` runs, this thread is in `FaultBudget.waiting`.

        If `call` sends further requests, `count_request` counts them in this object.
        """
        token = _current.set(self)
        self._faults.waiting[get_ident()] = store, self._clock.now()
        try:
            return call()
        finally:
            _current.reset(token)
            self._faults.waiting.pop(get_ident(), None)  # a nested call may have removed the entry

    def end(self, fault: ServiceFaultError | None = None) -> None:
        """Stop all retries of a step that has failed; calls that wait for `pace` raise `fault`."""
        self._final_fault = fault or self._final_fault
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the step has failed; if so, its threads may stop working."""
        return self._ended.is_set()

    def reopen(self) -> None:
        """Undo `end`, so that outcomes can be written once the other threads have finished."""
        self._ended.clear()
        self._final_fault = None

    def paced(self, kind: Kind, call: Callable[[], T]) -> T:
        """Call the destination as `run` does, with at most `pace.limit` concurrent calls."""

        def call_unless_spent() -> T:
            # Other calls may have spent the budget while this call waited for `pace`.
            fault = self._final_fault or self._faults.find_spent(
                "destination", kind, self._clock.now()
            )
            if fault is not None:
                self._final_fault = fault
                raise fault.as_given_up()
            return call()

        return self.run(kind, partial(self.pace.run, call_unless_spent, is_put=kind == "put"))

    def read(self, archive: PinnedArchive, want: ByteRange, store: Store = "source") -> bytes:
        """Return the bytes of `want`, read by `stream`."""
        return b"".join(self.stream(archive, want, store))

    def stream(
        self, archive: PinnedArchive, want: ByteRange, store: Store = "source"
    ) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of about 1 MiB; resume if a body is cut short.

        A request that delivers `MIN_RATE` bytes per second is a success, even if its body is cut
        short. If a store is slower than `MIN_RATE` for the whole budget, the call fails, as if the
        store did not respond. Bytes in memory need no request.
        """
        position = want.start
        progress = _Progress(self._clock.now())
        # Each round sends one request. A fault, or the end of a part, ends the round.
        while position < want.stop:
            missing = want._replace(start=position)
            if archive.holds(missing):
                yield from archive.stream(missing)
                return
            self.count("get")
            try:
                for data in self._gather(archive.stream(missing), store):
                    position += len(data)
                    slow_fault = self._note_bytes(progress, len(data), store)
                    paused = self._clock.now()
                    yield data
                    # Time spent by the consumer does not count against the store.
                    progress.began += self._clock.now() - paused
                    if slow_fault is not None and position < want.stop:
                        raise slow_fault
            except ServiceFaultError as fault:  # the body was cut short, or is too slow
                if not self._wait_for_retry(progress, (store, "get"), fault):
                    raise

    def _gather(self, chunks: Iterator[Buffer], store: Store) -> Iterator[Buffer]:
        """Join chunks into pieces of about 1 MiB; after a fault, first yield what has arrived."""
        gathered: list[Buffer] = []
        size = 0
        began = self._clock.now()
        next_chunk = partial(next, chunks, None)  # returns None at the end of the body
        try:
            while (chunk := self._attempt(next_chunk, store)) is not None:
                gathered.append(chunk)
                size += len(chunk)
                if size >= PIECE or self._clock.now() - began > GATHER_SECONDS:
                    yield _join(gathered)
                    gathered = []
                    size = 0
                    began = self._clock.now()
        except ServiceFaultError:
            if gathered:
                yield _join(gathered)
            raise
        if gathered:
            yield _join(gathered)

    def _note_bytes(self, progress: _Progress, size: int, store: Store) -> ServiceFaultError | None:
        """Note `size` received bytes; return a fault if the body was slow for the whole budget."""
        now = self._clock.now()
        seconds = now - progress.began
        progress.size += size
        if progress.size >= MIN_RATE * seconds:
            self._faults.note_success(store, "get", now)
            progress.began = now  # the next measurement begins
            progress.size = 0
            progress.waits = 0
            progress.first_fault = None
        elif seconds > self._faults.budget_seconds:
            return _too_slow(progress.size, seconds)
        return None

    def count(self, kind: Kind | Literal["retries", "throttled"]) -> None:
        """Count a request, retry or throttled call; `run` and `stream` count their own requests."""
        with self._lock:
            self._counts[kind] += 1

    @property
    def requests(self) -> Requests:
        """The requests counted so far."""
        with self._lock:
            return Requests(**self._counts)

    def _wait_for_retry(
        self, progress: _Progress, request: tuple[Store, Kind], fault: ServiceFaultError
    ) -> bool:
        """Wait until the call may be retried; return False if it must not be retried.

        The call is not retried if the budget is spent, the step has ended, or the worker has no
        time left. `fault` ended the last attempt. If the step no longer retries any call, this
        method sets `fault.gave_up`.
        """
        if isinstance(fault, ExpiredKeysError):  # waiting does not renew the keys
            self._final_fault = fault
        if self._final_fault is not None:
            fault.gave_up = True
            fault.is_down = self._final_fault.is_down
            return False
        store = request[0]
        failing_since = self._count_fault(progress, request, fault)
        while not self._ended.is_set():
            delay = max(
                draw_delay(progress.waits, random.Random()),  # noqa: S311 - not a secret
                min(fault.wait_seconds, LONGEST_DELAY),
            )
            # The outage will have lasted this long when the delay is over.
            outage_seconds = self._clock.now() + delay - failing_since
            if outage_seconds > self._faults.budget_seconds:
                self._final_fault = fault
                fault.gave_up = True
                fault.is_down = self._faults.is_down(store, self._clock.now() + delay)
                return False
            if self._clock.remaining() < delay:
                return False
            progress.waits += 1
            _log.info("wait %d (%.1f s) before the next attempt: %s", progress.waits, delay, fault)
            if outage_seconds >= WARN_AFTER:
                self._faults.warn_once(
                    *request, fault, self._faults.budget_seconds - outage_seconds
                )
            self._clock.sleep(delay)
            # If another call has taken the turn, this call waits again, for longer.
            if not self._ended.is_set() and self._faults.take_turn(store, self._clock.now()):
                self.count("retries")
                return True
        return False

    def _count_fault(
        self, progress: _Progress, request: tuple[Store, Kind], fault: ServiceFaultError
    ) -> float:
        """Count a failed attempt; return the Unix time at which the outage began.

        The outage began when the store or this call began to fail, whichever was earlier. The
        faults of a throttled call do not count, because the store works if other calls succeed.
        """
        now = self._clock.now()
        outage_start = self._faults.note_fault(*request, fault, now, progress.began)
        if isinstance(fault, ThrottledError):
            self.count("throttled")
            return outage_start
        progress.first_fault = progress.first_fault or now
        return min(outage_start, progress.first_fault)


class _Progress(Struct):
    """The progress of a call. A body that arrives fast enough resets the progress."""

    # Unix time when the last attempt began, or when the body last arrived fast enough. While the
    # consumer of a body pauses, this time moves forward, because the store did not cause the pause.
    began: float
    size: int = 0  # number of bytes of the body that have arrived
    waits: int = 0  # number of waits before retries
    first_fault: float | None = None  # Unix time of the first fault, without throttling


def _join(chunks: Sequence[Buffer]) -> Buffer:
    if len(chunks) == 1:  # a single chunk need not be copied
        return chunks[0]
    return b"".join(chunks)


def _too_slow(size: int, seconds: float) -> ServiceFaultError:
    return ServiceFaultError(
        f"only {size:,} bytes arrived in {seconds:.0f} s, fewer than {MIN_RATE:,} per second"
    )


def read_until_fault(chunks: Iterator[Buffer]) -> bytes:
    """Return a body, or the bytes that arrived before a fault.

    Raises:
        ServiceFaultError: the body was slower than `MIN_RATE` at the fault, or at `TAIL_SECONDS`.
    """
    began = time.monotonic()
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            waited = time.monotonic() - began
            if waited > TAIL_SECONDS and len(body) < MIN_RATE * waited:
                raise _too_slow(len(body), waited)
    except ServiceFaultError:  # the body was cut short, or is too slow
        # The caller uses a partial body that arrived fast enough, and requests the missing bytes.
        if len(body) < MIN_RATE * (time.monotonic() - began):
            raise
    return bytes(body)


def read_ahead(
    read: Callable[[ByteRange], T], whole: ByteRange, piece_length: int, ahead: int
) -> Iterator[T]:
    """Yield the result of `read` for each piece of `whole`, in order.

    Each piece has `piece_length` bytes; the last one may be shorter. At most `ahead` pieces are in
    memory, including the pieces that are being read. If the consumer is slow, reading pauses.
    """
    if whole.length <= piece_length:  # a single piece needs no thread
        if whole.length:
            yield read(whole)
        return
    pieces = (
        ByteRange(start, min(start + piece_length, whole.stop))
        for start in range(whole.start, whole.stop, piece_length)
    )
    yield from map_ahead(read, pieces, ahead)


def map_ahead(
    call: Callable[[S], T], values: Iterable[S], at_once: int, ahead: int | None = None
) -> Generator[T, None, None]:
    """Yield the result of `call` for each value, in order, while threads run the next calls.

    Args:
        values: arguments for the calls, iterated in the consumer's thread.
        at_once: maximum number of concurrent calls.
        ahead: maximum number of running calls plus results that wait for the consumer. If `ahead`
            exceeds `at_once`, one slow call does not hold up the others. Defaults to `at_once`.
    """
    remaining = iter(values)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="ahead")
    try:
        pending = deque(pool.submit(call, value) for value in islice(remaining, ahead or at_once))
        while pending:
            result = pending.popleft().result()
            # The next call starts before the consumer uses this result.
            pending.extend(pool.submit(call, value) for value in islice(remaining, 1))
            yield result
    finally:
        # Waiting for the threads could deadlock: the garbage collector may close an abandoned
        # generator in a thread that is just starting and holds the `threading` lock.
        pool.shutdown(wait=False, cancel_futures=True)
