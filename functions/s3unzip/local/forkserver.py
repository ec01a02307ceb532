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
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
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
from s3unzip.local.processors import has_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REQUEST = struct.Struct("!i")  # the process to reap; or 0, with a descriptor: fork a worker
ANSWER = struct.Struct("!i")  # a process id, or an errno below 0
CONTINUE = "s3unzip redrive continues the run"
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
        self._control, theirs = socket.socketpair()
        with theirs:
            start = _fork_program if has_one_thread() else _spawn_interpreter
            self.pid = start(theirs, modules)

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
        if pid < 0:
            message = f"no worker process can be started: {os.strerror(-pid)}; {CONTINUE}"
            raise ServiceFaultError(message)
        with contextlib.suppress(ConnectionError):  # it is dead: who reads hears of it
            ours.send(target)
        return Child(pid, ours)

    def reap(self, child: Child) -> None:
        """Wait until a worker is gone, which goes when it has done what it has."""
        child.connection.close()
        with contextlib.suppress(ServiceFaultError):  # nobody is there to wait for it
            self._ask(child.pid)

    def close(self) -> None:
        """Wait until it is gone, and all workers; the connections to them are closed."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _ask(self, pid: int, *descriptors: int) -> int:
        """Return the answer to one request.

        Where Ctrl-C leaves one unread, the next wait ends early; that of `close` does not.
        """
        answer = b""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._control, [REQUEST.pack(pid)], descriptors)
            answer = self._control.recv(ANSWER.size)
        if not answer:
            message = f"the process that workers are forked from has died; {CONTINUE}"
            raise ServiceFaultError(message)
        found: int = ANSWER.unpack(answer)[0]
        return found


def _fork_program(control: socket.socket, modules: Sequence[str]) -> int:
    """Fork this program; return the server's process id."""
    for name in modules:
        import_module(name)
    sys.stdout.flush()
    sys.stderr.flush()
    with _without_ctrl_c():
        pid = os.fork()
        if pid == 0:
            _exit_after(partial(_serve, control))
    return pid


def _spawn_interpreter(control: socket.socket, modules: Sequence[str]) -> int:
    """Start an interpreter that will be the server; return its process id."""
    control.set_inheritable(True)
    arguments = [sys.executable, "-m", __name__, str(control.fileno()), *modules]
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    with _without_ctrl_c():
        return os.posix_spawn(
            sys.executable, arguments, {**os.environ, "PYTHONPATH": paths}, file_actions=[nothing]
        )


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Start a process that is deaf to it: a terminal's Ctrl-C is the program's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(control: socket.socket) -> None:
    """Fork and reap until the program closes its end, or ends."""
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # what took their places is closed
    # What it inherited may be a lock on a file, or another's connection.
    os.closerange(STANDARD, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()  # what is there stays, and stays shared: no worker's collector need look at it
    with contextlib.suppress(ConnectionError):
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, REQUEST.size, 1)
            if not request:
                break
            (pid,) = REQUEST.unpack(request)
            answer = _fork_worker(control, descriptors[0]) if descriptors else _wait_for(pid)
            control.send(ANSWER.pack(answer))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _fork_worker(control: socket.socket, descriptor: int) -> int:
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    if pid == 0:
        control.close()
        _exit_after(partial(_work, descriptor))
    os.close(descriptor)
    return pid


def _work(descriptor: int) -> None:
    with Connection(descriptor) as connection:
        try:
            target: Callable[[Connection], None] = connection.recv()
        except (EOFError, ConnectionError):  # the program has gone
            return
        target(connection)


def _wait_for(pid: int) -> int:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return pid


def _exit_after(step: Callable[[], None]) -> NoReturn:
    """End this process after `step`: the frames below are those of the one it was forked from."""
    code = 1
    try:
        step()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the outermost edge of a process
        sys.stderr.write(f"s3unzip: internal error in a worker, please report it: {error!r}\n")
        if os.environ.get("S3UNZIP_DEBUG"):
            traceback.print_exc()
    finally:
        os._exit(code)


def main(arguments: Sequence[str]) -> NoReturn:
    """Be the server of a program: its end of a socket, and the modules to import."""
    for name in arguments[1:]:
        import_module(name)
    _exit_after(partial(_serve, socket.socket(fileno=int(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
