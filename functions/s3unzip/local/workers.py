"""The workers of runs on this machine: processes that each do one task at a time.

They are a `ProcessPoolExecutor` whose processes a fork server starts: the program has threads, so
its own fork would hang. A killed worker breaks such a pool, and its neighbours lose an attempt:
another pool does the tasks that did not end. With one worker the tasks are done in a thread of
this process.

Two pipes connect the program to its workers. On `counts` they send what the tasks count. Each line
is one `write` of at most `PIPE_BUF` bytes, which is whole or not there, so a killed worker holds
no lock. When the program closes `stop`, each worker ends its task and writes its outcomes.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import math
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, context, forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from types import ModuleType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.local.processors import available_processors, keep_to, tune_allocator, yield_to_others
from s3unzip.model import Outcome, Run, Task, TaskKind, decode, encode
from s3unzip.settings import MIB
from s3unzip.stores.calls import LocalClock
from s3unzip.stores.ports import Clock

_log = logging.getLogger("s3unzip.workers")

FEW_BYTES = 16 * MIB  # of the only task: it is done before processes have started
MAX_LOST = 5  # pools in a row whose workers die before any task ends
TROUBLE_SECONDS = 30.0  # until the same line is shown again
STOP_SECONDS = 20.0  # time for a stopped worker to write its outcomes
NO_MEMORY = (
    "its worker has no memory left: use fewer --workers or --puts, or raise the limit (ulimit -v)"
)
OpenContext = Callable[[LocalClock, Progress], Context]  # picklable
Homes = SimpleQueue[int | None]  # the processor of each worker; None: any


class Counted(Struct, frozen=True, array_like=True):
    """What one attempt of a task counted since its last message: a line of the pipe."""

    attempt: int
    counts: dict[str, int] = {}
    failed: Outcome | None = None  # a member that failed
    trouble: str = ""  # a store does not answer


class Ended(Struct, frozen=True):
    """How one attempt of a task ended."""

    counts: Mapping[str, int]  # of the whole attempt
    error: S3UnzipError | None = None
    lost: bool = False  # what it counted is not on record


class Counting:
    """The progress of a worker: it sends what an attempt counts, and adds it up.

    Args:
        send: takes each message; called from any thread of the worker.
    """

    def __init__(self, send: Callable[[Counted], object]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._attempt = 0
        self.counts: Counter[str] = Counter()  # of this attempt

    def begin(self, attempt: int) -> None:
        """Count another attempt."""
        with self._lock:
            self._attempt, self.counts = attempt, Counter()

    def finished(self, counts: Mapping[str, int]) -> None:
        """Send increments."""
        with self._lock:
            self.counts.update(counts)
            self._send(Counted(self._attempt, dict(counts)))

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Send members that failed."""
        for outcome in outcomes:
            self._send(Counted(self._attempt, failed=outcome))

    def trouble(self, message: str) -> None:
        """Send a line about a store that does not answer."""
        self._send(Counted(self._attempt, trouble=message))

    def phase(self, name: str) -> None:
        """Do nothing: the program knows the phase."""


