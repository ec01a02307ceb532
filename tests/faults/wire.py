"""A wire of so many bytes a second, for measurements in which bandwidth is the limit."""

import threading
import time


class Link:
    """Who comes later waits for who came before."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0

    def carry(self, size: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))
