"""A pool of worker processes and its jobs.

In `concurrent.futures`, one killed worker breaks the pool and all its jobs. In this pool, a killed
worker costs one attempt of one job, which another worker repeats.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection as connections
from typing import TYPE_CHECKING

from s3unzip.errors import ServiceFaultError
from s3unzip.local.processes.forkserver import ForkServer
from s3unzip.local.processes.processors import available_processors
from s3unzip.local.waiting import Waiting
from s3unzip.local.worker import (
    Counts,
    Done,
    Failed,
    FailedMembers,
    PipeProgress,
    Trouble,
    nothing_follows,
    serve,
)
from s3unzip.settling.next_step import resume_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.context import Context, Progress
    from s3unzip.local.processes.forkserver import Child
    from s3unzip.local.worker import Follow, Job, Message
    from s3unzip.model import Run
    from s3unzip.stores.clock import LocalClock

_log = logging.getLogger("s3unzip.pool")

ATTEMPTS = 4  # of a job that fails with service faults
LOST_ATTEMPTS = 6  # of a job whose workers die; the job is rarely the cause
FIRST_DELAY = 0.5  # seconds; doubled at each attempt
LONGEST_DELAY = 8.0
JOBS_A_WORKER = 50  # then another worker replaces it: inflate64 never frees 0.9 KB of each stream
STOP_SECONDS = 20.0  # time for a stopped worker to write its outcomes


@dataclass(slots=True)
class _Worker:
    child: Child
    processor: int | None
    job: Job | None = None
    done: int = 0  # jobs
    told: Counter[str] = field(default_factory=Counter)  # of its job; void if it dies


@dataclass(slots=True)
class PoolResult:
    """The results of the jobs of a pool."""

    done: list[Done] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    lost_workers: int = 0


class WorkerPool:
    """Worker processes that do the jobs of one run, or whole archives.

    Args:
        run: the run of the jobs; None: each is a whole archive.
        processes: the number of workers.
        make_context: called in each worker; must be picklable.
        progress: gets the counts that the workers send.
        server: forks the workers, and stays open; None: the pool starts and closes its own.
        retry_delay: seconds before a failed job is retried, doubled at each attempt.
    """

    def __init__(
        self,
        run: Run | None,
        processes: int,
        make_context: Callable[[LocalClock, PipeProgress], Context],
        progress: Progress | None,
        server: ForkServer | None = None,
        *,
        retry_delay: float = FIRST_DELAY,
    ) -> None:
        self._resume = resume_command(run) if run is not None else None
        self.processes = processes
        self._target = partial(serve, run=run, make_context=make_context)
        self._progress = progress
        self._processors = available_processors()
        self._server = server
        self._own_server: ForkServer | None = None
        self._workers: list[_Worker] = []
        self._ended: deque[Done | Failed] = deque()  # jobs that nobody was told of
        self._retry_delay = retry_delay
        self._taken: dict[str, Counter[str]] = {}  # of jobs whose worker died
        self._random = random.Random()  # noqa: S311 - jitter

    @property
    def jobs(self) -> dict[int, str]:
        """The job of each worker: process id to job id, which is empty for an idle worker."""
        workers = [(worker.child.pid, worker.job) for worker in self._workers]
        return {pid: job.id if job else "" for pid, job in workers}

    def work(self, jobs: Iterable[Job], follow: Follow = nothing_follows) -> PoolResult:
        """Do `jobs` and what follows them; return when all have ended or were given up.

        An error that stops the run ends the work: jobs that have not begun stay undone. On Ctrl-C,
        the workers stop and write their outcomes, and KeyboardInterrupt propagates.

        Raises:
            ServiceFaultError: no worker can be started.
        """
        result = PoolResult()
        waiting = Waiting(jobs)
        try:
            while waiting.wanted or any(worker.job is not None for worker in self._workers):
                self._hand_out(waiting)
                for worker, message in self._receive(waiting.seconds):
                    self._handle(worker, message, waiting, result)
                while self._ended:
                    waiting.put_first(follow(self._ended.popleft()))
        except BaseException:
            self.stop()
            raise
        return result

    def stop(self) -> None:
        """Stop the workers: they write their outcomes and exit; kill the ones that do not."""
        for worker in self._workers:
            worker.child.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            if not worker.child.ends_by(deadline):
                worker.child.kill()
        self.close()

    def close(self) -> None:
        """Let the idle workers exit."""
        for worker in self._workers:
            worker.child.connection.close()
        for worker in self._workers:
            self._forks.reap(worker.child)
        self._workers.clear()
        if self._own_server is not None:
            self._own_server.close()
            self._own_server = None

    def _hand_out(self, waiting: Waiting) -> None:
        idle = [worker for worker in self._workers if worker.job is None]
        while waiting.ready and (idle or len(self._workers) < self.processes):
            worker = idle.pop() if idle else self._start()
            worker.job = waiting.take()
            worker.told.clear()
            try:
                worker.child.connection.send(worker.job)
            except ConnectionError:  # it died while idle; `_receive` notices
                continue

    def _start(self) -> _Worker:
        processor = self._free_processor()
        try:
            child = self._forks.start(partial(self._target, processor=processor))
        except ServiceFaultError as error:
            if self._resume is None:
                raise
            advice = f"continue with: {self._resume}"
            raise ServiceFaultError(f"{error}; {advice}") from error
        worker = _Worker(child, processor)
        self._workers.append(worker)
        return worker

    def _free_processor(self) -> int | None:
        """Return the processor that the fewest workers use; None if there are spare processors.

        With spare processors, the scheduler knows best which ones other programs leave idle.
        """
        if self.processes < len(self._processors):
            return None
        taken = Counter(worker.processor for worker in self._workers)
        return min(self._processors, key=lambda processor: taken[processor])

    @property
    def _forks(self) -> ForkServer:
        server = self._server or self._own_server
        if server is None:
            server = self._own_server = ForkServer([serve.__module__])
        return server

    def _receive(self, seconds: float | None) -> Iterator[tuple[_Worker, Message | None]]:
        """Yield the messages of workers; None from a worker that has exited."""
        by_connection = {worker.child.connection: worker for worker in self._workers}
        if not by_connection:
            time.sleep(seconds or 0.0)
            return
        for ready in connections.wait(list(by_connection), timeout=seconds):
            worker = by_connection[ready]  # type: ignore[index]  # only connections were given
            try:
                yield worker, worker.child.connection.recv()
            except (EOFError, OSError):
                yield worker, None

    def _handle(
        self, worker: _Worker, message: Message | None, waiting: Waiting, result: PoolResult
    ) -> None:
        if isinstance(message, Counts | FailedMembers | Trouble):
            self._show(worker, message)
            return
        job, worker.job = worker.job, None
        if job is not None and (message is None or (isinstance(message, Failed) and message.lost)):
            self._take_back(worker, job.id)
        if message is None:
            self._retire(worker)
            result.lost_workers += 1
            if job is not None:
                lost = ServiceFaultError(f"{job.id}: its worker process died")
                self._retry(job, Failed(job.id, lost), waiting, result, LOST_ATTEMPTS)
        elif isinstance(message, Done):
            self._give_back(worker, message.job)
            _log.info("%s ended", message.job)
            result.done.append(message)
            self._ended.append(message)
            worker.done += 1
            if worker.done >= JOBS_A_WORKER:
                self._retire(worker)
        elif job is not None and isinstance(message.error, ServiceFaultError):
            self._retry(job, message, waiting, result, ATTEMPTS)
        else:
            result.failed.append(message)
            waiting.drop()

    def _show(self, worker: _Worker, message: Counts | FailedMembers | Trouble) -> None:
        if self._progress is None:
            return
        if isinstance(message, Counts):
            worker.told.update(message.counts)
            self._progress.finished(message.counts)
        elif isinstance(message, Trouble):
            self._progress.trouble(message.message)
        else:
            self._progress.failed(message.outcomes)

    def _take_back(self, worker: _Worker, job: str) -> None:
        """Tell the progress that what a job did is not on record, so that it is done again."""
        if self._progress is not None:
            self._taken[job] = Counter(worker.told)
            self._progress.finished({name: -count for name, count in worker.told.items()})

    def _give_back(self, worker: _Worker, job: str) -> None:
        """Tell what was taken back if it was on record after all: then the job did nothing."""
        taken = self._taken.pop(job, None)
        if self._progress is not None and taken is not None and not worker.told["bytes_done"]:
            self._progress.finished(taken)

    def _retire(self, worker: _Worker) -> None:
        """Let an idle worker exit; the next job starts another."""
        self._workers.remove(worker)
        self._forks.reap(worker.child)

    def _retry(
        self, job: Job, failed: Failed, waiting: Waiting, result: PoolResult, max_attempts: int
    ) -> None:
        attempt = waiting.attempts.get(job.id, 1)
        if attempt >= max_attempts:
            result.failed.append(failed)
            self._ended.append(failed)
            return
        _log.info("%s is tried again: %s", job.id, failed.error)
        waiting.attempts[job.id] = attempt + 1
        delay = min(LONGEST_DELAY, self._retry_delay * 2**attempt)
        waiting.put_off(job, self._random.uniform(0, delay))
