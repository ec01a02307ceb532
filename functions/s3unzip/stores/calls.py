"""Calls to object stores: counted, retried with full jitter, slowed when a store says so.

Rules:

* One `Calls` belongs to one step (a plan, a task, a report). So it counts for the whole step, and
  a store that throttles slows all threads of the step.
* All `Calls` of a process share one `FaultBudget`. So the process waits once for a store that does
  not answer, and each step does not wait anew.
* A call is one attempt. After a `ServiceFaultError` it is repeated, so it must be safe to repeat.
  Any other `S3UnzipError` is an answer, which shows that the store works.
* Threads may call `run`, `paced` and `stream` at once. After `end` no call is repeated, and calls
  that are under way end by themselves.
* This module knows nothing about stores: it runs the calls that it receives.
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

from msgspec import Struct

from s3unzip.errors import ExpiredKeysError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Requests
from s3unzip.stores.fault_budget import FaultBudget, draw_delay
from s3unzip.stores.ports import PIECE, Buffer, Clock, Kind, PinnedArchive, Store
from s3unzip.zip import ByteRange

T = TypeVar("T")
_log = logging.getLogger("s3unzip.calls")
FIRST_CALLS = 4  # paced calls at once, at the beginning of a step
CUT = 0.7  # a throttled call reduces the calls at once to this share
WARN_AFTER = 2.0  # seconds without a success
GATHER_SECONDS = 1.0  # a piece of a body is passed on after this time, if it is smaller than a MiB
MIN_RATE = 1024  # bytes a second of a body; a slower store is treated as a silent one
TAIL_SECONDS = 60.0  # after this time, an end of an archive that comes too slowly is a fault

# The `Calls` whose call runs in this thread.
_current: ContextVar[Calls | None] = ContextVar("calls", default=None)


def count_request(kind: Kind) -> None:
    """Count one more request: adapters do so before each request after the first one of a call."""
    calls = _current.get()
    if calls is not None:
        calls.count(kind)


class AimdLimiter:
    """How many calls may run at once: cut when throttled, grown slowly.

    The limit starts at a few and doubles while all goes well, so that a destination that refuses
    everything gets a few requests, not one from each thread. Then TCP's rule holds (Chiu and Jain,
    1989): one more call after as many successes as there are calls at once, and a cut by a share.
    Only calls that began after the last cut can cause the next one.
    """

    def __init__(self, max_concurrency: int, first: int = FIRST_CALLS) -> None:
        self._max_concurrency = max_concurrency
        self.limit = min(max_concurrency, first)  # how many calls may run at once now
        self._starting = True  # no call has been throttled
        self._active = 0  # calls that run now
        self._successes = 0  # since the limit last changed
        self._cuts = 0  # how often the limit was cut
        self._waiting = 0  # threads that wait for their call to start
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; first wait until fewer than `limit` calls run."""
        with self._lock:  # not the condition: its `with` is ten times as slow
            while self._active >= self.limit:
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
            self._active += 1
            cuts = self._cuts
        throttled = succeeded = False
        try:
            value = call()
            succeeded = True
        except ThrottledError:
            throttled = True
            raise
        finally:
            with self._lock:
                self._active -= 1
                if throttled and cuts == self._cuts:  # no cut since this call began
                    self._cuts += 1
                    self._starting = False
                    self._successes = 0
                    self.limit = max(1, int(self.limit * CUT))
                elif succeeded and self.limit < self._max_concurrency:
                    self._grow()
                if self._waiting:
                    self._changed.notify(2)  # this call has ended, and the limit may have grown
        return value

    def _grow(self) -> None:
        """Count a success; raise the limit after each one at first, later after `limit` of them."""
        self._successes += 1
        if self._starting or self._successes >= self.limit:
            self._successes = 0
            self.limit += 1


