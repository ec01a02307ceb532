"""Time: the port that tests control, and the machine's clock."""

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A source of the time, which tests can replace."""

    def now(self) -> float:
        """Return Unix seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def remaining(self) -> float:
        """Return the seconds until the worker is stopped; infinite on one machine."""


class LocalClock:
    """Tells the machine's time, or that of `clock`.

    After `stop`, no time remains and every sleep ends.

    Attributes:
        now: returns Unix seconds. It is the function itself: each member needs the time ten times.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.now = time.time
        if clock is not None:
            self.now = clock.now
        self._stopped = threading.Event()

    def sleep(self, seconds: float) -> None:
        """Wait until the seconds have passed or `stop` is called."""
        if self._clock is None:
            self._stopped.wait(seconds)
        elif not self._stopped.is_set():
            self._clock.sleep(seconds)

    def remaining(self) -> float:
        """Return the seconds left: 0 after `stop`."""
        if self._stopped.is_set():
            return 0.0
        if self._clock is None:
            return math.inf
        return self._clock.remaining()

    def stop(self) -> None:
        """Leave no time to the worker: end every sleep."""
        self._stopped.set()