class Tally:
    """Passes what tasks count on to the progress of the program, which never goes back.

    What a lost attempt counted is taken out of the sum, and the progress hears of the sum again
    when it is higher than before.

    Args:
        progress: takes increments, from any thread.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._attempts = itertools.count(1)
        self._running: dict[int, Counter[str]] = {}  # by attempt
        self._recorded: Counter[str] = Counter()  # by attempts that ended
        self._told: Counter[str] = Counter()
        self._failed: set[str] = set()  # keys
        self._troubles: dict[str, float] = {}  # when each was passed on
        self._lock = threading.Lock()

    def note_recorded(self, counts: Mapping[str, int], *, new_run: bool) -> None:
        """Take what is on record of a run before one of its rounds begins."""
        with self._lock:
            if new_run:
                self._told.clear()
                self._failed.clear()
            self._recorded = Counter(counts)
            self._tell()

    def begin(self) -> int:
        """Note that an attempt of a task begins; return its number."""
        with self._lock:
            attempt = next(self._attempts)
            self._running[attempt] = Counter()
            return attempt

    def take(self, message: Counted) -> None:
        """Take what an attempt counted; an attempt that is over counts no more."""
        with self._lock:
            counts = self._running.get(message.attempt)
            if message.trouble:
                self._tell_trouble(message.trouble)
            elif counts is not None:
                counts.update(message.counts)
                self._tell(message.failed)

    def end(self, attempt: int, ended: Ended) -> None:
        """Take all that an attempt counted, if it is on record."""
        with self._lock:
            del self._running[attempt]
            if not ended.lost:
                self._recorded.update(ended.counts)
            self._tell()

    def _tell(self, failed: Outcome | None = None) -> None:
        total = sum(self._running.values(), Counter(self._recorded))
        new = total - self._told  # what is higher than ever before
        self._told.update(new)
        if self._progress is None:
            return
        if new:
            self._progress.finished(new)
        if failed is not None and failed.key not in self._failed:
            self._failed.add(failed.key)
            self._progress.failed([failed])

    def _tell_trouble(self, message: str) -> None:
        """Pass a line on, once for all workers: they meet the same store."""
        about = message.partition(" (")[0].partition(", retrying")[0]  # not the cause
        since = time.monotonic() - self._troubles.get(about, -math.inf)
        if since > TROUBLE_SECONDS and self._progress is not None:
            self._troubles[about] = time.monotonic()
            self._progress.trouble(message)


class Workers:
    """Does the tasks of runs; a context manager that ends the processes.

    Args:
        here: the context of this process; its progress takes what the tasks count.
        open_context: called once for each worker; None: the tasks are done with `here`.
        modules: imported once, before the first process starts.
    """

    def __init__(
        self,
        processes: int,
        here: Context,
        open_context: OpenContext | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        self.processes = processes if open_context is not None else 1
        self._here = here
        self._open_context = open_context
        self._modules = [__name__, *modules]
        self._tally = Tally(here.progress)
        self._pool: _Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait until the idle workers have exited."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def note_recorded(self, counts: Mapping[str, int], *, new_run: bool) -> None:
        """Tell the progress what is on record of a run before one of its rounds begins."""
        self._tally.note_recorded(counts, new_run=new_run)

    def do_all(self, run: Run, tasks: Iterable[Task]) -> ServiceFaultError | None:
        """Do each task once; what a service fault leaves of one is for the next round.

        An error that ends the run is on record: tasks that have not begun stay undone. On Ctrl-C
        the workers stop and write their outcomes, and KeyboardInterrupt propagates.

        Returns:
            The fault that must end the run, because a store or the workers fail again and again;
            None if there is none.
        """
        batch = _Round(iter(tasks))
        try:
            while True:
                self._hand_out(run, batch)
                if not batch.flying:
                    return batch.end
                for future in wait(batch.flying, return_when=FIRST_COMPLETED).done:
                    self._take(batch, future)
                if batch.broken:
                    self._replace_pool(batch)
        except BaseException:
            if self._pool is not None:
                self._pool.stop(batch.flying)
                self._pool = None
            raise

    def _hand_out(self, run: Run, batch: _Round) -> None:
        """Submit tasks: one more than there are workers, so that none waits for its next one."""
        room = self.processes + 1 - len(batch.flying)
        tasks = batch.take(room)
        if not tasks:
            return
        pool = self._open_pool(tasks)
        for task in tasks:
            attempt = self._tally.begin()
            try:
                batch.flying[pool.submit(run, task, attempt)] = task, attempt
            except BrokenProcessPool:
                self._tally.end(attempt, Ended({}, lost=True))
                batch.broken = True
                batch.again.append(task)
        if batch.broken and not batch.flying:
            self._replace_pool(batch)
            self._hand_out(run, batch)

    def _open_pool(self, tasks: Sequence[Task]) -> _Pool:
        """Return the pool; the first one that is needed is a thread if there is little to do."""
        few = len(tasks) == 1 and tasks[0].size <= FEW_BYTES
        if isinstance(self._pool, _Thread) and self.processes > 1 and not few:
            self.close()
        if self._pool is None:
            opening = self._open_context
            if opening is None or few or self.processes == 1:
                self._pool = _Thread(self._here, opening, self._tally)
            else:
                self._pool = _Processes(self.processes, opening, self._modules, self._tally)
        return self._pool

    def _take(self, batch: _Round, future: Future[Ended]) -> None:
        """Note how an attempt of a task ended."""
        task, attempt = batch.flying.pop(future)
        try:
            ended = future.result()
        except BrokenProcessPool:
            ended = Ended({}, ServiceFaultError(f"{task.id}: its worker process died"), lost=True)
            batch.again.append(task)
            batch.broken = True
        self._tally.end(attempt, ended)
        if ended.error is None:
            batch.lost = batch.faults = 0
        elif not isinstance(ended.error, ServiceFaultError):
            batch.drop()  # it is on record, and the other tasks need not begin
        else:
            _log.info("%s did not end: %s", task.id, ended.error)
            batch.fault = ended.error
            batch.faults += not ended.lost
            if batch.faults >= max(2, self.processes):
                batch.drop(batch.fault)

    def _replace_pool(self, batch: _Round) -> None:
        """Give the tasks of a broken pool to another one, unless too many in a row broke."""
        for future in wait(batch.flying).done:
            self._take(batch, future)
        self.close()
        batch.broken = False
        batch.lost += 1
        if batch.lost > MAX_LOST:
            batch.drop(batch.fault)


class _Round:
    """The tasks of one round that have not ended."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self.again: list[Task] = []  # whose workers died
        self.flying: dict[Future[Ended], tuple[Task, int]] = {}  # with the number of the attempt
        self.fault: ServiceFaultError | None = None  # the last one
        self.end: ServiceFaultError | None = None  # what must end the run
        self.broken = False  # whether the pool is
        self.faults = 0  # attempts in a row that a fault ended
        self.lost = 0  # pools in a row that broke

    def take(self, count: int) -> list[Task]:
        """Return the next tasks, at most `count`."""
        first, self.again = self.again[:count], self.again[count:]
        return first + list(itertools.islice(self._tasks, count - len(first)))

    def drop(self, end: ServiceFaultError | None = None) -> None:
        """Drop the tasks that have not begun; `end`: the fault that must end the run."""
        self._tasks, self.again = iter(()), []
        self.end = end or self.end


