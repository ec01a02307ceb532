"""Calls to object stores: counted, retried with full jitter, slowed when a store says so.

Rules:

* One `Calls` belongs to one step (a plan, a task, a report). So its counts are the step's, and a
  throttled store slows all its threads together.
* All `Calls` of a process share one `FaultBudget`, so that not every step waits for a store that is
  gone.
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
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from s3unzip.errors import ExpiredKeysError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Location, Requests
from s3unzip.stores.clock import Clock
from s3unzip.stores.ports import PIECE, Buffer, PinnedArchive, Source, Tail
from s3unzip.zip import ByteRange

S = TypeVar("S")
T = TypeVar("T")
_log = logging.getLogger("s3unzip.calls")
Kind = Literal[
    "get", "put", "head", "list", "create", "part", "copy", "complete", "abort", "delete"
]
Store = Literal["source", "destination", "work"]

FIRST_DELAY = 0.1  # seconds; doubled at each attempt
LONGEST_DELAY = 10.0
FIRST_CALLS = 4  # at once, at the beginning
CUT = 0.7  # a throttled call cuts the calls at once to this share
WARN_AFTER = 2.0  # seconds without a success
SILENT_AFTER = 1 / 8  # of the budget without an answer
GATHER_SECONDS = 1.0  # then the bytes that came are passed on
MIN_RATE = 1024  # bytes a second of a body; a slower store is treated as a silent one
FORGET = 5  # after so many budgets without a fault, the next fault begins a new outage


# The step whose call runs in this thread.
_current: ContextVar[Calls | None] = ContextVar("calls", default=None)


def count_request(kind: Kind) -> None:
    """Count one more request: adapters call this before each request after the first of a call."""
    calls = _current.get()
    if calls is not None:
        calls.count(kind)


def draw_delay(attempt: int, dice: random.Random) -> float:
    """Return seconds until the next attempt, with full jitter; `attempt` failed, the first is 0.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return dice.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**attempt))


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
        self._starting = True
        self._active = 0
        self._successes = 0
        self._cuts = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; wait for a place first."""
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
                if throttled and cuts == self._cuts:
                    self._cuts += 1
                    self._starting = False
                    self.limit = max(1, int(self.limit * CUT))
                    self._successes = 0
                elif succeeded and self.limit < self._max_concurrency:
                    self._successes += 1
                    if self._successes >= (1 if self._starting else self.limit):
                        self._successes = 0
                        self.limit += 1
                if self._waiting:
                    self._changed.notify(2)  # the place given back, and maybe one more
        return value


class _Outage(Struct):
    """The faults of a store, or of one kind of its requests, since the last success."""

    since: float  # when the first failed call began
    latest: float = 0.0  # when the last fault was
    fault: ServiceFaultError | None = None
    tries: int = 0
    next_try: float = 0.0
    is_reported: bool = False


# All requests to a store, or one kind of them.
Requested: TypeAlias = "tuple[Store, Kind | None]"


class FaultBudget:
    """For how many seconds a store may fail without a success; a process has one.

    The store has a budget, and so has each kind of its requests. So a store that lets uploads begin
    and refuses their parts does not get a new budget with each upload. While a store fails, its
    calls take turns to try it again, ever more rarely. So a store that is gone gets a few requests
    in vain, not a few from each thread, task and round.

    Args:
        seconds: since the first fault after the last success.
        warn: takes one line for the user when a store does not recover at once.
    """

    def __init__(self, seconds: float, warn: Callable[[str], None] = _log.warning) -> None:
        self.seconds = seconds
        self._warn = warn
        self._outages: dict[Requested, _Outage] = {}
        self._answered: dict[Requested, float] = {}  # when the last answered call began
        self.waiting: dict[int, tuple[Store, float]] = {}  # threads in a call, and since when
        self._lock = threading.Lock()

    def note_success(self, store: Store, kind: Kind, began: float) -> None:
        """Note that a store answered a call; `began` is when the call began."""
        self._answered[store, None] = began
        self._answered[store, kind] = began
        if self._outages:
            with self._lock:
                self._outages.pop((store, None), None)
                self._outages.pop((store, kind), None)

    def note_fault(
        self, store: Store, kind: Kind, fault: ServiceFaultError, now: float, began: float
    ) -> float:
        """Note that a call failed at `now`; return when the outage began."""
        outages = []
        with self._lock:
            for requested in _scopes(store, kind):
                outage = self._outages.get(requested)
                if outage is None or now - outage.latest > FORGET * self.seconds:
                    outage = _Outage(max(began, self._answered.get(requested, 0.0)))
                    self._outages[requested] = outage
                outage.latest = now
                outage.fault = fault
                outages.append(outage)
        return min(outage.since for outage in outages)

    def find_spent(self, store: Store, kind: Kind, clock: Clock) -> ServiceFaultError | None:
        """Return the fault of a store whose budget is spent, if it failed just now."""
        if not self._outages:
            return None
        now = clock.now()
        for requested in _scopes(store, kind):
            outage = self._outages.get(requested)
            if outage is not None and now - outage.since > self.seconds:
                is_recent = now - outage.latest < LONGEST_DELAY
                return outage.fault if is_recent else None
        return None

    def is_down(self, store: Store, now: float) -> bool:
        """Return whether no request to a store was answered for the whole budget."""
        outage = self._outages.get((store, None))
        return outage is not None and now - outage.since > self.seconds

    def silent(self, now: float) -> Iterator[Store]:
        """Yield the stores that let calls wait for seconds, and have not failed."""
        for store, began in tuple(self.waiting.values()):
            seconds = now - max(began, self._answered.get((store, None), 0.0))
            if seconds > self.seconds * SILENT_AFTER and (store, None) not in self._outages:
                yield store

    def take_turn(self, store: Store, now: float) -> bool:
        """Return whether a call that waited may be repeated now; if so, the next turn is later."""
        with self._lock:
            outage = self._outages.get((store, None))
            if outage is not None:
                if now < outage.next_try:
                    return False
                outage.next_try = now + min(LONGEST_DELAY, FIRST_DELAY * 2**outage.tries) / 2
                outage.tries += 1
            return True

    def warn_once(self, store: Store, kind: Kind, fault: ServiceFaultError, seconds: float) -> None:
        """Warn the user that calls are repeated for `seconds`, once in an outage."""
        with self._lock:
            outage = self._outages.get((store, kind))
            if outage is None or outage.is_reported:
                return
            outage.is_reported = True
        self._warn(f"{fault.trouble or fault}, retrying for {max(1.0, seconds):.0f} s")


def _scopes(store: Store, kind: Kind) -> tuple[Requested, Requested]:
    """Return the two budgets that a request uses."""
    return (store, None), (store, kind)


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
        self._spent: ServiceFaultError | None = None  # the fault that ended a call of this step
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
            began = self._note_waiting(target)
            try:
                value = self._logged(kind, call) if _log.isEnabledFor(logging.DEBUG) else call()
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
                self._faults.waiting.pop(get_ident(), None)

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
        self._spent = None

    def paced(self, kind: Kind, call: Callable[[], T]) -> T:
        """Like `run` of the destination, at most `pace.limit` at once over all threads."""

        def call_unless_spent() -> T:  # the budget may be spent while the call waits for its turn
            fault = self._spent or self._faults.find_spent("destination", kind, self._clock)
            if fault is not None:
                self._spent = fault
                raise fault.again()
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
                    self._note_progress(progress, len(data), store)
                    paused = self._clock.now()
                    yield data
                    progress.since += self._clock.now() - paused
            except ServiceFaultError as fault:
                if not self._wait_for_retry(progress.retry, (store, "get"), fault, progress.since):
                    raise

    def _gather(self, chunks: Iterator[Buffer], store: Store) -> Iterator[Buffer]:
        """Yield chunks joined to about a MiB; what came before a fault is yielded before it."""
        gathered: list[Buffer] = []
        size = 0
        began = self._note_waiting(store)
        try:
            while (chunk := self._next(chunks)) is not None:
                gathered.append(chunk)
                size += len(chunk)
                if size >= PIECE or self._clock.now() - began > GATHER_SECONDS:
                    self._faults.waiting.pop(get_ident(), None)
                    yield _join(gathered)
                    gathered = []
                    size = 0
                    began = self._note_waiting(store)
        except ServiceFaultError:
            if gathered:
                yield _join(gathered)
            raise
        finally:
            self._faults.waiting.pop(get_ident(), None)
        if gathered:
            yield _join(gathered)

    def _next(self, chunks: Iterator[Buffer]) -> Buffer | None:
        """Return the next chunk; None after the last one. Its requests are counted here."""
        token = _current.set(self)
        try:
            return next(chunks, None)
        finally:
            _current.reset(token)

    def _note_progress(self, progress: _Progress, size: int, store: Store) -> None:
        """Note that bytes came; raise a fault if the store was too slow for the whole budget."""
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
            raise _too_slow(progress.size, seconds)

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
        began = self._clock.now()
        try:
            return call()
        finally:
            _log.debug("%s took %.0f ms", kind, 1000 * (self._clock.now() - began))

    def _note_waiting(self, store: Store) -> float:
        """Note that this thread waits for `store` from now on; return the time."""
        now = self._clock.now()
        self._faults.waiting[get_ident()] = store, now
        return now

    def _wait_for_retry(
        self, retry: _Retry, request: tuple[Store, Kind], fault: ServiceFaultError, began: float
    ) -> bool:
        """Wait for the next attempt; return False if the budget, the time or the step is over."""
        if isinstance(fault, ExpiredKeysError):
            self._spent = fault
        if self._spent is not None:
            fault.gave_up = True
            fault.is_down = self._spent.is_down
            return False
        if isinstance(fault, ThrottledError):
            self.count("throttled")
        now = self._clock.now()
        budget = self._faults.seconds
        since = self._faults.note_fault(*request, fault, now, began)
        if retry.began is None:
            retry.began = now
        began = min(since, retry.began)
        while not self._ended.is_set():
            delay = draw_delay(retry.attempt, self._random)
            spent = self._clock.now() - began + delay
            if spent > budget:
                self._spent = fault
                fault.gave_up = True
                fault.is_down = self._faults.is_down(request[0], self._clock.now() + delay)
                return False
            if self._clock.remaining() < delay:
                return False
            retry.attempt += 1
            _log.info("attempt %d failed, the next one in %.1f s: %s", retry.attempt, delay, fault)
            if spent >= WARN_AFTER:
                self._faults.warn_once(*request, fault, budget - spent)
            self._clock.sleep(delay)
            if not self._ended.is_set() and self._faults.take_turn(request[0], self._clock.now()):
                self.count("retries")
                return True
        return False


class _Retry(Struct):
    """How often one call was tried."""

    attempt: int = 0
    began: float | None = None  # at the first fault


class _Progress(Struct):
    """What came of a body since it last came fast enough."""

    since: float
    size: int = 0
    retry: _Retry = field(default_factory=_Retry)


def _join(chunks: Sequence[Buffer]) -> Buffer:
    """Return the bytes of chunks; a single chunk is not copied."""
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_slow(size: int, seconds: float) -> ServiceFaultError:
    """Return the fault of a body that came more slowly than `MIN_RATE`."""
    return ServiceFaultError(
        f"only {size:,} bytes came in {seconds:.0f} s, fewer than {MIN_RATE:,} a second"
    )


def read_until_fault(chunks: Iterator[Buffer], seconds: float) -> bytes:
    """Return a body, or its beginning if it breaks.

    Raises:
        ServiceFaultError: the body came more slowly than `MIN_RATE`, until it broke or for
            `seconds`.
    """
    began = time.monotonic()
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            waited = time.monotonic() - began
            if waited > seconds and len(body) < MIN_RATE * waited:
                raise _too_slow(len(body), waited)
    except ServiceFaultError:
        if len(body) < MIN_RATE * (time.monotonic() - began):
            raise
    return bytes(body)
