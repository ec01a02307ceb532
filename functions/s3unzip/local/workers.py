"""The workers of runs on this machine: this process and other processes.

Rules:

* Each worker performs one task at a time.
* The first worker is a thread of this process. Each additional worker is another Python process
  (`worker_process`), to which a thread of this process sends tasks.
* If a worker process is killed, only its current task is repeated. The process is started again for
  the next task.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.context import Context, Progress
from s3unzip.errors import ServiceFaultError
from s3unzip.local.attempts import (
    AttemptEnd,
    OpenContext,
    SendingProgress,
    TaskMessage,
    do_attempt,
)
from s3unzip.local.process_setup import yield_to_others
from s3unzip.model import Run, Stop, Task, Verdict
from s3unzip.runs.records import PLAN_TASK, READERS, RunRecords
from s3unzip.runs.step import STOPPED, count_progress
from s3unzip.stores.calls import map_ahead
from s3unzip.stores.ports import Clock

if TYPE_CHECKING:
    from s3unzip.local.worker_process import WorkerProcess

_log = logging.getLogger("s3unzip.workers")

MAX_DEATHS = 5  # maximum number of worker deaths in a row without a finished task
TROUBLE_SECONDS = 30.0  # minimum time before the same warning is shown again
LOOK_SECONDS = 0.5  # time between two checks of whether another process has stopped the run
WORKER_STOP_SECONDS = 20.0  # maximum time for a stopped worker to write its outcomes
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # the signals that end the program


class WorkerTally:
    """Adds up the counts of all tasks, and reports each increase in the sums to a progress display.

    The counts of a lost attempt are subtracted, so a sum can fall. The displayed sum never falls:
    the next increase is reported when the sum exceeds its previous maximum.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or Progress()
        self._sums: Counter[str] = Counter()  # sums of all attempts except the lost ones
        # Highest value of each sum; a lost attempt does not lower it.
        self._shown: Counter[str] = Counter()
        self._failed_keys: set[str] = set()  # keys of the failed members that were shown
        self._last_shown: dict[str, float] = {}  # when each warning was last shown, by its text
        self._lock = threading.Lock()

    def note_recorded(self, counts: Mapping[str, int], *, new_run: bool) -> None:
        """Set the sums to the recorded counts; for a new run, the display starts from zero."""
        with self._lock:
            if new_run:
                self._shown.clear()
                self._failed_keys.clear()
            self._sums = Counter(counts)
            self._show_increase()

    def take(self, attempt_counts: Counter[str], message: TaskMessage) -> None:
        """Show what an attempt reports; add its counts to the sums and to `attempt_counts`."""
        with self._lock:
            match message:
                case str():
                    self._show_trouble(message)
                case Counter():
                    attempt_counts.update(message)
                    self._sums.update(message)
                    self._show_increase()
                case failures:  # an earlier attempt may have reported some of these outcomes
                    new = [outcome for outcome in failures if outcome.key not in self._failed_keys]
                    self._failed_keys.update(outcome.key for outcome in new)
                    if new:
                        self._progress.failed(new)

    def subtract(self, attempt: Counter[str]) -> None:
        """Subtract the counts of a lost attempt, which is usually not recorded."""
        with self._lock:
            self._sums.subtract(attempt)

    def _show_increase(self) -> None:
        increase = self._sums - self._shown  # subtracting counters drops negative counts
        self._shown.update(increase)
        if increase:
            self._progress.finished(increase)

    def _show_trouble(self, message: str) -> None:
        """Show a warning unless another worker has just reported the same problem."""
        # Remove the cause and the time of the next try, which differ between workers.
        trouble = message.partition(" (")[0].partition(", retrying")[0]
        now = time.monotonic()
        if now - self._last_shown.get(trouble, -math.inf) > TROUBLE_SECONDS:
            self._last_shown[trouble] = now
            self._progress.trouble(message)