class _Thread:
    """A thread of this process does the tasks, one after the other."""

    def __init__(self, here: Context, open_context: OpenContext | None, tally: Tally) -> None:
        self._clock = _StoppableClock(here.clock)
        self._counting = Counting(tally.take)
        if open_context is None:
            self._context = replace(here, clock=self._clock, progress=self._counting)
        else:
            self._context = open_context(self._clock, self._counting)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="worker")

    def submit(self, run: Run, task: Task, attempt: int) -> Future[Ended]:
        """Do an attempt of a task."""
        return self._executor.submit(_do_task, run, task, attempt, self._context, self._counting)

    def stop(self, flying: Iterable[Future[Ended]]) -> None:
        """Let the task that runs write its outcomes."""
        self._clock.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)
        wait(flying, STOP_SECONDS)

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown()


class _StoppableClock(LocalClock):
    """A clock that can be stopped for the tasks alone, not for what the program does after."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> float:
        """Return Unix seconds."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait, unless the clock is stopped."""
        if self.remaining() > 0:
            self._clock.sleep(seconds)

    def remaining(self) -> float:
        """Return the seconds left; 0 after `stop`."""
        return min(super().remaining(), self._clock.remaining())


class _Process(context.ForkServerProcess):
    """A process that does not import the program's main module: a script needs no guard."""

    def start(self) -> None:
        """Start it."""
        with _hidden_main():
            super().start()


class _Context(context.ForkServerContext):
    Process = _Process


