"""A worker's attempt at a task: the counts that the worker sends, and how the attempt ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError, is_out_of_memory
from s3unzip.extraction.task import run_task
from s3unzip.local.process_setup import start_logging
from s3unzip.local.runs import OpenUploads
from s3unzip.model import Outcome, Run, Task
from s3unzip.settings import Tuning
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import AskForKeys, Clock
from s3unzip.zip import Policy

# What a worker sends during a task: the counts since its last message, the outcomes of members that
# failed, or a line about a store that does not answer.
TaskMessage = Counter[str] | tuple[Outcome, ...] | str
OpenContext = Callable[[Clock, Progress, AskForKeys | None], Context]  # must be picklable


def open_context(
    config: StoreConfig,
    policy: Policy,
    tuning: Tuning,
    clock: Clock,
    progress: Progress | None,
    ask: AskForKeys | None = None,
) -> Context:
    """Start logging in this process; return the context of the process.

    Args:
        config: how to reach the stores; each store is opened on its first use.
        policy: the rules and limits for archives.
        tuning: the tuning of the run.
        clock: the clock of the process; once it is stopped, the current task has no time left.
        progress: receives the counts; None if the counts are not shown.
        ask: requests keys from the main process; None in the main process itself.
    """
    start_logging()
    return Context(
        OpenedStores(config, ask=ask),
        clock,
        policy,
        tuning,
        progress=progress,
        connections=config,
        uploads=OpenUploads(config.work.key),
    )


class AttemptEnd(Struct, frozen=True):
    """How one attempt at a task ended."""

    error: S3UnzipError | None = None
    lost: bool = False  # memory ran out or the worker died; the attempt may not be recorded
    worker_died: bool = False  # the worker process died; `lost` is then also True


class SendingProgress(Progress):
    """Sends the progress of a worker as messages, one thread at a time."""

    def __init__(self) -> None:
        self.send: Callable[[TaskMessage], object] = lambda _: None  # set by the worker
        self.lock = threading.Lock()

    def _send(self, message: TaskMessage) -> None:
        with self.lock:
            self.send(message)

    def finished(self, counts: Mapping[str, int]) -> None:
        """Send the increments of the counts."""
        self._send(Counter(counts))

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Send the outcomes of members that failed."""
        self._send(tuple(outcomes))

    def trouble(self, message: str) -> None:
        """Send a line about a store that does not answer."""
        self._send(message)


def do_attempt(run: Run, task: Task, context: Context) -> AttemptEnd:
    """Attempt a task once; return the error instead of raising it, so that other tasks continue.

    If memory runs out, the attempt is lost: its outcomes may not be recorded. An error that is
    neither an `S3UnzipError` nor caused by a lack of memory indicates a bug and is raised.
    """
    is_over = threading.Event()
    try:
        threading.Thread(target=_report_silence, args=(run, context, is_over), daemon=True).start()
        run_task(run, task, context)
    except S3UnzipError as failure:
        return AttemptEnd(failure)
    except (MemoryError, RuntimeError) as failure:
        if not is_out_of_memory(failure):
            raise
        return AttemptEnd(
            ServiceFaultError(
                f"{task.id}: its worker ran out of memory or threads: use fewer --workers or "
                "puts_in_flight (S3UNZIP_TUNING), or raise the limit (ulimit -v, or -u for threads)"
            ),
            lost=True,
        )
    finally:
        is_over.set()
    return AttemptEnd()


def _report_silence(run: Run, context: Context, is_over: threading.Event) -> None:
    """While a store does not respond, warn on the progress display, until `is_over` is set.

    A call to a store can wait for minutes before it fails.
    """
    faults = context.faults
    progress = context.progress
    if faults is None or progress is None:
        return
    options = ""  # such as --endpoint-url, which is not part of a location
    if context.connections is not None:
        options = " ".join(context.connections.recorded().command_options())
    if options:
        options = f" ({options})"
    while not is_over.wait(1.0):
        for store in faults.find_silent(context.clock.now()):
            location = run.source if store == "source" else run.destination
            progress.trouble(
                f"no answer from {location}{options} for several seconds: the link is slow, or the "
                "store is down"
            )
