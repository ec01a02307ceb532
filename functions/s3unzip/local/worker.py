"""One worker process: takes jobs from a pipe, does them, says how they went."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.extraction.split.scan import run_scan
from s3unzip.extraction.task import run_task
from s3unzip.local.clock import LocalClock
from s3unzip.local.processes.allocator import tune_allocator
from s3unzip.local.processes.processors import available_processors, keep_to, yield_to_others
from s3unzip.model import ScanTask, Task, TaskKind, TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    from s3unzip.context import Context
    from s3unzip.model import Outcome, Run, ScanReport

Job = Task | ScanTask
NO_MEMORY = (
    "its worker has no memory left: give fewer --workers or --puts, or raise the limit (ulimit -v)"
)


@dataclass(frozen=True, slots=True)
class Done:
    """A job that ended."""

    job: str
    report: TaskReport | ScanReport


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that raised."""

    job: str
    error: S3UnzipError


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened since the last word."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FailedMembers:
    """Members that failed since the last word."""

    outcomes: Sequence[Outcome]


Word = Done | Failed | Counts | FailedMembers


class PipeProgress:
    """Sends increments to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def finished(self, counts: Mapping[str, int]) -> None:
        """Send increments."""
        self.send(Counts(Counter(counts)))

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Send members that failed."""
        self.send(FailedMembers(outcomes))

    def phase(self, name: str) -> None:
        """Do nothing: the parent knows the phase."""

    def send(self, word: Word) -> None:
        """Send one word; the parent may be gone."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._connection.send(word)


def do_job(run: Run, job: Job, context: Context) -> TaskReport | ScanReport:
    """Do one job in this process."""
    if isinstance(job, ScanTask):
        return run_scan(run, job, context)
    return run_task(run, job, context)


def serve(
    connection: Connection,
    run: Run,
    make_context: Callable[[LocalClock, PipeProgress], Context],
    processor: int | None,
) -> None:
    """Do jobs until the parent closes the pipe; SIGTERM ends the job at hand cleanly.

    Args:
        connection: jobs come from it, words go into it.
        run: what the jobs belong to.
        make_context: called once.
        processor: that is this worker's; None: it may run anywhere.
    """
    tune_allocator()
    yield_to_others()
    everywhere = available_processors()
    home = everywhere if processor is None else [processor]
    clock = LocalClock()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C and hang-up are the parent's
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: clock.stop())
    progress = PipeProgress(connection)
    context = make_context(clock, progress)
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, OSError):
            return
        keep_to(home if _has_small_members(job) else everywhere)
        try:
            progress.send(Done(job.id, do_job(run, job, context)))
        except S3UnzipError as error:
            progress.send(Failed(job.id, error))
        except (MemoryError, RuntimeError) as error:
            if not _is_short_of_memory(error):
                raise
            progress.send(Failed(job.id, ServiceFaultError(f"{job.id}: {NO_MEMORY}")))


def _is_short_of_memory(error: Exception) -> bool:
    """Say whether the system gave no memory; threads need some for their stacks."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def _has_small_members(job: Job) -> bool:
    """Say whether it is work for the one thread that has the interpreter's lock.

    A large member is inflated, hashed and sent by several threads at once.
    """
    return isinstance(job, Task) and job.kind is TaskKind.BATCH


def is_alive(pid: int) -> bool:
    """Say whether a process of that id runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
