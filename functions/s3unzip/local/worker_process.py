"""Both ends of a worker connection: `WorkerProcess` in the main process, `work` in the worker.

The two processes exchange pickled messages:

* The main process sends its `OpenContext`, then tasks, one at a time. `END_TASK` tells the worker
  to end its task.
* The worker sends the counts of the task and how the attempt ended.
* The worker asks for the keys that sign its requests. The main process answers with the keys, or
  with an error.
* A worker exits immediately when its standard input is closed because the main process has exited.
  A second pipe, the lifeline, ends the worker even if a thread holds the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.local.attempts import (
    AttemptEnd,
    OpenContext,
    SendingProgress,
    TaskMessage,
    do_attempt,
)
from s3unzip.local.process_setup import tune_allocator, yield_to_others
from s3unzip.model import Run, Task
from s3unzip.stores.ports import Clock, Keys, KeysRequest

DEATH_SECONDS = 1.0  # maximum time to wait for the exit code after a process's output ends
# Why a process died, by its exit code; each text is appended to a message.
DEATHS = {
    0: (  # the process exited by itself, in `_receive`
        " (it could not read its task): another version of s3unzip was probably installed during "
        "the run"
    ),
    -signal.SIGKILL: (
        " (killed by SIGKILL): Linux kills processes when memory runs out: use fewer --workers"
    ),
}
PROGRAM = "from s3unzip.local.worker_process import work; work({lifeline})"
END_TASK = "end"  # the message that makes a worker end its task
PIPE_ERRORS = (
    # The process at the other end died.
    *(EOFError, OSError, pickle.UnpicklingError),
    # The process at the other end uses another version of s3unzip, installed during the run.
    *(AttributeError, ImportError, IndexError, TypeError, ValueError),
)
KeysAnswer = Keys | S3UnzipError | None


class WorkerProcess:
    """A worker process; it is started for its first task, and started again after it dies."""

    def __init__(self, open_context: OpenContext) -> None:
        self._open_context = open_context
        self._process: subprocess.Popen[bytes] | None = None
        # This process's end of the lifeline; -1 if there is no lifeline. Nothing is written to this
        # end, which is closed at the latest when this process ends. The worker then receives a
        # signal that ends the worker.
        self._lifeline = -1

    def do_attempt(self, run: Run, task: Task, take: Callable[[TaskMessage], object]) -> AttemptEnd:
        """Send a task to the process, and wait until the attempt or the process has ended.

        The messages about the task are passed to `take`. If the process asks for AWS keys, they are
        sent to it.
        """
        for message in self._request_attempt(run, task):
            if isinstance(message, AttemptEnd):
                return message
            if isinstance(message, KeysRequest):
                self._send_keys(message)
            else:
                take(message)
        fault = ServiceFaultError(f"{task.id}: its worker process died{self._explain_death()}")
        self.close()
        return AttemptEnd(fault, lost=True, worker_died=True)

    def _request_attempt(
        self, run: Run, task: Task
    ) -> Iterator[TaskMessage | KeysRequest | AttemptEnd]:
        """Start the process if necessary, send it a task, and yield the messages about the task.

        The messages end only if the process dies.
        """
        with contextlib.suppress(*PIPE_ERRORS):
            if self._process is None:
                workers_end, self._lifeline = os.pipe()
                try:
                    self._process = _start_process(workers_end)
                finally:
                    os.close(workers_end)
                _send(self._process, self._open_context)
            messages = cast("BinaryIO", self._process.stdout)
            _send(self._process, (run, task))
            while True:
                yield pickle.load(messages)  # noqa: S301 - our own data

    def _send_keys(self, request: KeysRequest) -> None:
        from s3unzip.stores.s3.credentials import find_keys_for_worker  # noqa: PLC0415 - rarely needed

        try:
            answer: KeysAnswer = find_keys_for_worker(request)
        except S3UnzipError as failure:
            answer = failure
        with contextlib.suppress(*PIPE_ERRORS):
            _send(cast("subprocess.Popen[bytes]", self._process), answer)

    def _explain_death(self) -> str:
        if self._process is None:  # the process could not be started
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return DEATHS.get(self._process.wait(DEATH_SECONDS), "")
        return ""

    def stop(self) -> None:
        """Ask the process to end its task early and write its outcomes."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                _send(self._process, END_TASK)

    def close(self) -> None:
        """Kill the process if it was started, and close the lifeline."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._lifeline >= 0:  # the lifeline is open even if the process could not be started
            os.close(self._lifeline)
            self._lifeline = -1


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    messages = cast("BinaryIO", process.stdin)
    messages.write(pickle.dumps(message))
    messages.flush()


def _start_process(lifeline: int) -> subprocess.Popen[bytes]:
    """Start a Python process that finds the same modules, and ends when `lifeline` is closed."""
    return subprocess.Popen(  # noqa: S603 - the current Python
        # With -P, the worker imports from the working directory only if an entry of `sys.path` is
        # empty.
        [sys.executable, "-P", "-c", PROGRAM.format(lifeline=lifeline)],
        pass_fds=[lifeline],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                path or str(Path.cwd())
                for path in cast("list[object]", sys.path)
                if isinstance(path, str)  # imports ignore entries of other types, such as `Path`
            ),
        },
    )


def work(lifeline: int) -> None:
    """Run the program of a worker process: perform tasks from standard input until it is closed."""
    _exit_with_main_process(lifeline)
    messages = os.fdopen(os.dup(1), "wb")
    # What a library prints must not be mistaken for a message, so it is sent to standard error.
    with contextlib.suppress(OSError):  # standard error is closed
        os.dup2(2, 1)
    tune_allocator()
    yield_to_others()
    clock = Clock()
    progress = SendingProgress()
    keys_lock = threading.Lock()
    key_answers: queue.SimpleQueue[KeysAnswer] = queue.SimpleQueue()
    tasks: queue.SimpleQueue[tuple[Run, Task]] = queue.SimpleQueue()

    def send(message: TaskMessage | KeysRequest | AttemptEnd) -> None:
        with contextlib.suppress(BrokenPipeError):  # the main process has ended
            pickle.dump(message, messages)
            messages.flush()

    def ask(request: KeysRequest) -> Keys | None:
        with keys_lock:  # one thread asks at a time, so the next answer is for that thread
            with progress.lock:  # the counts of a task are sent through the same pipe
                send(request)
            answer = key_answers.get()
        if isinstance(answer, S3UnzipError):
            raise answer
        return answer

    progress.send = send
    open_context: OpenContext = _receive()  # the first message from the main process
    context = open_context(clock, progress, ask)
    threading.Thread(target=_queue_messages, args=(tasks, key_answers, clock), daemon=True).start()
    gc.freeze()  # the garbage collector skips these objects, which live as long as the process
    while True:  # `_receive` ends the process when standard input is closed
        run, task = tasks.get()
        end = do_attempt(run, task, context)
        with progress.lock:  # a thread of the task might still be sending
            send(end)


def _exit_with_main_process(lifeline: int) -> None:
    # When the main process's end of the lifeline is closed, the kernel sends SIGIO, which ends this
    # process. Nothing is written to the lifeline, so SIGIO has no other cause (O_ASYNC in open(2)).
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _receive() -> Any:
    """Return the next message from the main process; end this process if none can be read."""
    try:
        return pickle.load(sys.stdin.buffer)  # noqa: S301 - our own data
    except PIPE_ERRORS:
        os._exit(0)


def _queue_messages(
    tasks: queue.SimpleQueue[tuple[Run, Task]],
    key_answers: queue.SimpleQueue[KeysAnswer],
    clock: Clock,
) -> None:
    """Put each message from the main process into the queue for its type.

    A tuple contains a run and a task. On `END_TASK`, the clock is stopped, so that the current task
    has no time left. Any other message answers a request for keys.
    """
    while True:
        message = _receive()
        if message == END_TASK:
            clock.stop()
        elif isinstance(message, tuple):
            tasks.put(message)
        else:
            key_answers.put(message)
