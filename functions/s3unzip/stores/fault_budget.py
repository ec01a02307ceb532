"""A limit on how long stores may fail, and turns in which calls retry a failing store.

Rules:

* A process has one `FaultBudget`, which all its threads use concurrently.
* An outage begins with the first failed call after a success. A success ends two outages: the
  outage of the store, and the outage of the kind of request that succeeded. The budget is the
  longest outage that a run tolerates.
* The time limit of a PUT (`StoreConfig.put_seconds`) is longer than the budget. So if an outage
  begins with a PUT, at most half the budget has passed when the PUT fails, and it is retried.
* While a store is failing, one waiting call at a time is retried, at longer and longer intervals.
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
FIRST_DELAY = 0.1  # maximum seconds before the first retry; doubled after each attempt
LONGEST_DELAY = 10.0
SILENT_AFTER = 1 / 8  # a store that does not respond for this share of the budget is silent
# An outage is over if there was no fault for this many times `FaultBudget.budget_seconds`.
FORGET = 5
BODY_KINDS: frozenset[Kind] = frozenset({"put", "part"})  # requests that send members


def draw_delay(attempt: int, dice: random.Random) -> float:
    """Return a random number of seconds to wait (full jitter) after attempt number `attempt`.

    Attempts are numbered from 0.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return dice.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**attempt))


class _Outage(Struct):
    """The faults of a store, or of one kind of its requests, since the last success."""

    since: float  # Unix time when the first failed call began
    latest: float = 0.0  # Unix time of the latest fault
    fault: ServiceFaultError | None = None
    turns: int = 0  # number of retries so far; each took one turn
    next_turn: float = 0.0  # Unix time from which a call may take the next turn
    is_reported: bool = False


# The scope of an outage: a store, and one kind of request or all kinds (None).
Scope: TypeAlias = tuple[Store, Kind | None]


class FaultBudget:
    """Limits the time for which a store may fail without a success; a process has one.

    Each store has its own budget, and so has each kind of request to a store. Therefore, a store
    that accepts new uploads but refuses their parts does not get a new budget with each upload.
    While a store is failing, calls take turns to retry, so the store receives only a few requests
    from the whole process.

    Args:
        budget_seconds: maximum duration of an outage, from the start of the first failed call.
        warn: function that receives a line for the user if a store does not recover immediately.
    """

    def __init__(self, budget_seconds: float, warn: Callable[[str], None] = _log.warning) -> None:
        self.budget_seconds = budget_seconds
        self._warn = warn
        self._outages: dict[Scope, _Outage] = {}
        # Unix time when the latest successful call began, or when bytes of a body arrived.
        self._latest_success: dict[Scope, float] = {}
        # The store that each thread is waiting for, and the start of the wait, by thread id.
        # `Calls` updates this dict.
        self.waiting: dict[int, tuple[Store, float]] = {}
        self._lock = threading.Lock()

    def note_success(self, store: Store, kind: Kind, began: float) -> None:
        """Record that a store responded to a call, or sent bytes of a body.

        Args:
            store: store that responded.
            kind: kind of the request.
            began: Unix time when the call began, or when the bytes arrived.
        """
        self._latest_success[store, None] = began  # None stands for any kind of request
        self._latest_success[store, kind] = began
        if self._outages:  # usually there are none, and no lock is needed
            with self._lock:
                self._outages.pop((store, None), None)
                self._outages.pop((store, kind), None)

    def note_fault(
        self, store: Store, kind: Kind, fault: ServiceFaultError, now: float, began: float
    ) -> float:
        """Record that a call that began at the time `began` failed at the time `now`.

        Returns the start of the store's outage, or the start of the outage of this kind of request,
        whichever is earlier.
        """
        outages = []
        with self._lock:
            for scope in (store, None), (store, kind):  # all requests, then those of this kind
                outage = self._outages.get(scope)
                if outage is None or now - outage.latest > FORGET * self.budget_seconds:
                    # An earlier outage is over. The new outage began after the last success, even
                    # if this call began before the last success.
                    since = max(began, self._latest_success.get(scope, 0.0))
                    if kind in BODY_KINDS:
                        since = max(since, now - self.budget_seconds / 2)
                    outage = _Outage(since)
                    self._outages[scope] = outage
                outage.latest = now
                outage.fault = fault
                outages.append(outage)
        return min(outage.since for outage in outages)

    def find_spent(self, store: Store, kind: Kind, now: float) -> ServiceFaultError | None:
        """Return the latest fault if the budget of a store, or of this kind of request, is spent.

        Returns None if no budget is spent, or if there was no fault for `LONGEST_DELAY` seconds:
        the store may be working again.
        """
        for scope in (store, None), (store, kind):  # all requests, then those of this kind
            outage = self._outages.get(scope)
            if (
                outage is not None
                and now - outage.latest < LONGEST_DELAY
                and now - outage.since > self.budget_seconds
            ):
                return outage.fault
        return None

    def is_down(self, store: Store, now: float) -> bool:
        """Return whether a store has been failing for longer than the whole budget."""
        outage = self._outages.get((store, None))
        return outage is not None and now - outage.since > self.budget_seconds

    def find_silent(self, now: float) -> Iterator[Store]:
        """Yield each store that has kept a call waiting for too long, but has no faults."""
        for store, began in tuple(self.waiting.values()):
            latest_success = self._latest_success.get((store, None), 0.0)  # of any kind of request
            seconds = now - max(began, latest_success)
            if seconds > self.budget_seconds * SILENT_AFTER and (store, None) not in self._outages:
                yield store

    def take_turn(self, store: Store, now: float) -> bool:
        """Take the next turn to retry a call; return False if that turn is later than `now`.

        All kinds of requests to a store share the same turns. The time between two turns doubles
        each time, up to half of `LONGEST_DELAY`. Without an outage, each call may be retried
        immediately.
        """
        with self._lock:
            outage = self._outages.get((store, None))
            if outage is None:
                return True
            if now < outage.next_turn:
                return False
            # The time between two turns is the average delay, which is half of the maximum delay.
            outage.next_turn = now + min(LONGEST_DELAY, FIRST_DELAY * 2**outage.turns) / 2
            outage.turns += 1
            return True

    def warn_once(self, store: Store, kind: Kind, fault: ServiceFaultError, seconds: float) -> None:
        """Once per outage, warn the user that calls are retried for `seconds` more seconds."""
        with self._lock:
            outage = self._outages.get((store, kind))
            if outage is None or outage.is_reported:
                return
            outage.is_reported = True
        self._warn(f"{fault.trouble or fault}, retrying for {max(1.0, seconds):.0f} s")