class Calls:
    """Runs calls for one step.

    Args:
        clock: of the process.
        budget: seconds for which calls are repeated, if `faults` is None.
        at_once: paced calls that may run at the same time.
        first: paced calls that may run at once when the step begins: see `AimdLimiter`.
        faults: the budget that all calls of the process share; None: this step has its own.
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
        # The fault that spent the budget. No call of this step is repeated after it.
        self._last_fault: ServiceFaultError | None = None
        self.pace = AimdLimiter(at_once, first)

    def run(self, kind: Kind, call: Callable[[], T], store: Store | None = None) -> T:
        """Return what `call` returns, trying again while the budget lasts.

        The budget counts the seconds since the first fault that no success has followed: of this
        call, of calls of its kind, or of all calls to the store. The time of failing
        calls counts, too: a store that lets calls time out spends the budget as soon as one that
        refuses them.

        Args:
            kind: the kind of request to count.
            call: sends the request; it may run more than once.
            store: receives the request. None: the source for "get", else the destination.
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
            except S3UnzipError:  # an answer
                self._faults.note_success(target, kind, progress.began)
                raise
            else:
                self._faults.note_success(target, kind, progress.began)
                return value

    def _attempt(self, call: Callable[[], T], store: Store) -> T:
        """Return what `call` returns, while this thread waits for `store`.

        Further requests of `call` are counted here.
        """
        token = _current.set(self)
        self._faults.waiting[get_ident()] = store, self._clock.now()
        try:
            return call()
        finally:
            _current.reset(token)
            self._faults.waiting.pop(get_ident(), None)  # a call inside this one may have done it

    def end(self) -> None:
        """Stop all retries: the step has failed, so its other threads need not wait."""
        self._ended.set()

    @property
    def has_ended(self) -> bool:
        """Whether the step has failed, so that the work of its threads is not needed."""
        return self._ended.is_set()

    def reopen(self) -> None:
        """Allow retries again after the other threads have ended, so that outcomes are written."""
        self._ended.clear()
        self._last_fault = None

    def paced(self, kind: Kind, call: Callable[[], T]) -> T:
        """Do what `run` does for the destination, with at most `pace.limit` calls at once."""

        def call_unless_spent() -> T:  # the budget may be spent while the call waits for the pace
            spent = self._last_fault or self._faults.find_spent(
                "destination", kind, self._clock.now()
            )
            if spent is not None:
                self._last_fault = spent
                raise spent.again()
            return call()

        return self.run(kind, partial(self.pace.run, call_unless_spent))

    def read(self, archive: PinnedArchive, want: ByteRange, store: Store = "source") -> bytes:
        """Return the bytes of `want`, as `stream` does."""
        return b"".join(self.stream(archive, want, store))

    def stream(
        self, archive: PinnedArchive, want: ByteRange, store: Store = "source"
    ) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of about a MiB; a broken body is resumed.

        A request that brings `MIN_RATE` bytes a second is a success, even if its body breaks. A
        store that sends less for the whole budget ends the call, as a silent one does. Bytes in
        memory need no request.
        """
        position = want.start
        progress = _Progress(self._clock.now())
        while position < want.stop:  # each request ends at the latest with a part of the archive
            missing = want._replace(start=position)
            if archive.holds(missing):
                yield from archive.stream(missing)
                return
            self.count("get")
            try:
                for data in self._gather(archive.stream(missing), store):
                    position += len(data)
                    slowness = self._note_progress(progress, len(data), store)
                    paused = self._clock.now()
                    yield data
                    # The time that the consumer took does not count as the store's.
                    progress.began += self._clock.now() - paused
                    if slowness is not None and position < want.stop:
                        raise slowness  # and it is handled below, like a body that breaks
            except ServiceFaultError as fault:
                if not self._wait_for_retry(progress, (store, "get"), fault):
                    raise

    def _gather(self, chunks: Iterator[Buffer], store: Store) -> Iterator[Buffer]:
        """Yield chunks joined to about a MiB; after a fault, yield the last ones before raising."""
        gathered: list[Buffer] = []
        size = 0
        began = self._clock.now()
        next_chunk = partial(next, chunks, None)  # it returns None at the end of the body
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

    def _note_progress(
        self, progress: _Progress, size: int, store: Store
    ) -> ServiceFaultError | None:
        """Note that bytes came; return a fault if the store was too slow for the whole budget."""
        now = self._clock.now()
        seconds = now - progress.began
        progress.size += size
        if progress.size >= MIN_RATE * seconds:
            self._faults.note_success(store, "get", now)
            progress.began = now
            progress.size = 0
            progress.failures = 0
            progress.first_fault = None
        elif seconds > self._faults.seconds:
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

    def _wait_for_retry(
        self, progress: _Progress, request: tuple[Store, Kind], fault: ServiceFaultError
    ) -> bool:
        """Wait until the call may be tried again; return False if it may not.

        It may not if the budget is spent, the step has ended, or the worker has no time left.

        Args:
            progress: of the call.
            request: the store and the kind of the call.
            fault: the error that ended the last attempt.
        """
        if isinstance(fault, ExpiredKeysError):  # waiting brings no new keys
            self._last_fault = fault
        if self._last_fault is not None:  # a call of this step has spent the budget
            fault.gave_up = True
            fault.is_down = self._last_fault.is_down
            return False
        store = request[0]
        failing_since = self._count_fault(progress, request, fault)
        while not self._ended.is_set():
            delay = draw_delay(progress.failures, self._random)
            outage_seconds = self._clock.now() - failing_since + delay  # when the delay ends
            if outage_seconds > self._faults.seconds:
                self._last_fault = fault
                fault.gave_up = True
                fault.is_down = self._faults.is_down(store, self._clock.now() + delay)
                return False
            if self._clock.remaining() < delay:
                return False
            progress.failures += 1
            _log.info(
                "attempt %d failed, the next one in %.1f s: %s", progress.failures, delay, fault
            )
            if outage_seconds >= WARN_AFTER:
                self._faults.warn_once(*request, fault, self._faults.seconds - outage_seconds)
            self._clock.sleep(delay)
            # Without a turn, the call waits again: another one tries the store.
            if not self._ended.is_set() and self._faults.take_turn(store, self._clock.now()):
                self.count("retries")
                return True
        return False

    def _count_fault(
        self, progress: _Progress, request: tuple[Store, Kind], fault: ServiceFaultError
    ) -> float:
        """Count a failed attempt; return when the outage of the store, or of this call, began."""
        if isinstance(fault, ThrottledError):
            self.count("throttled")
        now = self._clock.now()
        outage_start = self._faults.note_fault(*request, fault, now, progress.began)
        if progress.first_fault is None:
            progress.first_fault = now
        return min(outage_start, progress.first_fault)


class _Progress(Struct):
    """The progress of a call, or of a body since its bytes last came fast enough."""

    # In Unix seconds: when the last attempt began, or when the body last came fast enough. The
    # seconds that the consumer of a body took are added.
    began: float
    size: int = 0  # bytes of the body that have come
    failures: int = 0  # attempts that have failed
    first_fault: float | None = None  # when the first of them failed, in Unix seconds


def _join(chunks: Sequence[Buffer]) -> Buffer:
    if len(chunks) == 1:  # it need not be copied
        return chunks[0]
    return b"".join(chunks)


def _too_slow(size: int, seconds: float) -> ServiceFaultError:
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
        # A body that came fast enough is useful: the caller requests only the missing bytes.
        if len(body) < MIN_RATE * (time.monotonic() - began):
            raise
    return bytes(body)
