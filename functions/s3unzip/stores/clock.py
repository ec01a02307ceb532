"""Time: the port that tests control, and the machine's clock."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can control it."""

    def now(self) -> float:
        """Return Unix seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def remaining(self) -> float:
        """Return the seconds until the worker is stopped; infinite on one machine."""


class LocalClock:
    """The machine's clock, or another one; after `stop`, no time remains and every sleep ends."""

    def __init__(self, other: Clock | None = None) -> None:
        self._other = other
        self._stopped = threading.Event()

    def now(self) -> float:
        """Return Unix seconds."""
        return time.time() if self._other is None else self._other.now()

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over or the run is stopped."""
        if self._other is None:
            self._stopped.wait(seconds)
        elif not self._stopped.is_set():
            self._other.sleep(seconds)

    def remaining(self) -> float:
        """Return the seconds left: 0 after `stop`."""
        if self._stopped.is_set():
            return 0.0
        return math.inf if self._other is None else self._other.remaining()

    def stop(self) -> None:
        """End the worker's time."""
        self._stopped.set()
