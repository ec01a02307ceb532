"""What a worker does with a task, and the program of a worker process.

The messages between a worker process and the program that started it are pickled:

* The program sends its `OpenContext`, then tasks, one at a time. It also sends the keys that the
  worker asks for, and None if the worker must end its task.
* The worker sends the counts of the task and how the attempt ends. It asks for the keys that sign
  its requests.
* A worker whose standard input ends, because the program did, ends at once. Another pipe, the
  lifeline, ends it even if a thread holds the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from s3unzip.context import Context, Progress
from s3unzip.errors import S3UnzipError, ServiceFaultError, is_out_of_memory
from s3unzip.extraction.task import run_task
from s3unzip.local.process_setup import start_logging, tune_allocator, yield_to_others
from s3unzip.local.run_folders import OpenUploads
from s3unzip.model import Outcome, Run, Task
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import AskForKeys, Keys, KeysRequest
from s3unzip.zip import Policy

PIPE_ERRORS = (EOFError, OSError, pickle.UnpicklingError)  # the process at the other end has died
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
    stores = OpenedStores(config, ask=ask)
    uploads = None
    if config.work.store.is_local:
        uploads = OpenUploads(config.work.key)
    return Context(
        stores, clock, policy, tuning, progress=progress, reached=config, uploads=uploads
    )


class TaskCounts(Struct, frozen=True):
    """What a task counted since its last message."""

    counts: Mapping[str, int] = {}
    failed: Sequence[Outcome] = ()
    trouble: str = ""  # a line about a store that does not answer


class AttemptEnd(Struct, frozen=True):
    """How one attempt of a task ended."""

    error: S3UnzipError | None = None
    lost: bool = False  # its counts may not be on record, and are subtracted
    died: bool = False  # the worker process died


class KeysAnswer(Struct, frozen=True):
    """The program's answer to a worker that asks for keys."""

    keys: Keys | None = None
    error: S3UnzipError | None = None


class SendingProgress(Progress):
    """The progress of a worker: it sends what a task counts, from any thread, one at a time."""

    def __init__(self) -> None:
        self.send: Callable[[TaskCounts], object] = lambda _: None  # the worker sets it
        self.lock = threading.Lock()

    def _send(self, message: TaskCounts) -> None:
        with self.lock:
            self.send(message)

    def finished(self, counts: Mapping[str, int]) -> None:
        """Send increments."""
        self._send(TaskCounts(dict(counts)))

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Send the outcomes of members that failed."""
        self._send(TaskCounts(failed=outcomes))

    def trouble(self, message: str) -> None:
        """Send a line about a store that does not answer."""
        self._send(TaskCounts(trouble=message))


def do_attempt(run: Run, task: Task, context: Context) -> AttemptEnd:
    """Do one attempt of a task; return its error instead of raising it: other tasks go on.

    An error that is neither an `S3UnzipError` nor a lack of memory is a bug, and is raised.
    """
    is_over = threading.Event()
    threading.Thread(target=_report_silence, args=(run, context, is_over), daemon=True).start()
    try:
        run_task(run, task, context)
    except S3UnzipError as failure:
        return AttemptEnd(failure)
    except (MemoryError, RuntimeError) as failure:
        if not is_out_of_memory(failure):
            raise
        message = (
            f"{task.id}: its worker has no memory left: use fewer --workers, or raise the limit "
            "(ulimit -v)"
        )
        return AttemptEnd(ServiceFaultError(message), lost=True)
    finally:
        is_over.set()
    return AttemptEnd()


def _report_silence(run: Run, context: Context, is_over: threading.Event) -> None:
    """Tell the progress, until `is_over`, if a store does not answer.

    Its calls may wait for minutes before they fail.
    """
    faults = context.faults
    progress = context.progress
    if faults is None or progress is None:
        return
    connections = ""
    if context.reached is not None:
        connections = f" ({' '.join(context.reached.recorded().command_options())})"
    while not is_over.wait(1.0):
        for store in faults.find_silent(context.clock.now()):
            location = run.source if store == "source" else run.destination
            progress.trouble(
                f"no answer from {location}{connections} for seconds: a slow link, or a dead store"
            )


def work(lifeline: int) -> None:
    """Do the tasks that come by standard input until it ends: the program of a worker process."""
    # The kernel ends this process by SIGIO when the program's end of the lifeline is closed. The
    # program never writes to it, so there is no other SIGIO (O_ASYNC in open(2)).
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not be taken for a message: it goes to standard error.
    with contextlib.suppress(OSError):  # standard error is closed
        os.dup2(2, 1)
    tune_allocator()
    yield_to_others()
    clock = LocalClock()
    progress = SendingProgress()
    keys_lock = threading.Lock()
    keys: queue.SimpleQueue[KeysAnswer] = queue.SimpleQueue()
    tasks: queue.SimpleQueue[tuple[Run, Task]] = queue.SimpleQueue()

    def send(message: TaskCounts | KeysRequest | AttemptEnd) -> None:
        with contextlib.suppress(BrokenPipeError):  # the program has ended
            pickle.dump(message, answers)
            answers.flush()

    def ask(request: KeysRequest) -> Keys | None:
        with keys_lock:  # one thread asks at a time, so the next answer is its own
            with progress.lock:
                send(request)
            answer = keys.get()
        if answer.error is not None:
            raise answer.error
        return answer.keys

    progress.send = send
    context: Context = _receive()(clock, progress, ask)
    threading.Thread(target=_sort_messages, args=(tasks, keys, clock), daemon=True).start()
    gc.freeze()  # the collector does not visit the objects that exist now
    while True:
        run, task = tasks.get()
        end = do_attempt(run, task, context)
        with progress.lock:  # a thread of the task may still be sending
            send(end)


def _receive() -> Any:
    """Return the next message from the program; end this process if the program has ended."""
    try:
        return pickle.load(sys.stdin.buffer)  # noqa: S301 - our own
    except PIPE_ERRORS:
        os._exit(0)


def _sort_messages(
    tasks: queue.SimpleQueue[tuple[Run, Task]],
    keys: queue.SimpleQueue[KeysAnswer],
    clock: LocalClock,
) -> None:
    """Put the messages from the program into the queues; stop the clock if the task must end."""
    while True:
        message = _receive()
        if message is None:
            clock.stop()
        elif isinstance(message, KeysAnswer):
            keys.put(message)
        else:
            tasks.put(message)
