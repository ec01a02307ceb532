"""How many calls of a step may run at once, by TCP's rule."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from s3unzip.errors import ThrottledError

T = TypeVar("T")
FIRST_CALLS = 4  # at once, at the beginning
CUT = 0.7  # a throttled call cuts the calls at once to this share


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
                    self._cut()
                elif succeeded and self.limit < self._max_concurrency:
                    self._grow()
                if self._waiting:
                    self._changed.notify(2)  # the place given back, and maybe one more
        return value

    def _cut(self) -> None:
        self._cuts += 1
        self._starting = False
        self.limit = max(1, int(self.limit * CUT))
        self._successes = 0

    def _grow(self) -> None:
        """Count a success; allow one more call after each at first, then after `limit` of them."""
        self._successes += 1
        if self._starting or self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
