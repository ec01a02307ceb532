"""The workers of runs on this machine: this process and others, which each do one task at a time.

Rules:

* The first worker is a thread of this process. Each further worker is another Python process.
* A thread of this process sends tasks to the standard input of a worker process. By its standard
  output the worker says what the tasks count and how they end, and asks for the keys that requests
  are signed with.
* A killed worker process costs its own task an attempt. It starts again with the next task.
* A worker process whose standard input ends, because the program did, ends at once. Another pipe
  ends it even if a thread holds the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError, is_out_of_memory
from s3unzip.extraction.task import run_task
from s3unzip.local.logs import start_logging
from s3unzip.local.open_uploads import OpenUploads
from s3unzip.local.processors import tune_allocator, yield_to_others
from s3unzip.model import Outcome, Run, Task
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import open_stores
from s3unzip.stores.ports import AskForKeys, Keys, KeysRequest
from s3unzip.zip import Policy

_log = logging.getLogger("s3unzip.workers")

DEATH_SECONDS = 1.0  # from the end of a process's output until its exit code
NO_MEMORY_LEFT = "Linux kills processes when memory runs out: give fewer --workers"
MAX_DEATHS = 5  # of workers in a row, before any task ends
TROUBLE_SECONDS = 30.0  # until the same line is shown again
LOOK_SECONDS = 0.5  # between two questions whether another process stopped the run
WORKER_STOP_SECONDS = 20.0  # time for a stopped worker to write its outcomes
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # of a terminal: the program acts on them
PROGRAM = "from s3unzip.local.workers import work; work({lifeline})"
NO_MEMORY = "its worker has no memory left: use fewer --workers, or raise the limit (ulimit -v)"
DEATHS = (EOFError, OSError, pickle.UnpicklingError)  # what a pipe from the dead raises
OpenContext = Callable[[LocalClock, Progress, AskForKeys | None], Context]  # picklable


def open_context(
    config: StoreConfig,
    policy: Policy,
    tuning: Tuning,
    clock: LocalClock,
    progress: Progress | None,
    ask: AskForKeys | None = None,
) -> Context:
    """Return the context of this process; its stores are opened when they are first asked for."""
    start_logging()
    stores = open_stores(config, ask=ask)
    uploads = None
    if config.work.store.is_local:
        uploads = OpenUploads(config.work.key)
    return Context(
        stores, clock, policy, tuning, progress=progress, reached=config, uploads=uploads
    )


class Counted(Struct, frozen=True):
    """What a task counted since its last message."""

    counts: Mapping[str, int] = {}
    failed: Sequence[Outcome] = ()
    trouble: str = ""  # a store does not answer


class Ended(Struct, frozen=True):
    """How one attempt of a task ended."""

    error: S3UnzipError | None = None
    lost: bool = False  # what it counted is not on record
    died: bool = False  # its worker did


class KeysAnswer(Struct, frozen=True):
    """The program's answer to a worker that asks for keys."""

    keys: Keys | None = None
    error: S3UnzipError | None = None


class Counting(Progress):
    """The progress of a worker: it sends what a task counts, from any thread, one at a time."""

    def __init__(self, send: Callable[[Counted], object] = lambda _: None) -> None:
        self.send = send
        self.lock = threading.Lock()

    def _send(self, message: Counted) -> None:
        with self.lock:
            self.send(message)

    def finished(self, counts: Mapping[str, int]) -> None:
        """Send increments."""
        self._send(Counted(dict(counts)))

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Send members that failed."""
        self._send(Counted(failed=outcomes))

    def trouble(self, message: str) -> None:
        """Send a line about a store that does not answer."""
        self._send(Counted(trouble=message))


class WorkerTally:
    """Passes what tasks count on to the progress of the program, which never goes back.

    What a lost attempt counted is taken out of the sum, and the progress hears of the sum again
    when it is higher than before.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or Progress()
        self._sum: Counter[str] = Counter()  # of all attempts but the lost ones
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
            self._sum = Counter(counts)
            self._tell()

    def take(self, attempt: Counter[str], message: Counted) -> None:
        """Take what an attempt of a task counted, and add it to the sum of the attempt."""
        with self._lock:
            if message.trouble:
                self._tell_trouble(message.trouble)
            attempt.update(message.counts)
            self._sum.update(message.counts)
            self._tell()
            fresh = [outcome for outcome in message.failed if outcome.key not in self._failed]
            if fresh:
                self._failed.update(outcome.key for outcome in fresh)
                self._progress.failed(fresh)

    def lose(self, attempt: Counter[str]) -> None:
        """Subtract what a lost attempt counted: it is not on record."""
        with self._lock:
            self._sum.subtract(attempt)

    def _tell(self) -> None:
        new = self._sum - self._told  # what is higher than ever before
        self._told.update(new)
        if new:
            self._progress.finished(new)

    def _tell_trouble(self, message: str) -> None:
        """Pass a line on, once for all workers: they meet the same store."""
        about = message.partition(" (")[0].partition(", retrying")[0]  # not the cause
        since = time.monotonic() - self._troubles.get(about, -math.inf)
        if since > TROUBLE_SECONDS:
            self._troubles[about] = time.monotonic()
            self._progress.trouble(message)


