"""Threads, locks and time of the simulation: what the product finds under their usual names.

Only locks, conditions, threads and the executor's pool are written here, as far as the product uses
them. The rest is the standard library's own code over these.
"""

import concurrent.futures
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tests.simulation.world import Fiber, ProcessDiedError, current, is_over

T = TypeVar("T")


@dataclass(eq=False)
class Waiters:
    """Fibers that wait for the same thing, the longest first."""

    _fibers: deque[Fiber] = field(default_factory=deque)

    def wait(self, seconds: float | None = None) -> bool:
        fiber = current()
        self._fibers.append(fiber)
        try:
            return fiber.scheduler.park(seconds)
        finally:
            if fiber in self._fibers:
                self._fibers.remove(fiber)

    def wake(self, count: float = math.inf) -> None:
        while self._fibers and count > 0:
            fiber = self._fibers.popleft()
            fiber.scheduler.unpark(fiber)
            count -= 1


@dataclass(eq=False)
class Lock:
    """`threading.Lock`; threads may take turns at it, if that is explored."""

    _held: bool = False
    _waiters: Waiters = field(default_factory=Waiters)

    def __enter__(self) -> None:
        if not is_over() and current().scheduler.preemptive:
            current().scheduler.pause()
        while self._held:
            self._waiters.wait()
        self._held = True

    def __exit__(self, *raised: object) -> None:
        self._held = False
        self._waiters.wake(1)


class Condition:
    """`threading.Condition`; a waiter goes on only where it was notified or its time is over."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiters = Waiters()
        self.notify_all = self._waiters.wake

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._lock.__exit__()

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.__exit__()
        try:
            return self._waiters.wait(timeout)
        finally:
            self._lock.__enter__()


class Event(threading.Event):
    """`threading.Event`."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition()


class SimpleQueue(queue.Queue[T]):
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        super().__init__()
        self.not_empty = self.not_full = Condition()  # type: ignore[assignment]  # as far as it is used


class Thread:
    """`threading.Thread`: a fiber of the process that starts it."""

    def __init__(
        self,
        target: Callable[..., object],
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,  # noqa: FBT001 - as its namesake
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._target = partial(target, *args)
        self._ended = Event()

    def start(self) -> None:
        current().scheduler.spawn(current().process, self._run)

    def join(self, timeout: float | None = None) -> None:
        if not is_over():
            self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()


class ThreadPoolExecutor(concurrent.futures.Executor):
    """`concurrent.futures.ThreadPoolExecutor`, whose threads end when nothing waits."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._free = max_workers
        self._name = thread_name_prefix
        self._waiting: deque[tuple[concurrent.futures.Future[Any], Callable[[], Any]]] = deque()
        self._threads: list[Thread] = []

    def submit(
        self, fn: Callable[..., T], /, *args: Any, **named: Any
    ) -> concurrent.futures.Future[T]:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        vars(future)["_condition"] = Condition()
        self._waiting.append((future, partial(fn, *args, **named)))
        if self._free:
            self._free -= 1
            self._threads.append(Thread(self._work, self._name))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as its namesake
        """Take no more calls; wait for those that were begun."""
        for future, _ in self._waiting if cancel_futures else ():
            future.cancel()
        with suppress(ProcessDiedError):  # a generator that is closed cannot pass it on
            for thread in self._threads if wait else ():
                thread.join()

    def _work(self) -> None:
        while self._waiting:
            future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except ProcessDiedError:
                raise
            except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
                future.set_exception(error)
        self._free += 1