class _Processes:
    """A pool of processes, and the pipes to them."""

    def __init__(
        self, processes: int, open_context: OpenContext, modules: list[str], tally: Tally
    ) -> None:
        self._tally = tally
        self._counts, sending = connection.Pipe(duplex=False)
        stopping, self._stop = connection.Pipe(duplex=False)
        self._theirs = (sending, stopping)
        system = _Context()
        _start_fork_server(system, modules)
        homes = system.SimpleQueue()
        everywhere = available_processors()
        for number in range(processes):
            # With spare processors, the scheduler knows best which ones other programs leave idle.
            homes.put(
                everywhere[number % len(everywhere)] if processes >= len(everywhere) else None
            )
        self._executor = ProcessPoolExecutor(
            processes, system, _begin_work, (open_context, homes, sending, stopping)
        )
        self._reader = threading.Thread(target=self._read_counts, name="counts", daemon=True)
        self._reader.start()

    def submit(self, run: Run, task: Task, attempt: int) -> Future[Ended]:
        """Do an attempt of a task in one of the processes."""
        return self._executor.submit(_do_in_worker, run, task, attempt)

    def stop(self, flying: Iterable[Future[Ended]]) -> None:
        """Let the workers write their outcomes; they end within `STOP_SECONDS`."""
        self._stop.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        wait(flying, STOP_SECONDS)
        self.close()

    def close(self) -> None:
        """Wait until the processes have exited, and all that they sent is read."""
        self._executor.shutdown()
        for end in (*self._theirs, self._stop):
            end.close()
        self._reader.join(STOP_SECONDS)
        self._counts.close()

    def _read_counts(self) -> None:
        with open(self._counts.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self._tally.take(decode(line, Counted))


_Pool = _Thread | _Processes


def _start_fork_server(system: _Context, modules: list[str]) -> None:
    """Start the fork server if it does not run; a terminal's Ctrl-C and hang-up are not for it."""
    system.set_forkserver_preload(modules)
    # Of a killed program the tracker would print which semaphores it removes.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    resource_tracker.ensure_running()  # beforehand, because it unblocks the signals
    sys.warnoptions.pop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        with _hidden_main():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the main module from `multiprocessing`, which would import it in each process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# In a worker process -----------------------------------------------------------------------


class _Worker:
    """What a worker process has."""

    def __init__(
        self,
        open_context: OpenContext,
        homes: Homes,
        counts: Connection,
        stop: Connection,
    ) -> None:
        clock = LocalClock()
        threading.Thread(target=_watch, args=(stop, clock), daemon=True).start()
        self._counts = counts
        self.counting = Counting(self._send)
        self.everywhere = available_processors()
        home = homes.get()
        self.home = self.everywhere if home is None else [home]
        self.context = open_context(clock, self.counting)

    def _send(self, message: Counted) -> None:
        line = encode(message) + b"\n"
        if len(line) <= select.PIPE_BUF:  # the report has what is longer
            with contextlib.suppress(OSError):  # the program has ended
                os.write(self._counts.fileno(), line)


_worker: _Worker | None = None


def _begin_work(
    open_context: OpenContext, homes: Homes, counts: Connection, stop: Connection
) -> None:
    """Prepare a worker process for its first task."""
    global _worker  # noqa: PLW0603 - an initializer of an executor has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tune_allocator()
    yield_to_others()
    _worker = _Worker(open_context, homes, counts, stop)
    gc.freeze()  # no collection visits what is there from now on


def _watch(stop: Connection, clock: LocalClock) -> None:
    """End the worker's time when the program says so, and the worker when the program ends."""
    parent = multiprocessing.parent_process()
    ends = [] if parent is None else [parent.sentinel]
    if stop in connection.wait([stop, *ends]):
        clock.stop()
        connection.wait(ends, STOP_SECONDS)
    os._exit(1)


def _do_in_worker(run: Run, task: Task, attempt: int) -> Ended:
    """Do a task in this worker process."""
    assert _worker is not None  # noqa: S101 - the initializer ran
    # The work of a batch is in one thread, which holds the interpreter's lock. Several threads
    # inflate, hash and send a large member.
    keep_to(_worker.home if task.kind is TaskKind.BATCH else _worker.everywhere)
    return _do_task(run, task, attempt, _worker.context, _worker.counting)


def _do_task(run: Run, task: Task, attempt: int, context: Context, counting: Counting) -> Ended:
    """Do one attempt of a task; an error of the project is a value, because others go on."""
    counting.begin(attempt)
    error: S3UnzipError | None = None
    try:
        run_task(run, task, context)
    except S3UnzipError as failure:
        error = failure
    except (MemoryError, RuntimeError) as failure:
        if not (isinstance(failure, MemoryError) or "can't start new thread" in str(failure)):
            raise
        return Ended({}, ServiceFaultError(f"{task.id}: {NO_MEMORY}"), lost=True)
    return Ended(dict(counting.counts), error)