class Workers:
    """Does the tasks of runs; a context manager that ends the processes.

    Args:
        processes: workers at most, with this process.
        context: of this process; its progress takes what the tasks count.
        open_context: called once in each further process; None: there is none.
    """

    def __init__(
        self, processes: int, context: Context, open_context: OpenContext | None = None
    ) -> None:
        self.processes = processes if open_context is not None else 1
        self._context = context
        self._open_context = open_context
        self.tally = WorkerTally(context.progress)
        self._workers: list[_Here | _Process] = []

    def __enter__(self) -> Self:
        return self

    def close(self, *_: object) -> None:
        """End the idle workers."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    __exit__ = close

    def do_all(
        self,
        run: Run,
        tasks: Sequence[Task],
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        at_once: int,
    ) -> ServiceFaultError | None:
        """Do each task once; what a service fault leaves of one is for the next round.

        An error that ends the run is on record, and tasks that have not begun stay undone.

        Args:
            run: the run.
            tasks: of one round.
            is_stopped: called now and then: whether another process stopped the run.
            at_once: workers at most.

        Returns:
            The fault that must end the run: of a store that was given up, or of workers that die.

        Raises:
            KeyboardInterrupt: Ctrl-C, or the run was stopped. The workers have written their
                outcomes.
        """
        todo = _Round(tasks, max(2, self.processes))
        workers = self._take_workers(max(1, min(self.processes, len(tasks), at_once)))
        flying: list[Future[None]] = []
        try:
            for worker in workers:
                flying.append(Future())
                self._start(worker, run, todo, flying[-1])
            running = set(flying)
            while running:
                ended, running = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    future.result()
                if running and is_stopped():
                    raise KeyboardInterrupt  # noqa: TRY301 - the same end as by Ctrl-C
                if todo.end is not None and running:
                    self._stop(workers, flying)  # they would wait for the store as long again
                    break
        except BaseException:
            todo.drop()
            self._stop(workers, flying)
            raise
        return todo.end or todo.gave_up

    def _stop(self, workers: Sequence[_Here | _Process], flying: Sequence[Future[None]]) -> None:
        """Let workers write the outcomes of their tasks, and end them."""
        for worker in workers:
            worker.stop()
        wait(flying, WORKER_STOP_SECONDS)
        self.close()

    def _take_workers(self, count: int) -> list[_Here | _Process]:
        """Return `count` workers at most; processes start when they get their first task."""
        if not self._workers:
            self._workers = [_Here(self._context)]
        if self._open_context is not None:
            missing = count - len(self._workers)
            self._workers += [_Process(self._open_context) for _ in range(missing)]
        return self._workers[:count]

    def _start(
        self, worker: _Here | _Process, run: Run, todo: _Round, future: Future[None]
    ) -> None:
        """Start a thread that does tasks with `worker`; it ends `future`.

        It is no executor's thread: Ctrl-C while an executor starts one would let the exit wait.
        """
        arguments = (worker, run, todo, future)
        thread = threading.Thread(target=self._work, args=arguments, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no memory for its stack: the thread ends no future
            future.set_exception(error)

    def _work(self, worker: _Here | _Process, run: Run, todo: _Round, future: Future[None]) -> None:
        """Let one worker do task after task; a dead one starts again."""
        # Signals of a terminal are the main thread's. A process that is started here inherits it.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            while (task := todo.take()) is not None:
                attempt = Counter[str]()
                ended = worker.do(run, task, partial(self.tally.take, attempt))
                if ended.lost:
                    self.tally.lose(attempt)
                todo.ended(task, ended)
        except BaseException as error:  # noqa: BLE001 - `do_all` raises it
            future.set_exception(error)
        else:
            future.set_result(None)


class _Round:
    """The tasks of one round that have not begun; threads may share it."""

    def __init__(self, tasks: Sequence[Task], max_faults: int) -> None:
        self._tasks = list(reversed(tasks))
        self._max_faults = max_faults  # attempts in a row that a fault ended
        self._faults = 0
        self._deaths = 0  # workers in a row that died
        self._is_over = False
        self._lock = threading.RLock()
        self.end: ServiceFaultError | None = None  # what must end the run at once
        self.gave_up: ServiceFaultError | None = None  # the same, when the other tasks have ended

    def take(self) -> Task | None:
        """Return the next task; None if none is left."""
        with self._lock:
            if not self._tasks:
                return None
            return self._tasks.pop()

    def drop(self, end: ServiceFaultError | None = None) -> None:
        """Drop the tasks that have not begun; `end`: the fault that must end the run."""
        with self._lock:
            self._tasks = []
            self._is_over = True
            self.end = end or self.end

    def ended(self, task: Task, ended: Ended) -> None:
        """Note how an attempt of a task ended; repeat it if its worker died.

        The round ends early for an error of the whole run, a store that is down, too many faults in
        a row, or too many deaths in a row.
        """
        with self._lock:
            error = ended.error
            if error is None:  # both are counted in a row
                self._faults = 0
                self._deaths = 0
                return
            _log.info("%s did not end: %s", task.id, error)
            if not isinstance(error, ServiceFaultError):
                self.drop()  # it is on record, and the other tasks need not begin
                return
            # Another round would wait for the store as long again.
            if error.gave_up:
                self.gave_up = error
            self._deaths += ended.died
            self._faults += not ended.lost
            if ended.died and not self._is_over:
                self._tasks.append(task)
            if self._deaths > MAX_DEATHS or self._faults >= self._max_faults or error.is_down:
                self.drop(error)


class _Here:
    """A worker that is a thread of this process."""

    def __init__(self, context: Context) -> None:
        self._clock = LocalClock(context.clock)
        self._counting = Counting()
        # The program's stores have connections. Another budget warns by way of the tally.
        self._context = replace(context, clock=self._clock, progress=self._counting, faults=None)

    def do(self, run: Run, task: Task, take: Callable[[Counted], object]) -> Ended:
        """Do an attempt of a task."""
        yield_to_others()
        self._counting.send = take
        return _do_task(run, task, self._context)

    def stop(self) -> None:
        """Let the task that runs write its outcomes."""
        self._clock.stop()

    def close(self) -> None:
        """Do nothing: there is no process."""


class _Process:
    """A worker that is a process; it starts with its first task, and again after its death."""

    def __init__(self, open_context: OpenContext) -> None:
        self._open_context = open_context
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1  # the end of a pipe that only this program holds

    def do(self, run: Run, task: Task, take: Callable[[Counted], object]) -> Ended:
        """Let the process do an attempt of a task."""
        for message in self._ask(run, task):
            if isinstance(message, Ended):
                return message
            if isinstance(message, KeysRequest):
                self._answer(message)
            else:
                take(message)
        fault = ServiceFaultError(f"{task.id}: its worker process died{self._killed_by()}")
        self.close()
        return Ended(fault, lost=True, died=True)

    def _killed_by(self) -> str:
        """Return why the process died, if the kernel killed it; else nothing."""
        if self._process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(DEATH_SECONDS) == -signal.SIGKILL:
                return f" (killed by SIGKILL): {NO_MEMORY_LEFT}"
        return ""

    def _answer(self, request: KeysRequest) -> None:
        """Send the keys that the process asks for."""
        from s3unzip.stores.s3.credentials import answer_worker  # noqa: PLC0415 - few need it

        try:
            answer = KeysAnswer(answer_worker(request))
        except S3UnzipError as failure:
            answer = KeysAnswer(error=failure)
        with contextlib.suppress(*DEATHS):
            _send(cast("subprocess.Popen[bytes]", self._process), answer)

    def _ask(self, run: Run, task: Task) -> Iterator[Counted | KeysRequest | Ended]:
        """Send a task; yield the messages about it, until the process dies."""
        with contextlib.suppress(*DEATHS):
            if self._process is None:
                lifeline, self._lifeline = os.pipe()
                try:
                    self._process = _start_process(lifeline)
                finally:
                    os.close(lifeline)
                _send(self._process, self._open_context)
            answers = cast("BinaryIO", self._process.stdout)
            _send(self._process, (run, task))
            while True:
                yield pickle.load(answers)  # noqa: S301 - our own

    def stop(self) -> None:
        """Let the task that runs write its outcomes; `close` kills it if it does not end."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                _send(self._process, None)

    def close(self) -> None:
        """End the process and wait until it has exited."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._lifeline >= 0:  # a process that could not start has left one, too
            os.close(self._lifeline)
            self._lifeline = -1


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    messages = cast("BinaryIO", process.stdin)
    messages.write(pickle.dumps(message))
    messages.flush()


def _start_process(lifeline: int) -> subprocess.Popen[bytes]:
    """Start a Python that finds the same modules as this one, and ends when `lifeline` closes."""
    search_path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return subprocess.Popen(  # noqa: S603 - this very Python
        # -P: not what the working directory has
        [sys.executable, "-P", "-c", PROGRAM.format(lifeline=lifeline)],
        pass_fds=[lifeline],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search_path},
    )


def _do_task(run: Run, task: Task, context: Context) -> Ended:
    """Do one attempt of a task; an error of the project is a value, because others go on."""
    over = threading.Event()
    threading.Thread(target=_watch, args=(run, context, over), daemon=True).start()
    try:
        run_task(run, task, context)
    except S3UnzipError as failure:
        return Ended(failure)
    except (MemoryError, RuntimeError) as failure:
        if not is_out_of_memory(failure):
            raise
        return Ended(ServiceFaultError(f"{task.id}: {NO_MEMORY}"), lost=True)
    finally:
        over.set()
    return Ended()


def _watch(run: Run, context: Context, over: threading.Event) -> None:
    """Report a silent store to the progress: its calls may wait for minutes before they fail."""
    faults = context.faults
    progress = context.progress
    if faults is None or progress is None:
        return
    connections = ""
    if context.reached is not None:
        connections = f" ({' '.join(context.reached.recorded().words())})"
    while not over.wait(1.0):
        for store in faults.silent(context.clock.now()):
            location = run.source if store == "source" else run.destination
            progress.trouble(
                f"no answer from {location}{connections} for seconds: a slow link, or a dead store"
            )


# In a worker process -----------------------------------------------------------------------


def work(lifeline: int) -> None:
    """Do the tasks that come by standard input until it ends."""
    _die_with(lifeline)
    answers = os.fdopen(os.dup(1), "wb")
    with contextlib.suppress(OSError):  # standard error is closed
        os.dup2(2, 1)  # what a library prints is not a message
    tune_allocator()
    yield_to_others()
    clock = LocalClock()
    counting = Counting()

    def send(message: Counted | KeysRequest | Ended) -> None:
        with contextlib.suppress(BrokenPipeError):  # the program has ended
            pickle.dump(message, answers)
            answers.flush()

    def ask(request: KeysRequest) -> Keys | None:
        """Return the keys that the program has; one thread asks at a time."""
        with asking:
            with counting.lock:
                send(request)
            answer = keys.get()
        if answer.error is not None:
            raise answer.error
        return answer.keys

    counting.send = send
    asking = threading.Lock()
    keys: queue.SimpleQueue[KeysAnswer] = queue.SimpleQueue()
    context: Context = _receive()(clock, counting, ask)
    tasks: queue.SimpleQueue[tuple[Run, Task]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, keys, clock), daemon=True).start()
    gc.freeze()  # no collection visits what is there from now on
    while True:
        run, task = tasks.get()
        ended = _do_task(run, task, context)
        with counting.lock:
            send(ended)


def _die_with(lifeline: int) -> None:
    """Let the kernel end this process when the other end of a pipe is closed.

    Nothing is ever written to it, so the only SIGIO is that of its end (O_ASYNC in open(2)).
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _receive() -> Any:
    """Return the next message of the program; end this process if the program has ended."""
    try:
        return pickle.load(sys.stdin.buffer)  # noqa: S301 - our own
    except DEATHS:
        os._exit(0)


def _listen(
    tasks: queue.SimpleQueue[tuple[Run, Task]],
    keys: queue.SimpleQueue[KeysAnswer],
    clock: LocalClock,
) -> None:
    """Take tasks and keys; end the worker's time when the program says so, and the worker too."""
    while True:
        message = _receive()
        if message is None:
            clock.stop()
        elif isinstance(message, KeysAnswer):
            keys.put(message)
        else:
            tasks.put(message)
