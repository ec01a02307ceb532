"""Threads, locks and time of the simulation: what the product finds under their usual names.

Each behaves as its namesake of the standard library, as far as the product uses it.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

from tests.simulation.scheduler import Fiber, ProcessDiedError, Scheduler

T = TypeVar("T")


class Waiters:
    """Fibers that wait for the same thing, the longest first."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._fibers: deque[Fiber] = deque()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait to be woken; return False where the time was over first."""
        fiber = self._scheduler.current()
        self._fibers.append(fiber)
        try:
            return self._scheduler.park(seconds)
        finally:
            if fiber in self._fibers:
                self._fibers.remove(fiber)

    def wake(self, count: float = math.inf) -> None:
        """Wake so many of them."""
        while self._fibers and count > 0:
            self._scheduler.unpark(self._fibers.popleft())
            count -= 1


class Lock:
    """`threading.Lock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiters = Waiters(scheduler)

    def acquire(self) -> bool:
        """Wait until the lock is free, and take it."""
        self._scheduler.take_turns()
        while self._held:
            self._waiters.wait()
        self._held = True
        return True

    def release(self) -> None:
        """Free the lock."""
        assert self._held, "released, but not held"
        self._held = False
        self._waiters.wake(1)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self._held = False
        self._waiters.wake(1)


class Condition:
    """`threading.Condition`; a waiter goes on only where it was notified or its time is over."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._lock = lock or Lock(scheduler)
        self._waiters = Waiters(scheduler)

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.__exit__(*raised)

    def wait(self, timeout: float | None = None) -> bool:
        """Free the lock, wait to be notified, and take the lock again."""
        self._lock.release()
        try:
            return self._waiters.wait(timeout)
        finally:
            self._lock.acquire()

    def notify(self, n: int = 1) -> None:
        """Wake so many of those that wait."""
        self._waiters.wake(n)

    def notify_all(self) -> None:
        """Wake all that wait."""
        self._waiters.wake()


class Event:
    """`threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters = Waiters(scheduler)

    def is_set(self) -> bool:
        """Say whether it is set."""
        self._scheduler.take_turns()
        return self._set

    def set(self) -> None:
        """Set it, and wake all that wait."""
        self._set = True
        self._waiters.wake()

    def clear(self) -> None:
        """Set it back."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it is."""
        if not self._set:
            self._waiters.wait(timeout)
        return self._set


class Thread:
    """`threading.Thread`: a fiber of the process that starts it."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str = "",
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,  # noqa: FBT001 - as its namesake
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._scheduler = scheduler
        self._target = partial(target, *args)
        self._ended = Event(scheduler)

    def start(self) -> None:
        """Begin."""
        self._scheduler.spawn(self._scheduler.current().process, self._run)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if not self._scheduler.is_over():
            self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()


class SimpleQueue(Generic[T]):
    """`queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[T] = deque()
        self._waiters = Waiters(scheduler)

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self._waiters.wake(1)
        self._scheduler.take_turns()

    def get(self) -> T:
        """Wait for an item and take it."""
        self._scheduler.take_turns()
        while not self._items:
            self._waiters.wait()
        return self._items.popleft()


class Future(Generic[T]):
    """`concurrent.futures.Future`."""

    def __init__(self, scheduler: Scheduler, call: Callable[[], T]) -> None:
        self._scheduler = scheduler
        self._call: Callable[[], T] | None = call
        self._done = Event(scheduler)
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the call, unless it was cancelled."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            self._value = call()
        except ProcessDiedError:
            raise
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = error
        self._done.set()

    def cancel(self) -> bool:
        """Say that the call is not to be begun; return whether that came in time."""
        waiting, self._call = self._call is not None, None
        return waiting

    def result(self) -> T:
        """Wait for the call's end; return its value or raise its error."""
        self._scheduler.take_turns()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set, as the call is done


class ThreadPoolExecutor:
    """`concurrent.futures.ThreadPoolExecutor`."""

    def __init__(
        self, scheduler: Scheduler, max_workers: int, thread_name_prefix: str = ""
    ) -> None:
        self._scheduler = scheduler
        self._max = max_workers
        self._waiting: deque[Future[Any]] = deque()
        self._active = 0
        self._idle = Event(scheduler)
        self._idle.set()

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Queue a call."""
        future = Future(self._scheduler, partial(call, *args))
        self._waiting.append(future)
        if self._active < self._max:
            self._active += 1
            self._idle.clear()
            self._scheduler.spawn(self._scheduler.current().process, self._work)
        return future

    def map(self, call: Callable[..., T], *items: Iterable[Any]) -> Iterator[T]:
        """Return the results of a call for each item, in order; all are begun now."""
        futures = [self.submit(call, *each) for each in zip(*items, strict=False)]

        def results() -> Iterator[T]:
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as its namesake
        """Take no more calls; wait for those that were begun."""
        if cancel_futures:
            while self._waiting:
                self._waiting.popleft().cancel()
        if wait and not self._scheduler.is_over():
            with suppress(ProcessDiedError):  # a generator that is closed cannot pass it on
                self._idle.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _work(self) -> None:
        while self._waiting:
            self._waiting.popleft().run()
        self._active -= 1
        if not self._active:
            self._idle.set()


class SimpleQueueOf:
    """Makes queues of a scheduler, also under a subscript that only types read."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __call__(self) -> SimpleQueue[Any]:
        """Return a new queue."""
        return SimpleQueue(self._scheduler)


class ClockOf:
    """The clock of a scheduler, as `s3unzip.stores.ports.Clock` has it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        """Return Unix seconds."""
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._scheduler.sleep(seconds)

    def remaining(self) -> float:
        """Return infinity."""
        return math.inf
