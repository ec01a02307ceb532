"""Calls to object stores: counted, retried with full jitter, slowed when a store says so.

One `Calls` belongs to one step (a plan, a task, a report), so that its counts
are the step's and a throttled store slows all its threads together. This module knows no store: it
runs the calls that it is given.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from s3unzip.errors import ServiceFaultError, ThrottledError
from s3unzip.model import Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.stores.ports import Archive, Buffer, Clock
    from s3unzip.zip import ByteRange

T = TypeVar("T")
_log = logging.getLogger("s3unzip.calls")
Kind = Literal[
    "get", "put", "head", "list", "create", "part", "copy", "complete", "abort", "delete"
]

FIRST_DELAY = 0.1  # seconds; doubled at each attempt
LONGEST_DELAY = 10.0
FIRST_CALLS = 4  # at once, at the beginning
CUT = 0.7  # of the calls at once that are left after a throttled one


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

    It starts at a few and doubles while all goes well, so that a destination
    that refuses everything is asked a few times, not once a thread. Then it
    is TCP's rule (Chiu and Jain, 1989): one more after as many successes as
    there are calls at once, and a cut by a share, once a round: calls that
    began before the last cut say nothing new.
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
        entered = self.enter()
        try:
            value = call()
        except BaseException as error:
            throttled = isinstance(error, ThrottledError)
            self.leave(entered, throttled=throttled, succeeded=False)
            raise
        self.leave(entered, throttled=False, succeeded=True)
        return value

    def enter(self) -> int:
        """Wait for a place; return the round, which `leave` needs."""
        with self._lock:  # not the condition: its `with` is ten times as slow
            while self._active >= self.limit:
                self._waiting += 1
                self._changed.wait()
                self._waiting -= 1
            self._active += 1
            return self._cuts

    def leave(self, entered: int, *, throttled: bool, succeeded: bool) -> None:
        """Give the place back; adapt the limit to how the call ended."""
        with self._lock:
            self._active -= 1
            if throttled and entered == self._cuts:
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

    def add_successes(self, count: int) -> None:
        """Note calls that succeeded without `run`, several in one."""
        with self._lock:
            self._successes += count
            while self._successes and self.limit < self._max_concurrency:
                step = 1 if self._starting else self.limit
                if self._successes < step:
                    break
                self._successes -= step
                self.limit += 1
            if self._waiting:
                self._changed.notify_all()


class Calls:
    """Runs calls for one step."""

    def __init__(self, clock: Clock, budget: float, at_once: int, first: int = FIRST_CALLS) -> None:
        self._clock = clock
        self._budget = budget
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.pace = AimdLimiter(at_once, first)

    def run(self, kind: Kind, call: Callable[[], T]) -> T:
        """Return what `call` returns, trying again while the budget lasts.

        The budget is of seconds since the first fault, the failing calls
        included: a store that lets every call time out ends it as soon as one
        that refuses them.

        Raises:
            ServiceFaultError: the last one, when the budget is spent.
        """
        began: float | None = None
        attempt = 0
        while True:
            self.count(kind)
            token = _current.set(self)
            try:
                return self._logged(kind, call) if _log.isEnabledFor(logging.DEBUG) else call()
            except ServiceFaultError as fault:
                self._note(fault)
                began = self._clock.now() if began is None else began
                if not self._may_retry(attempt, began, fault):
                    raise
                attempt += 1
            finally:
                _current.reset(token)

    def end(self) -> None:
        """Stop all retries: the step has failed, and its other threads need not wait."""
        self._ended.set()

    def reopen(self) -> None:
        """Allow retries again, once the other threads have ended: the outcomes must be written."""
        self._ended.clear()

    def paced(self, kind: Kind, call: Callable[[], T]) -> T:
        """Like `run`, at most `pace.limit` at once over all threads."""
        return self.run(kind, partial(self.pace.run, call))

    def stream(self, archive: Archive, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want`; a broken body is resumed where it broke."""
        position = want.start
        began: float | None = None
        attempt = 0
        while position < want.stop:
            self.count("get")
            try:
                for piece in archive.stream(want._replace(start=position)):
                    position += len(piece)
                    yield piece
                    began, attempt = None, 0
            except ServiceFaultError as fault:
                self._note(fault)
                began = self._clock.now() if began is None else began
                if not self._may_retry(attempt, began, fault):
                    raise
                attempt += 1

    def count(self, kind: Kind | Literal["retries", "throttled"], times: int = 1) -> None:
        """Count requests; `run` counts its own."""
        with self._lock:
            self._counts[kind] += times

    @property
    def requests(self) -> Requests:
        """The requests so far."""
        with self._lock:
            return Requests(**self._counts)

    def _note(self, fault: ServiceFaultError) -> None:
        if isinstance(fault, ThrottledError):
            self.count("throttled")

    def _logged(self, kind: Kind, call: Callable[[], T]) -> T:
        began = self._clock.now()
        try:
            return call()
        finally:
            _log.debug("%s took %.0f ms", kind, 1000 * (self._clock.now() - began))

    def _may_retry(self, attempt: int, began: float, fault: ServiceFaultError) -> bool:
        """Wait, then return True; return False if the budget, the time or the step is over."""
        delay = draw_delay(attempt, self._random)
        spent = self._clock.now() - began + delay
        if self._ended.is_set() or spent > self._budget or self._clock.remaining() < delay:
            return False
        _log.info("attempt %d failed, the next one in %.1f s: %s", attempt + 1, delay, fault)
        self._clock.sleep(delay)
        if self._ended.is_set():
            return False
        self.count("retries")
        return True
