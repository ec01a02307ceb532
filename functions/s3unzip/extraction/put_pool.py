"""PUTs in flight, bounded by their count and by their bytes."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from s3unzip.errors import S3UnzipError

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.stores.ports import Buffer

T = TypeVar("T")


class PutPool(Generic[T]):
    """Threads that hand bodies to `put`; `submit` waits while too much is in flight.

    Plain threads on a queue, not futures: at 10,000 members a second the
    bookkeeping of a future costs as much as the member. The first error of
    `put` ends the pool: what is queued is dropped and `submit` or `close`
    raises it.
    """

    def __init__(self, put: Callable[[T, Buffer], None], threads: int, max_bytes: int) -> None:
        self._put = put
        self._queue: SimpleQueue[tuple[T, Buffer] | None] = SimpleQueue()
        self._max_bytes = max_bytes
        self._max_waiting = 4 * threads
        self._awaited: int | None = None  # bytes of the body that `submit` waits with
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

    def submit(self, item: T, body: Buffer) -> None:
        """Queue one PUT; wait for room first. One body may always go, whatever its size."""
        size = len(body)
        with self._lock:
            if self._waiting >= self._max_waiting or self._bytes + size > self._max_bytes:
                self._wait_for_room(size)
            if self._error is not None:
                raise self._error
            self._bytes += size
            self._waiting += 1
        self._queue.put((item, body))

    def _wait_for_room(self, size: int) -> None:
        """Wait until half of what may be in flight is done.

        Half, not one: to be woken after every PUT for one member costs two
        changes of thread, which is more than the member itself.
        """
        self._awaited = size
        while self._error is None and not self._has_room(size):
            self._changed.wait()
        self._awaited = None

    def _has_room(self, size: int) -> bool:
        return not self._waiting or (
            self._waiting <= self._max_waiting // 2 and self._bytes + size <= self._max_bytes // 2
        )

    def close(self) -> None:
        """Wait for all that was submitted.

        Raises:
            S3UnzipError: the first error of a PUT.
        """
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Drop what is queued and wait for the PUTs that are on the wire."""
        with self._lock:
            if self._error is None:
                self._error = S3UnzipError("abandoned")
            self._changed.notify_all()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            item, body = entry
            try:
                if self._error is None:
                    self._put(item, body)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that submits
                with self._lock:
                    self._error = self._error or error
            finally:
                size = len(body)
                del entry, body
                with self._lock:
                    self._bytes -= size
                    self._waiting -= 1
                    if self._awaited is not None and (
                        self._error is not None or self._has_room(self._awaited)
                    ):
                        self._changed.notify()
