"""The workers of runs on this machine: this process and others, which each do one task at a time.

Rules:

* The first worker is a thread of this process. Each further worker is another Python process
  (`worker_process`), whose tasks a thread of this process sends.
* A killed worker process costs its own task an attempt. It starts again with the next task.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
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
from typing import BinaryIO, Self, cast

from msgspec.structs import replace

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.local.process_setup import yield_to_others
from s3unzip.local.worker_process import (
    PIPE_ERRORS,
    AttemptEnd,
    KeysAnswer,
    OpenContext,
    SendingProgress,
    TaskCounts,
    do_attempt,
)
from s3unzip.model import Run, Task
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.ports import KeysRequest

_log = logging.getLogger("s3unzip.workers")

DEATH_SECONDS = 1.0  # from the end of a process's output until its exit code

MAX_DEATHS = 5  # of workers in a row, before any task ends
TROUBLE_SECONDS = 30.0  # until the same line is shown again
LOOK_SECONDS = 0.5  # between two questions whether another process stopped the run
WORKER_STOP_SECONDS = 20.0  # time for a stopped worker to write its outcomes
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # of a terminal: the program acts on them
PROGRAM = "from s3unzip.local.worker_process import work; work({lifeline})"


class WorkerTally:
    """Adds up the counts of all tasks, and passes increases of the sums on to a progress.

    The counts of a lost attempt are subtracted, so the sums may fall. The progress never falls: it
    gets the next increase when a sum is higher than ever before.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or Progress()
        self._sums: Counter[str] = Counter()  # of all attempts but the lost ones
        self._shown: Counter[str] = Counter()
        self._failed_keys: set[str] = set()
        self._troubles: dict[str, float] = {}  # when each was passed on
        self._lock = threading.Lock()

    def note_recorded(self, counts: Mapping[str, int], *, new_run: bool) -> None:
        """Set the sums to the recorded counts of a run, before one of its rounds begins."""
        with self._lock:
            if new_run:
                self._shown.clear()
                self._failed_keys.clear()
            self._sums = Counter(counts)
            self._show_increase()

    def take(self, attempt_counts: Counter[str], message: TaskCounts) -> None:
        """Add the counts of a message to the sums, and to the counts of its attempt."""
        with self._lock:
            if message.trouble:
                self._show_trouble(message.trouble)
            attempt_counts.update(message.counts)
            self._sums.update(message.counts)
            self._show_increase()
            newly_failed = [
                outcome for outcome in message.failed if outcome.key not in self._failed_keys
            ]
            if newly_failed:
                self._failed_keys.update(outcome.key for outcome in newly_failed)
                self._progress.failed(newly_failed)

    def subtract(self, attempt: Counter[str]) -> None:
        """Subtract the counts of a lost attempt: they are not on record."""
        with self._lock:
            self._sums.subtract(attempt)

    def _show_increase(self) -> None:
        increase = self._sums - self._shown  # a difference of counters has no negative counts
        self._shown.update(increase)
        if increase:
            self._progress.finished(increase)

    def _show_trouble(self, message: str) -> None:
        """Pass a line on if no worker had the same trouble lately: all meet the same store."""
        trouble = message.partition(" (")[0].partition(", retrying")[0]  # without cause and time
        now = time.monotonic()
        if now - self._troubles.get(trouble, -math.inf) > TROUBLE_SECONDS:
            self._troubles[trouble] = now
            self._progress.trouble(message)


