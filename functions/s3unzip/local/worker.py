"""One worker process: receives jobs from a pipe, does them, and sends their results."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError, ServiceFaultError, UsageError
from s3unzip.extraction.split.link import link_members
from s3unzip.extraction.split.scan import run_scan
from s3unzip.extraction.task import run_task
from s3unzip.local.processes.processors import (
    available_processors,
    keep_to,
    tune_allocator,
    yield_to_others,
)
from s3unzip.model import ScanTask, Task, TaskKind, TaskReport
from s3unzip.stores.clock import LocalClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection

    from s3unzip.context import Context
    from s3unzip.extraction.split.link import LinkReport
    from s3unzip.model import ArchiveEnd, Outcome, Run, ScanReport

    JobReport = TaskReport | ScanReport | LinkReport | ArchiveEnd


LINK = "link"  # the id of the job that links


@dataclass(frozen=True, slots=True)
class LinkJob:
    """Fits the scanned segments of all split members together."""

    id: str = LINK


@dataclass(frozen=True, slots=True)
class WholeArchive:
    """Extracts a small archive, its plan and its report included."""

    id: str
    extract: Callable[[Context], ArchiveEnd]  # picklable


Job = Task | ScanTask | LinkJob | WholeArchive
NO_MEMORY = "its worker has no memory left: use fewer --workers, or raise the limit (ulimit -v)"


@dataclass(frozen=True, slots=True)
class Done:
    """A job that ended."""

    job: str
    report: JobReport


@dataclass(frozen=True, slots=True)
class Failed:
    """A job that raised."""

    job: str
    error: S3UnzipError
    lost: bool = False  # what the progress was told of the job is not on record


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts since the last message."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FailedMembers:
    """Members that failed since the last message."""

    outcomes: Sequence[Outcome]


# Called with each job that ended or was given up; returns the jobs to do next.
Follow = Callable[[Done | Failed], "Sequence[Job]"]


def nothing_follows(_: Done | Failed) -> Sequence[Job]:
    """Return no job."""
    return ()


Message = Done | Failed | Counts | FailedMembers


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
        """Do nothing, because the parent knows the phase."""

    def send(self, message: Message) -> None:
        """Send one message; the parent may have exited."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._connection.send(message)


def do_job(run: Run | None, job: Job, context: Context) -> JobReport:
    """Do one job in this process; only whole archives have no run yet."""
    if isinstance(job, WholeArchive):
        return job.extract(context)
    if run is None:
        raise UsageError(f"{job.id}: belongs to no run")
    if isinstance(job, LinkJob):
        return link_members(run, context)
    if isinstance(job, ScanTask):
        return run_scan(run, job, context)
    return run_task(run, job, context)


def serve(
    connection: Connection,
    run: Run | None,
    make_context: Callable[[LocalClock, PipeProgress], Context],
    processor: int | None,
) -> None:
    """Do jobs until the parent closes the pipe; SIGTERM ends the current job cleanly.

    Args:
        connection: jobs arrive on it, messages leave on it.
        run: the run of the jobs; None: each is a whole archive.
        make_context: called once.
        processor: the processor of this worker; None: it may run on any.
    """
    tune_allocator()
    yield_to_others()
    everywhere = available_processors()
    home = everywhere if processor is None else [processor]
    clock = LocalClock()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the parent handles a terminal's Ctrl-C and hang-up
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
            fault = ServiceFaultError(f"{job.id}: {NO_MEMORY}")
            progress.send(Failed(job.id, fault, lost=True))


def _is_short_of_memory(error: Exception) -> bool:
    """Return whether the system refused memory; threads need memory for their stacks."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def _has_small_members(job: Job) -> bool:
    """Return whether the job's work is in one thread, which holds the interpreter's lock.

    Several threads inflate, hash and send a large member concurrently.
    """
    return isinstance(job, Task) and job.kind is TaskKind.BATCH
