"""The process that workers are forked from: without threads, and started before there are any.

A worker cannot be forked from a program that works: a lock that one of its
threads holds stays locked in the child, and obstore's threads are not in it.
So one process is set apart that only forks, and waits for what it forked.

`multiprocessing` has one too, but as a new interpreter, which imports again
what the program has imported: a twentieth of the CPU of a run of 20,000
members. This one is a fork of the program where that is safe, which is where
the system says that the program has one thread, and else a new interpreter.

A worker has ended when its connection has. It is reaped when its program says
so: until then its process id is no other's, and no signal goes astray.

Nobody outlives the program: the server kills the workers that are left when
its connection to the program ends, and workers end with the server
(`parent`). A server that was killed is replaced when the next worker is
wanted; its workers have ended with it.
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

MAX_RESTARTS = 5  # of a server that was killed; then something kills it each time
PIECE = 64 * 1024


class Child(NamedTuple):
    """A worker's process, and the connection that it serves."""

    pid: int
    connection: Connection

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and the end of what it is sent; it may still answer."""
        self._signal(signal.SIGTERM)
        end = socket.socket(fileno=os.dup(self.connection.fileno()))
        with end, contextlib.suppress(OSError):  # it has ended already
            end.shutdown(socket.SHUT_WR)

    def ends_by(self, deadline: float) -> bool:
        """Wait until it has ended, at the latest until `deadline` on the monotonic clock.

        What it still says is dropped, and not read as words: Ctrl-C may have
        come in the midst of one.
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
    """Forks workers, for one thread of this program.

    Args:
        modules: imported once, before the first worker is forked.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = modules
        self._restarts = 0
        self._begin()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self.close()

    def start(self, target: Callable[[Connection], None]) -> Child:
        """Fork a worker that calls `target`, which is pickled, with its end of a connection.

        Raises:
            ServiceFaultError: there is no process to be had.
        """
        ours, theirs = Pipe()
        with theirs:
            pid = self._ask(0, theirs.fileno())
            while pid is None:
                self._restart()
                pid = self._ask(0, theirs.fileno())
        if pid < 0:
            raise ServiceFaultError(f"no worker process can be started: {os.strerror(-pid)}")
        with contextlib.suppress(ConnectionError):  # it is dead: who reads hears of it
            ours.send(target)
        return Child(pid, ours)

    def reap(self, child: Child) -> None:
        """Wait until a worker is gone, which goes when it has done what it has."""
        child.connection.close()
        self._ask(child.pid)  # where nobody answers, it has ended with its server

    def close(self) -> None:
        """Wait until it is gone, and all workers; the connections to them are closed."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            start = _fork_program if has_one_thread() else _spawn_interpreter
            self.pid = start(theirs, self._modules)

    def _restart(self) -> None:
        """Begin another server after one that was killed.

        Raises:
            ServiceFaultError: that happens again and again.
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

        Where Ctrl-C leaves one unread, the next wait ends early; that of `close` does not.
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
            # The one thread that there is forks, so the kernel's rule holds.
            exit_after(partial(serve, control, program))
    return pid


def _spawn_interpreter(control: socket.socket, modules: Sequence[str]) -> int:
    """Start an interpreter that will be the server; return its process id."""
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
    """Start a process that is deaf to them: Ctrl-C, a hang-up or SIGTERM are the program's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
