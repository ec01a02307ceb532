"""The machine's own time, without a limit until somebody stops it."""

from __future__ import annotations

import math
import threading
import time


class LocalClock:
    """The machine's clock; after `stop`, no time remains and every sleep ends."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def now(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over or the run is stopped."""
        self._stopped.wait(seconds)

    def remaining(self) -> float:
        """Return the seconds left: 0 after `stop`, infinity before."""
        return 0.0 if self._stopped.is_set() else math.inf

    def stop(self) -> None:
        """End the worker's time."""
        self._stopped.set()
