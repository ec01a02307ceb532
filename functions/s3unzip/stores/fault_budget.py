"""How long stores may fail, and which call tries a failing store next.

Rules:

* A process has one `FaultBudget`. Its threads use it at once.
* An outage begins with the first fault after a success. `note_success` ends the outage of the store
  and of the kind of request. The budget is the longest time that an outage may last.
* While a store fails, one waiting call at a time tries it, and the tries become less and less
  frequent.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from s3unzip.errors import ServiceFaultError
from s3unzip.stores.ports import Kind, Store

_log = logging.getLogger("s3unzip.calls")
FIRST_DELAY = 0.1  # seconds; doubled at each attempt
LONGEST_DELAY = 10.0
SILENT_AFTER = 1 / 8  # a store is silent after this share of the budget without an answer
FORGET = 5  # after 5 times the budget without a fault, the next fault begins a new outage


def draw_delay(attempt: int, dice: random.Random) -> float:
    """Return a random number of seconds to wait (full jitter) after attempt number `attempt`.

    The first attempt has number 0.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return dice.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**attempt))


class _Outage(Struct):
    """The faults of a store, or of one kind of its requests, since the last success."""

    since: float  # when the first failed call began, in Unix seconds
    latest: float = 0.0  # when the last fault was
    fault: ServiceFaultError | None = None
    turns: int = 0  # how many turns calls have taken
    next_turn: float = 0.0  # when a call may try again, in Unix seconds
    is_reported: bool = False


# What an outage affects: one kind of requests to a store, or all its requests (None).
Scope: TypeAlias = tuple[Store, Kind | None]


class FaultBudget:
    """Limits the seconds for which a store may fail without a success; a process has one.

    A store has a budget, and each kind of its requests has one, too. So a store that begins uploads
    and refuses their parts does not get a new budget with each upload. While a store fails, its
    calls take turns to try it again. So a store that does not answer gets a few requests from the
    whole process, instead of a few from each thread, task and round.

    Args:
        seconds: how long an outage may last, counted from its first fault.
        warn: receives one line for the user if a store does not recover at once.
    """

    def __init__(self, seconds: float, warn: Callable[[str], None] = _log.warning) -> None:
        self.seconds = seconds
        self._warn = warn
        self._outages: dict[Scope, _Outage] = {}
        self._answered: dict[Scope, float] = {}  # when the last answered call began
        # By thread id, the store that the thread waits for, and since when. `Calls` changes it.
        self.waiting: dict[int, tuple[Store, float]] = {}
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
        """Note that a call that began at `began` failed at `now`.

        Return when the outage began.
        """
        outages = []
        with self._lock:
            for scope in (store, None), (store, kind):
                outage = self._outages.get(scope)
                if outage is None or now - outage.latest > FORGET * self.seconds:
                    # If a later call was answered, the store still worked when that one began.
                    outage = _Outage(max(began, self._answered.get(scope, 0.0)))
                    self._outages[scope] = outage
                outage.latest = now
                outage.fault = fault
                outages.append(outage)
        return min(outage.since for outage in outages)

    def find_spent(self, store: Store, kind: Kind, now: float) -> ServiceFaultError | None:
        """Return the latest fault of a store whose budget is spent; None: the store may work.

        A store without a fault for `LONGEST_DELAY` seconds may work again.
        """
        for scope in (store, None), (store, kind):
            outage = self._outages.get(scope)
            if outage is None or now - outage.latest >= LONGEST_DELAY:
                continue
            if now - outage.since > self.seconds:
                return outage.fault
        return None

    def is_down(self, store: Store, now: float) -> bool:
        """Return whether no request to a store was answered for the whole budget."""
        outage = self._outages.get((store, None))
        return outage is not None and now - outage.since > self.seconds

    def find_silent(self, now: float) -> Iterator[Store]:
        """Yield the stores that have kept a call waiting too long, without any fault."""
        for store, began in tuple(self.waiting.values()):
            seconds = now - max(began, self._answered.get((store, None), 0.0))
            if seconds > self.seconds * SILENT_AFTER and (store, None) not in self._outages:
                yield store

    def take_turn(self, store: Store, now: float) -> bool:
        """Take the turn to repeat a call; return False if the next turn is later than `now`.

        All kinds of requests to a store share its turns. The wait between two turns is half of the
        longest wait between two retries of one call.
        """
        with self._lock:
            outage = self._outages.get((store, None))
            if outage is None:
                return True
            if now < outage.next_turn:
                return False
            outage.next_turn = now + min(LONGEST_DELAY, FIRST_DELAY * 2**outage.turns) / 2
            outage.turns += 1
            return True

    def warn_once(self, store: Store, kind: Kind, fault: ServiceFaultError, seconds: float) -> None:
        """Warn the user, once in an outage, that calls are repeated for `seconds` more."""
        with self._lock:
            outage = self._outages.get((store, kind))
            if outage is None or outage.is_reported:
                return
            outage.is_reported = True
        self._warn(f"{fault.trouble or fault}, retrying for {max(1.0, seconds):.0f} s")
