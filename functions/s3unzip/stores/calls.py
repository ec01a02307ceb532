"""Calls to object stores: counted, retried with full jitter, slowed when a store says so.

Rules:

* One `Calls` belongs to one step (a plan, a task, a report). So its counts are the step's, and a
  throttled store slows all its threads together.
* All `Calls` of a process share one `FaultBudget`. So a store that is gone is waited for once, not
  by each step anew.
* A call is one attempt. After a `ServiceFaultError` it is repeated, so it must be safe to repeat.
  Any other `S3UnzipError` is an answer, which shows that the store works.
* Threads may call `run`, `paced` and `stream` at once. After `end` no call is repeated, and calls
  that are under way end by themselves.
* This module knows no store: it runs the calls that it is given.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from typing import Literal, TypeVar

from msgspec import Struct, field

from s3unzip.errors import ExpiredKeysError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Location, Requests
from s3unzip.stores.clock import Clock
from s3unzip.stores.fault_budget import FaultBudget, draw_delay
from s3unzip.stores.pace import FIRST_CALLS, AimdLimiter
from s3unzip.stores.ports import PIECE, Buffer, Kind, PinnedArchive, Source, Store, Tail
from s3unzip.zip import ByteRange

T = TypeVar("T")
_log = logging.getLogger("s3unzip.calls")
WARN_AFTER = 2.0  # seconds without a success
GATHER_SECONDS = 1.0  # then the bytes that came are passed on
MIN_RATE = 1024  # bytes a second of a body; a slower store is treated as a silent one
TAIL_SECONDS = 60.0  # after which the end of an archive must not come too slowly


# The step whose call runs in this thread.
_current: ContextVar[Calls | None] = ContextVar("calls", default=None)


def count_request(kind: Kind) -> None:
    """Count one more request: adapters call this before each request after the first of a call."""
    calls = _current.get()
    if calls is not None:
        calls.count(kind)


class Calls:
    """Runs calls for one step.

    Args:
        budget: seconds that one call may be repeated, if `faults` has none for all.
        at_once: calls that may run at the same time.
        faults: the budget that all calls of the process share; None: these have their own.
    """

    def __init__(
        self,
        clock: Clock,
        budget: float,
        at_once: int,
        first: int = FIRST_CALLS,
        faults: FaultBudget | None = None,
    ) -> None:
        self._clock = clock
        self._faults = faults or FaultBudget(budget)
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # The fault that spent the budget: no call of this step is repeated after it.
        self._last_fault: ServiceFaultError | None = None
        self.pace = AimdLimiter(at_once, first)

    def run(self, kind: Kind, call: Callable[[], T], store: Store | None = None) -> T:
        """Return what `call` returns, trying again while the budget lasts.

        The budget counts seconds since the first fault without a success, of this call, of its kind
        or of all calls to the store. The time of failing calls counts, too: a store that lets calls
        time out spends the budget as soon as one that refuses them.

        Args:
            kind: of the request, as it is counted.
            store: None: the archive's for "get", else the destination.
        """
        target: Store = store or ("source" if kind == "get" else "destination")
        retry = _Retry()
        while True:
            self.count(kind)
            token = _current.set(self)
            began = self._start_waiting(target)
            try:
                value = self._logged(kind, call)
            except ServiceFaultError as fault:
                if not self._wait_for_retry(retry, (target, kind), fault, began):
                    raise
            except S3UnzipError:  # an answer
                self._faults.note_success(target, kind, began)
                raise
            else:
                self._faults.note_success(target, kind, began)
                return value
            finally:
                _current.reset(token)
                self._stop_waiting()

    def end(self) -> None:
        """Stop all retries: the step has failed, and its other threads need not wait."""
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the step has failed, so that the work of its threads is not needed."""
        return self._ended.is_set()

    def reopen(self) -> None:
        """Allow retries again, once the other threads have ended: the outcomes must be written."""
        self._ended.clear()
        self._last_fault = None

    def paced(self, kind: Kind, call: Callable[[], T]) -> T:
        """Like `run` of the destination, at most `pace.limit` at once over all threads."""

        def call_unless_spent() -> T:  # the budget may be spent while the call waits for its turn
            spent = self._last_fault or self._faults.find_spent("destination", kind, self._clock)
            if spent is not None:
                self._last_fault = spent
                raise spent.again()
            return call()

        return self.run(kind, partial(self.pace.run, call_unless_spent))

    def tail(
        self, source: Source, location: Location, length: int, store: Store = "source"
    ) -> Tail:
        """Return the last `length` bytes of an archive; a broken body is resumed."""
        tail = self.run("get", lambda: source.tail(location, length), store)
        if not tail.missing:
            return tail
        size = tail.pin.size
        archive = source.pinned(location, tail.pin)
        missing = self.read(archive, ByteRange(size - tail.missing, size), store)
        return tail._replace(data=tail.data + missing, missing=0)

    def read(self, archive: PinnedArchive, want: ByteRange, store: Store = "source") -> bytes:
        """Return the bytes of `want`, as `stream` does."""
        return b"".join(self.stream(archive, want, store))

    def stream(
        self, archive: PinnedArchive, want: ByteRange, store: Store = "source"
    ) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of about a MiB; a broken body is resumed.

        A request that brings `MIN_RATE` bytes a second is a success, however it ends. A store that
        sends less for the whole budget ends the call, as a silent one does. Bytes in memory need no
        request.
        """
        if archive.holds(want):
            yield from archive.stream(want)
            return
        position = want.start
        progress = _Progress(self._clock.now())
        while position < want.stop:
            self.count("get")
            try:
                chunks = archive.stream(want._replace(start=position))
                for data in self._gather(chunks, store):
                    position += len(data)
                    slowness = self._note_progress(progress, len(data), store)
                    paused = self._clock.now()
                    yield data
                    progress.since += self._clock.now() - paused
                    if slowness is not None and position < want.stop:
                        raise slowness
            except ServiceFaultError as fault:
                if not self._wait_for_retry(progress.retry, (store, "get"), fault, progress.since):
                    raise

    def _gather(self, chunks: Iterator[Buffer], store: Store) -> Iterator[Buffer]:
        """Yield chunks joined to about a MiB; what came before a fault is yielded before it."""
        gathered: list[Buffer] = []
        size = 0
        began = self._start_waiting(store)
        try:
            while (chunk := self._next(chunks)) is not None:
                gathered.append(chunk)
                size += len(chunk)
                if size >= PIECE or self._clock.now() - began > GATHER_SECONDS:
                    self._stop_waiting()  # the consumer works now
                    yield _join(gathered)
                    gathered = []
                    size = 0
                    began = self._start_waiting(store)
        except ServiceFaultError:
            self._stop_waiting()
            if gathered:
                yield _join(gathered)
            raise
        finally:
            self._stop_waiting()
        if gathered:
            yield _join(gathered)

    def _next(self, chunks: Iterator[Buffer]) -> Buffer | None:
        """Return the next chunk; None after the last one. Its requests are counted here."""
        token = _current.set(self)
        try:
            return next(chunks, None)
        finally:
            _current.reset(token)

    def _note_progress(
        self, progress: _Progress, size: int, store: Store
    ) -> ServiceFaultError | None:
        """Note that bytes came; return a fault if the store was too slow for the whole budget."""
        faults = self._faults
        now = self._clock.now()
        seconds = now - progress.since
        progress.size += size
        if progress.size >= MIN_RATE * seconds:
            faults.note_success(store, "get", now)
            progress.since = now
            progress.size = 0
            progress.retry = _Retry()
        elif seconds > faults.seconds:
            return _too_slow(progress.size, seconds)
        return None

    def count(self, kind: Kind | Literal["retries", "throttled"]) -> None:
        """Count a request; `run` counts its own."""
        with self._lock:
            self._counts[kind] += 1

    @property
    def requests(self) -> Requests:
        """The requests so far."""
        with self._lock:
            return Requests(**self._counts)

    def _logged(self, kind: Kind, call: Callable[[], T]) -> T:
        """Return what `call` returns; at the level DEBUG its duration is logged."""
        if not _log.isEnabledFor(logging.DEBUG):
            return call()
        began = self._clock.now()
        try:
            return call()
        finally:
            _log.debug("%s took %.0f ms", kind, 1000 * (self._clock.now() - began))

    def _start_waiting(self, store: Store) -> float:
        """Note that this thread waits for `store` from now on; return the time."""
        now = self._clock.now()
        self._faults.waiting[get_ident()] = store, now
        return now

    def _stop_waiting(self) -> None:
        """Note that this thread waits for no store."""
        self._faults.waiting.pop(get_ident(), None)

    def _wait_for_retry(
        self, retry: _Retry, request: tuple[Store, Kind], fault: ServiceFaultError, began: float
    ) -> bool:
        """Wait until the call may be tried again; return False if it may not.

        It may not once the budget is spent, the step has ended, or the worker has no time left.

        Args:
            began: when the attempt began that failed with `fault`.
        """
        if isinstance(fault, ExpiredKeysError):
            self._last_fault = fault
        if self._last_fault is not None:
            fault.gave_up = True
            fault.is_down = self._last_fault.is_down
            return False
        store = request[0]
        failing_since = self._count_fault(retry, request, fault, began)
        while not self._ended.is_set():
            delay = draw_delay(retry.attempt, self._random)
            seconds = self._clock.now() - failing_since + delay
            if seconds > self._faults.seconds:
                self._last_fault = fault
                fault.gave_up = True
                fault.is_down = self._faults.is_down(store, self._clock.now() + delay)
                return False
            if self._clock.remaining() < delay:
                return False
            retry.attempt += 1
            _log.info("attempt %d failed, the next one in %.1f s: %s", retry.attempt, delay, fault)
            if seconds >= WARN_AFTER:
                self._faults.warn_once(*request, fault, self._faults.seconds - seconds)
            self._clock.sleep(delay)
            if not self._ended.is_set() and self._faults.take_turn(store, self._clock.now()):
                self.count("retries")
                return True
        return False

    def _count_fault(
        self, retry: _Retry, request: tuple[Store, Kind], fault: ServiceFaultError, began: float
    ) -> float:
        """Count a failed attempt; return since when the store, or this call, has failed."""
        if isinstance(fault, ThrottledError):
            self.count("throttled")
        now = self._clock.now()
        outage_start = self._faults.note_fault(*request, fault, now, began)
        if retry.first_fault is None:
            retry.first_fault = now
        return min(outage_start, retry.first_fault)


class _Retry(Struct):
    """How often one call was tried."""

    attempt: int = 0
    first_fault: float | None = None  # Unix seconds


class _Progress(Struct):
    """What came of a body since it last came fast enough."""

    since: float  # Unix seconds; later by the time that the consumer took
    size: int = 0  # bytes
    retry: _Retry = field(default_factory=_Retry)


def _join(chunks: Sequence[Buffer]) -> Buffer:
    """Return the bytes of chunks; a single chunk is not copied."""
    if len(chunks) == 1:
        return chunks[0]
    return b"".join(chunks)


def _too_slow(size: int, seconds: float) -> ServiceFaultError:
    """Return the fault of a body that came more slowly than `MIN_RATE`."""
    return ServiceFaultError(
        f"only {size:,} bytes came in {seconds:.0f} s, fewer than {MIN_RATE:,} a second"
    )


def read_until_fault(chunks: Iterator[Buffer]) -> bytes:
    """Return a body, or its beginning if it breaks.

    Raises:
        ServiceFaultError: the body came more slowly than `MIN_RATE` until it broke, or for
            `TAIL_SECONDS`.
    """
    began = time.monotonic()
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            waited = time.monotonic() - began
            if waited > TAIL_SECONDS and len(body) < MIN_RATE * waited:
                raise _too_slow(len(body), waited)
    except ServiceFaultError:
        if len(body) < MIN_RATE * (time.monotonic() - began):
            raise
    return bytes(body)
