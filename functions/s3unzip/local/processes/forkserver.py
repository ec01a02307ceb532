"""The fork server: a process without threads that forks the workers.

A program with running threads cannot fork safely: a lock that a thread holds stays locked in the
child, and the child lacks obstore's threads. So a separate process only forks workers and reaps
them.

The fork server of `multiprocessing` is a new interpreter, which imports again what the program has
imported: a twentieth of the CPU of a run of 20,000 members. This fork server is a fork of the
program if that is safe, that is, if the system reports that the program has one thread. Otherwise
it is a new interpreter.

A worker has ended when its connection has ended. The server reaps it when the program asks for it.
Until then no other process gets its process id, so no signal reaches a wrong process.

No process outlives the program. When the server's connection to the program ends, the server kills
the remaining workers, and workers end with the server (`parent`). A killed server is replaced
before the next worker starts; its workers have ended with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from s3unzip.errors import ServiceFaultError
from s3unzip.local.processes import forking
from s3unzip.local.processes.forking import ANSWER, DEAF_TO, REQUEST, exit_after, serve
from s3unzip.local.processes.processors import has_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_RESTARTS = 5  # restarts of a killed server; after that, something kills it each time
PIECE = 64 * 1024


class Child(NamedTuple):
    """A worker's process, and the connection that it serves."""

    pid: int
    connection: Connection

    def ask_to_stop(self) -> None:
        """Send SIGTERM and close the sending side; the worker may still answer."""
        self._signal(signal.SIGTERM)
        end = socket.socket(fileno=os.dup(self.connection.fileno()))
        with end, contextlib.suppress(OSError):  # it has ended already
            end.shutdown(socket.SHUT_WR)

    def ends_by(self, deadline: float) -> bool:
        """Wait until it has ended, at the latest until `deadline` on the monotonic clock.

        Its remaining data is dropped unparsed, because Ctrl-C may have interrupted a message.
        """
        with contextlib.suppress(ConnectionError):
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                if not os.read(self.connection.fileno(), PIECE):
                    return True
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended after its fork server did
            os.kill(self.pid, number)


class ForkServer:
    """Forks workers for one thread of this program.

    Args:
        modules: imported once, before the first worker is forked.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = modules
        self._restarts = 0
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, target: Callable[[Connection], None]) -> Child:
        """Fork a worker that calls `target`, which is pickled, with its end of a connection.

        Raises:
            ServiceFaultError: the system refuses to start a process.
        """
        ours, theirs = Pipe()
        with theirs:
            pid = self._ask(0, theirs.fileno())
            while pid is None:
                self._restart()
                pid = self._ask(0, theirs.fileno())
        if pid < 0:
            raise ServiceFaultError(f"no worker process can be started: {os.strerror(-pid)}")
        with contextlib.suppress(ConnectionError):  # the worker is dead; its reader notices
            ours.send(target)
        return Child(pid, ours)

    def reap(self, child: Child) -> None:
        """Wait for a worker to exit; it exits after its current job."""
        child.connection.close()
        self._ask(child.pid)  # without an answer, the worker has ended with its server

    def close(self) -> None:
        """Wait until the server and all workers have exited; close their connections."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            start = _fork_program if has_one_thread() else _spawn_interpreter
            self.pid = start(theirs, self._modules)

    def _restart(self) -> None:
        """Start another server after one was killed.

        Raises:
            ServiceFaultError: too many servers were killed.
        """
        if self._restarts == MAX_RESTARTS:
            raise ServiceFaultError(
                f"the process that workers are forked from was killed {MAX_RESTARTS + 1} times"
            )
        self._restarts += 1
        self.close()
        self._begin()

    def _ask(self, pid: int, *descriptors: int) -> int | None:
        """Return the answer to one request; None: the server was killed.

        If Ctrl-C leaves an answer unread, the next wait ends early, except that of `close`.
        """
        answer = b""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._control, [REQUEST.pack(pid)], descriptors)
            answer = self._control.recv(ANSWER.size)
        if not answer:
            return None
        found: int = ANSWER.unpack(answer)[0]
        return found


def _fork_program(control: socket.socket, modules: Sequence[str]) -> int:
    """Fork this program; return the server's process id."""
    for name in modules:
        import_module(name)
    sys.stdout.flush()
    sys.stderr.flush()
    program = os.getpid()
    with _without_signals():
        pid = os.fork()
        if pid == 0:
            # The only thread forks, as `die_with_parent` requires.
            exit_after(partial(serve, control, program))
    return pid


def _spawn_interpreter(control: socket.socket, modules: Sequence[str]) -> int:
    """Start an interpreter as the server; return its process id."""
    control.set_inheritable(True)
    arguments = [sys.executable, "-m", forking.__name__, str(control.fileno()), *modules]
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    with _without_signals():
        return os.posix_spawn(
            sys.executable, arguments, {**os.environ, "PYTHONPATH": paths}, file_actions=[nothing]
        )


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """Start a process that ignores Ctrl-C, SIGHUP and SIGTERM: the program handles them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
