"""PUTs in flight: threads that write small bodies, and a bound on the bytes in memory.

It has plain threads on a queue, not futures: at 10,000 members a second the bookkeeping of a future
costs as much as the member. Rules:

* One thread submits, and then closes or abandons the pool; it may abandon a closed one.
* `submit` waits while too many bytes or bodies are in flight. One body is always accepted.
* The first error of `put` ends the pool: queued bodies are dropped, and `submit` or `close` raises
  the error.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from s3unzip import errors
from s3unzip.stores.ports import Buffer

T = TypeVar("T")


class PutPool(Generic[T]):
    """Threads that hand bodies to `put`.

    Args:
        put: writes one body; each thread calls it.
        threads: PUTs at the same time.
        max_bytes: of the bodies that are queued or being written.
    """

    def __init__(self, put: Callable[[T, Buffer], None], threads: int, max_bytes: int) -> None:
        self._put = put
        self._queue: SimpleQueue[tuple[T, Buffer] | None] = SimpleQueue()
        self._max_bytes = max_bytes
        self._max_waiting = 4 * threads
        self._awaited: int | None = None  # bytes of the body for which `submit` waits
        self._bytes = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"put-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, ready: T, body: Buffer) -> None:
        """Wait until there is room, then queue one PUT."""
        size = len(body)
        with self._lock:
            if self._waiting >= self._max_waiting or self._bytes + size > self._max_bytes:
                self._wait_for_room(size)
            if self._error is not None:
                raise self._error
            self._bytes += size
            self._waiting += 1
        self._queue.put((ready, body))

    def _wait_for_room(self, size: int) -> None:
        """Wait until at most half of the bytes and bodies are in flight.

        To wake after each PUT would cost two thread switches for one member, which is more than the
        member itself.
        """
        self._awaited = size
        while self._error is None and not self._has_room(size):
            self._changed.wait()
        self._awaited = None

    def _has_room(self, size: int) -> bool:
        """Return whether a waiting `submit` may go on; with nothing in flight, any body fits."""
        return not self._waiting or (
            self._waiting <= self._max_waiting // 2 and self._bytes + size <= self._max_bytes // 2
        )

    def close(self) -> None:
        """Wait for all submitted bodies."""
        self._end()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Drop the queued bodies and wait for the PUTs on the wire."""
        with self._lock:
            if self._error is None:
                self._error = errors.S3UnzipError("abandoned")
            self._changed.notify_all()
        self._end()

    def _end(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        for queued in iter(self._queue.get, None):  # `_end` puts None into the queue
            ready, body = queued
            try:
                if self._error is None:
                    self._put(ready, body)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that submits
                with self._lock:
                    self._error = self._error or error
            size = len(body)
            del queued, body  # its memory is free before `submit` takes another body
            with self._lock:
                self._bytes -= size
                self._waiting -= 1
                if self._awaited is not None and (
                    self._error is not None or self._has_room(self._awaited)
                ):
                    self._changed.notify()
