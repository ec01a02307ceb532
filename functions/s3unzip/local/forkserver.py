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
import errno
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

from s3unzip.errors import ServiceFaultError
from s3unzip.local.parent import die_with_parent
from s3unzip.local.processors import has_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REQUEST = struct.Struct("!i")  # the process to reap; or 0, with a descriptor: fork a worker
ANSWER = struct.Struct("!i")  # a process id, or an errno below 0
MAX_RESTARTS = 5  # of a server that was killed; then something kills it each time
DEAF_TO = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})  # a terminal sends them to all
LOOK_SECONDS = 0.05
PIECE = 64 * 1024
STANDARD = 3  # descriptors: input, output, errors


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
            _exit_after(partial(_serve, control, program))
    return pid


def _spawn_interpreter(control: socket.socket, modules: Sequence[str]) -> int:
    """Start an interpreter that will be the server; return its process id."""
    control.set_inheritable(True)
    arguments = [sys.executable, "-m", __name__, str(control.fileno()), *modules]
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


def _serve(control: socket.socket, program: int | None = None) -> None:
    """Fork and reap until the program closes its end, or ends; then kill what is left.

    Args:
        control: the connection to the program.
        program: its process id, if its main thread forked this process.
    """
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
    if program is not None:
        die_with_parent(program)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # what took their places is closed
    # What it inherited may be a lock on a file, or another's connection.
    os.closerange(STANDARD, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()  # what is there stays, and stays shared: no worker's collector need look at it
    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        _answer_requests(control, workers)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _answer_requests(control: socket.socket, workers: set[int]) -> None:
    """Fork and reap until the program closes its end; `workers` are those not yet reaped."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, REQUEST.size, 1)
        if not request:
            return
        (pid,) = REQUEST.unpack(request)
        if descriptors:
            pid = _fork_worker(control, descriptors[0])
            if pid > 0:
                workers.add(pid)
        elif _wait_for(pid, control):
            workers.discard(pid)
        control.send(ANSWER.pack(pid))


def _fork_worker(control: socket.socket, descriptor: int) -> int:
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    if pid == 0:
        control.close()
        _exit_after(partial(_work, descriptor, server))
    os.close(descriptor)
    return pid


def _work(descriptor: int, server: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a worker can be asked to stop
    die_with_parent(server)
    with Connection(descriptor) as connection:
        try:
            target: Callable[[Connection], None] = connection.recv()
        except (EOFError, ConnectionError):  # the program has gone
            return
        target(connection)


def _wait_for(pid: int, control: socket.socket) -> bool:
    """Wait until a worker is gone; return False if the program is gone before."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            # The program sends nothing while it waits: what can be read is its end.
            if select.select([control], [], [], LOOK_SECONDS)[0]:
                return False
    return True


def _exit_after(step: Callable[[], None]) -> NoReturn:
    """End this process after `step`: the frames below are those of the one it was forked from."""
    code = 1
    try:
        step()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the outermost edge of a process
        _tell(error)
    finally:
        os._exit(code)


def _tell(error: BaseException) -> None:
    """Say in one line what ended this process; its standard errors may be closed or full."""
    if isinstance(error, MemoryError):
        said = "a worker has no memory left: start fewer workers, or raise the limit (ulimit -v)"
    else:
        said = f"internal error in a worker, please report it: {error!r}"
    with contextlib.suppress(OSError):
        os.write(2, f"s3unzip: {said}\n".encode(errors="backslashreplace"))
        if os.environ.get("S3UNZIP_DEBUG"):
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))


def main(arguments: Sequence[str]) -> NoReturn:
    """Be the server of a program: its end of a socket, and the modules to import."""
    for name in arguments[1:]:
        import_module(name)
    _exit_after(partial(_serve, socket.socket(fileno=int(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
