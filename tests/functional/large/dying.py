"""Stores of a worker that is killed: after so many calls nothing of it reaches the world."""

import threading
from typing import Any

from s3unzip.model import Location
from s3unzip.stores.calls import Calls
from tests.memory import MemoryStores

FREE = frozenset({"part_limits", "copies_from"})  # what makes no request


class KilledError(BaseException):
    """The worker is gone: no handler of the pipeline may take it for a fault."""


class Lifetime:
    """So many calls, and no more.

    `answered` is whether the last call takes effect: a worker can be killed
    before its request is out, or before the answer is in.
    """

    def __init__(self, calls: float = float("inf"), *, answered: bool = False) -> None:
        self.calls = 0
        self._most = calls
        self._answered = answered
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Count one call; say whether the worker dies after it has taken effect."""
        with self._lock:
            self.calls += 1
            if self.calls < self._most:
                return False
            if self.calls == self._most and self._answered:
                return True
        raise KilledError


class FailsAfter:
    """The stores of a worker with a lifetime."""

    def __init__(self, stores: MemoryStores, lifetime: Lifetime) -> None:
        self._stores = stores
        self._life = lifetime

    def source(self, location: Location) -> Any:
        """Return the reading side."""
        return Dying(self._stores.source(location), self._life)

    def destination(self, location: Location) -> Any:
        """Return the writing side."""
        return Dying(self._stores.destination(location), self._life)

    def run_store(self, run: str, calls: Calls | None = None) -> Any:
        """Return a run's own objects."""
        return Dying(self._stores.run_store(run, calls), self._life)


class Dying:
    """An adapter each of whose requests spends a part of the lifetime."""

    def __init__(self, inner: object, life: Lifetime) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in FREE:
            return found
        if name == "pinned":
            return lambda *given: Dying(found(*given), self._life)

        def request(*given: Any, **more: Any) -> Any:
            dies = self._life.spend()
            value = found(*given, **more)
            if dies:
                raise KilledError
            return value

        return request