class Workers:
    """Does the tasks of runs; a context manager that ends the processes.

    Args:
        processes: workers at most, with this process.
        context: of this process; its progress receives the counts of the tasks.
        open_context: called once in each further process; None: there are no further processes.
    """

    def __init__(
        self, processes: int, context: Context, open_context: OpenContext | None = None
    ) -> None:
        # Another process needs a context of its own.
        self.processes = processes if open_context is not None else 1
        self._context = context
        self._open_context = open_context
        self.tally = WorkerTally(context.progress)
        self._workers: list[_ThreadWorker | _ProcessWorker] = []

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
        """Attempt each task once; the next round does the members that have no outcome then.

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
        pending = _PendingTasks(tasks, max(2, self.processes))
        workers = self._take_workers(max(1, min(self.processes, len(tasks), at_once)))
        futures: list[Future[None]] = []
        try:
            for worker in workers:
                futures.append(Future())
                self._start(worker, run, pending, futures[-1])
            running = set(futures)
            while running:
                ended, running = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    future.result()
                if running and is_stopped():
                    raise KeyboardInterrupt  # noqa: TRY301 - the same end as by Ctrl-C
                if pending.ending_fault is not None and running:
                    self._stop(workers, futures)  # they would wait for the store as long again
                    break
        except BaseException:
            pending.drop()
            self._stop(workers, futures)
            raise
        return pending.ending_fault or pending.gave_up

    def _stop(
        self, workers: Sequence[_ThreadWorker | _ProcessWorker], futures: Sequence[Future[None]]
    ) -> None:
        """Let workers write the outcomes of their tasks, and end them."""
        for worker in workers:
            worker.stop()
        wait(futures, WORKER_STOP_SECONDS)
        self.close()

    def _take_workers(self, count: int) -> list[_ThreadWorker | _ProcessWorker]:
        """Return `count` workers at most; processes start when they get their first task."""
        if not self._workers:
            self._workers = [_ThreadWorker(self._context)]
        if self._open_context is not None:
            while len(self._workers) < count:
                self._workers.append(_ProcessWorker(self._open_context))
        return self._workers[:count]

    def _start(
        self,
        worker: _ThreadWorker | _ProcessWorker,
        run: Run,
        pending: _PendingTasks,
        future: Future[None],
    ) -> None:
        """Start a thread that does tasks with `worker`; it ends `future`.

        An executor would not do: Ctrl-C while an executor starts a thread lets the exit wait.
        """
        work = partial(self._work, worker, run, pending, future)
        try:
            threading.Thread(target=work, daemon=True).start()
        except RuntimeError as error:  # no memory for its stack: the thread ends no future
            future.set_exception(error)

    def _work(
        self,
        worker: _ThreadWorker | _ProcessWorker,
        run: Run,
        pending: _PendingTasks,
        future: Future[None],
    ) -> None:
        # Only the main thread handles the signals of a terminal. A process that this thread starts
        # inherits the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            while (task := pending.take()) is not None:
                counts = Counter[str]()  # of this attempt
                end = worker.do_attempt(run, task, partial(self.tally.take, counts))
                if end.lost:
                    self.tally.subtract(counts)
                pending.note_end(task, end)
        except BaseException as error:  # noqa: BLE001 - `do_all` raises it
            future.set_exception(error)
        else:
            future.set_result(None)


class _PendingTasks:
    """The tasks of one round that have not begun; threads may share it."""

    def __init__(self, tasks: Sequence[Task], max_faults: int) -> None:
        self._tasks = list(reversed(tasks))
        self._max_faults = max_faults  # attempts in a row that a fault ended
        self._faults = 0
        self._deaths = 0  # workers in a row that died
        self._is_dropped = False
        self._lock = threading.RLock()  # `note_end` calls `drop`
        self.ending_fault: ServiceFaultError | None = None  # the run must end at once
        self.gave_up: ServiceFaultError | None = None  # the run must end after the running tasks

    def take(self) -> Task | None:
        with self._lock:
            if not self._tasks:
                return None
            return self._tasks.pop()

    def drop(self) -> None:
        with self._lock:
            self._tasks = []
            self._is_dropped = True

    def note_end(self, task: Task, end: AttemptEnd) -> None:
        """Note how an attempt of a task ended; repeat the task if its worker died.

        All pending tasks are dropped after an error of the whole run, if a store is down, and after
        too many faults or deaths in a row.
        """
        error = end.error
        with self._lock:
            if error is None:
                self._faults = 0
                self._deaths = 0
                return
            _log.info("%s did not end: %s", task.id, error)
            if not isinstance(
                error, ServiceFaultError
            ):  # the attempt recorded it as the run's stop
                self.drop()
                return
            if error.gave_up:  # another round would wait for the store as long again
                self.gave_up = error
            self._deaths += end.died
            self._faults += not end.lost  # a lost attempt says nothing about the store
            if end.died and not self._is_dropped:
                self._tasks.append(task)
            if self._deaths > MAX_DEATHS or self._faults >= self._max_faults or error.is_down:
                self.ending_fault = error
                self.drop()


class _ThreadWorker:
    def __init__(self, context: Context) -> None:
        self._clock = LocalClock(context.clock)
        self._progress = SendingProgress()
        # The program's stores have connections. The new fault budget warns through the tally.
        self._context = replace(context, clock=self._clock, progress=self._progress, faults=None)

    def do_attempt(self, run: Run, task: Task, take: Callable[[TaskCounts], object]) -> AttemptEnd:
        yield_to_others()
        self._progress.send = take
        return do_attempt(run, task, self._context)

    def stop(self) -> None:
        """Let the task that runs write its outcomes: its time is over."""
        self._clock.stop()

    def close(self) -> None:
        """Do nothing: the thread ends without a task."""


class _ProcessWorker:
    """A worker that is a process; it starts with its first task, and again after its death."""

    def __init__(self, open_context: OpenContext) -> None:
        self._open_context = open_context
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1  # the end of a pipe that only this program holds

    def do_attempt(self, run: Run, task: Task, take: Callable[[TaskCounts], object]) -> AttemptEnd:
        for message in self._request_attempt(run, task):
            if isinstance(message, AttemptEnd):
                return message
            if isinstance(message, KeysRequest):
                self._answer(message)
            else:
                take(message)
        fault = ServiceFaultError(f"{task.id}: its worker process died{self._explain_death()}")
        self.close()
        return AttemptEnd(fault, lost=True, died=True)

    def _request_attempt(
        self, run: Run, task: Task
    ) -> Iterator[TaskCounts | KeysRequest | AttemptEnd]:
        """Send a task; yield the messages about it, until the process dies."""
        with contextlib.suppress(*PIPE_ERRORS):
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

    def _answer(self, request: KeysRequest) -> None:
        from s3unzip.stores.s3.credentials import answer_worker  # noqa: PLC0415 - few need it

        try:
            answer = KeysAnswer(answer_worker(request))
        except S3UnzipError as failure:
            answer = KeysAnswer(error=failure)
        with contextlib.suppress(*PIPE_ERRORS):
            _send(cast("subprocess.Popen[bytes]", self._process), answer)

    def _explain_death(self) -> str:
        """Return the cause, to be added to a message, if the kernel killed the process."""
        if self._process is None:  # it could not start
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(DEATH_SECONDS) == -signal.SIGKILL:
                return (
                    " (killed by SIGKILL): Linux kills processes when memory runs out: give fewer "
                    "--workers"
                )
        return ""

    def stop(self) -> None:
        """Let the task that runs write its outcomes; `close` kills it if it does not end."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                _send(self._process, None)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._lifeline >= 0:  # also after a process could not start
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
        # -P: imports nothing from the working directory
        [sys.executable, "-P", "-c", PROGRAM.format(lifeline=lifeline)],
        pass_fds=[lifeline],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search_path},
    )