class Workers:
    """The workers that perform the tasks of runs; `close` ends the worker processes.

    Args:
        processes: the maximum number of workers, including this process.
        context: the context of this process; its progress receives the counts of the tasks.
        open_context: called once in each additional process; returns the context of that process.
    """

    def __init__(self, processes: int, context: Context, open_context: OpenContext) -> None:
        self.processes = processes
        self._context = context
        self._open_context = open_context
        self._tally = WorkerTally(context.progress)
        self._workers: list[_ThreadWorker | WorkerProcess] = []
        # Whether a worker process has died; it may have left files and uploads behind.
        self.has_lost_process = False

    def close(self) -> None:
        """End the workers without waiting for their tasks."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def do_all(
        self, run: Run, tasks: Sequence[Task], at_once: int, outermost: RunRecords, *, new_run: bool
    ) -> ServiceFaultError | None:
        """Attempt each task once; members without an outcome are left for the next round.

        An error that ends the run is recorded, and no further task begins.

        Args:
            run: the run.
            tasks: the tasks of one round.
            at_once: the maximum number of concurrent workers.
            outermost: the records of the outermost run, which may be `run`. Stopping the outermost
                run also stops `run`.
            new_run: whether this is the first round since the run began or was resumed.

        Returns:
            The fault that ends the run, if any: a store is down or workers died too often
            (`ending_fault`), retries of a call failed (`deferred_fault`), or memory ran out.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed or the run was stopped; the workers have ended.
        """
        records = RunRecords.open(self._context.stores, run.id)
        self._show_recorded(records, tasks, new_run=new_run)  # results of earlier attempts
        pending = _PendingTasks(tasks, max_faults=max(2, self.processes))
        workers = self._take_workers(max(1, min(self.processes, len(tasks), at_once)))
        futures: list[Future[None]] = []
        try:
            for worker in workers:
                futures.append(Future())
                _start_thread(partial(self._do_pending, worker, run, pending), futures[-1])
            if not _wait_for_threads(futures, pending, records, outermost):  # a fault ends the run
                self._stop(workers, futures)
        except BaseException:
            pending.drop()
            self._stop(workers, futures)
            raise
        if self.has_lost_process:  # a process may have died just after it wrote its record
            self._show_recorded(records, tasks, new_run=False)
        return pending.ending_fault or pending.deferred_fault or pending.memory_fault

    def _show_recorded(self, records: RunRecords, tasks: Sequence[Task], *, new_run: bool) -> None:
        recorded_ids = set(records.recorded_task_ids()) - {PLAN_TASK}
        reports = filter(None, map_ahead(records.find_task_report, recorded_ids, READERS))
        self._tally.note_recorded(count_progress(reports, tasks), new_run=new_run)

    def _stop(
        self, workers: Sequence[_ThreadWorker | WorkerProcess], futures: Sequence[Future[None]]
    ) -> None:
        for worker in workers:
            worker.stop()  # the worker ends its task and writes the outcomes
        wait(futures, WORKER_STOP_SECONDS)
        self.close()

    def _take_workers(self, count: int) -> list[_ThreadWorker | WorkerProcess]:
        """Return `count` workers: a thread of this process, then processes.

        A process starts when it receives its first task.
        """
        if not self._workers:
            self._workers = [_ThreadWorker(self._context)]
        if len(self._workers) < count:
            # Most runs do not start a process, and importing `pickle` and `subprocess` takes 2 ms.
            from s3unzip.local.worker_process import WorkerProcess  # noqa: PLC0415

            while len(self._workers) < count:
                self._workers.append(WorkerProcess(self._open_context))
        return self._workers[:count]

    def _do_pending(
        self, worker: _ThreadWorker | WorkerProcess, run: Run, pending: _PendingTasks
    ) -> None:
        while (task := pending.take()) is not None:
            counts = Counter[str]()  # the counts of this attempt
            end = worker.do_attempt(run, task, partial(self._tally.take, counts))
            if end.lost:  # the next attempt counts the same members again
                self._tally.subtract(counts)
            if end.worker_died:  # `|=` could undo what another thread has just set
                self.has_lost_process = True
            pending.note_end(task, end)


def is_stopped(records: RunRecords) -> bool:
    """Return whether a signal to this process, or ``s3unzip abort``, stopped the run."""
    stop = records.find_stop()
    return stop is not None and stop.reason == STOPPED


def _wait_for_threads(
    futures: Sequence[Future[None]],
    pending: _PendingTasks,
    records: RunRecords,
    outermost: RunRecords,
) -> bool:
    """Wait until all threads have ended, or a fault ends the run; return whether all have ended.

    Raises:
        KeyboardInterrupt: the run, or its outermost run, was stopped.
    """
    running = set(futures)
    while running:
        if outermost.run != records.run and is_stopped(outermost):
            records.write_stop(
                Stop(Verdict.FAILED, STOPPED, "the run was stopped by s3unzip abort")
            )
        if is_stopped(records):
            raise KeyboardInterrupt  # handled in the same way as Ctrl-C
        if pending.ending_fault is not None:  # the other tasks would also fail
            return False
        ended, running = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
        for future in ended:
            future.result()  # raises the error from the thread
    return True


def _start_thread(work: Callable[[], None], future: Future[None]) -> None:
    """Call `work` in a new thread; complete `future` when it returns, or with the error it raises.

    No executor is used: if Ctrl-C is pressed while an executor starts a thread, the program hangs
    on exit.
    """

    def call() -> None:
        # Only the main thread handles signals from the terminal. Worker processes inherit the
        # signal mask of this thread, so Ctrl-C does not end them.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by `do_all`
            future.set_exception(error)
        else:
            future.set_result(None)

    try:
        threading.Thread(target=call, daemon=True).start()
    except RuntimeError as error:  # there is not enough memory for the thread's stack
        future.set_exception(error)


class _PendingTasks:
    """The tasks of one round that have not begun; threads can share this object."""

    def __init__(self, tasks: Sequence[Task], *, max_faults: int) -> None:
        # In reverse order, because `take` pops the last task; None after `drop`.
        self._tasks: list[Task] | None = list(reversed(tasks))
        self._max_faults = max_faults  # this many consecutive faults end the run
        self._faults = 0  # number of consecutive faults
        self._deaths = 0  # number of consecutive worker deaths
        self._lock = threading.RLock()  # `note_end` calls `drop`
        self.ending_fault: ServiceFaultError | None = None  # ends the run immediately
        # A call was retried without success; this fault ends the run after this round.
        self.deferred_fault: ServiceFaultError | None = None
        # Memory ran out; this fault ends the run after this round if no task of the round ended.
        self.memory_fault: ServiceFaultError | None = None
        self._has_ended_task = False  # whether a task has ended without an error

    def take(self) -> Task | None:
        with self._lock:
            return self._tasks.pop() if self._tasks else None

    def drop(self) -> None:
        with self._lock:
            self._tasks = None

    def note_end(self, task: Task, end: AttemptEnd) -> None:
        """Note how an attempt at a task ended; if its worker died, the task is pending again.

        After any other fault, the next round repeats the task. All pending tasks are dropped after
        an error that ends the run, if a store is down, or after too many consecutive faults or
        deaths. An attempt is lost if its worker died or ran out of memory.
        """
        error = end.error
        with self._lock:
            if error is None:
                self._faults = 0
                self._deaths = 0
                self.memory_fault = None
                self._has_ended_task = True
                return
            _log.info("%s did not end: %s", task.id, error)
            if not isinstance(error, ServiceFaultError):
                self.drop()  # the attempt has recorded the error as the reason to stop the run
                return
            if error.gave_up:  # the store would not answer in another round either
                self.deferred_fault = error
            if end.worker_died:
                self._deaths += 1
                if self._tasks is not None:  # unless the tasks were dropped
                    self._tasks.append(task)
            elif end.lost:  # memory ran out, but the store has not failed
                if not self._has_ended_task:
                    self.memory_fault = error
            else:
                self._faults += 1
            if self._deaths > MAX_DEATHS or self._faults >= self._max_faults or error.is_down:
                self.ending_fault = error
                self.drop()


class _ThreadWorker:
    def __init__(self, context: Context) -> None:
        self._clock = Clock(context.clock)
        self._progress = SendingProgress()
        # The stores and their connections are shared. With `faults=None`, the new context creates a
        # fault budget of its own, which sends its warnings through this progress.
        self._context = replace(context, clock=self._clock, progress=self._progress, faults=None)

    def do_attempt(self, run: Run, task: Task, take: Callable[[TaskMessage], object]) -> AttemptEnd:
        yield_to_others()
        self._progress.send = take
        return do_attempt(run, task, self._context)

    def stop(self) -> None:
        """Stop the clock, so that the current task ends and writes its outcomes."""
        self._clock.stop()

    def close(self) -> None:
        """Do nothing: the thread ends when no task is pending."""
