"""The code of the fork server's process, and the first steps of a worker.

The process is a fork of the program (`forkserver`) or an interpreter that runs this module. It has
one thread, forks and reaps workers for the program, and ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REQUEST = struct.Struct("!i")  # the process to reap; or 0, with a descriptor: fork a worker
ANSWER = struct.Struct("!i")  # a process id, or an errno below 0
STANDARD = 3  # descriptors: input, output, errors
DEAF_TO = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})  # a terminal sends them to all
LOOK_SECONDS = 0.05
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT_SECONDS = 0.25  # between two looks at the parent


def serve(control: socket.socket, program: int | None = None) -> None:
    """Fork and reap until the program closes its end or ends; then kill the remaining workers.

    Args:
        control: the connection to the program.
        program: its process id, if its main thread forked this process.
    """
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
    if program is not None:
        die_with_parent(program)
    sys.stdout, sys.stderr = (
        sys.__stdout__,
        sys.__stderr__,
    )  # these descriptors were reused and are closed
    # An inherited descriptor may be a file lock or another worker's connection.
    os.closerange(STANDARD, control.fileno())
    os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    gc.freeze()  # existing objects stay in shared pages, and no worker's collector visits them
    workers: set[int] = set()
    with contextlib.suppress(ConnectionError):
        _answer_requests(control, workers)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _answer_requests(control: socket.socket, workers: set[int]) -> None:
    """Fork and reap until the program closes its end; `workers` are not reaped yet."""
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
        exit_after(partial(_work, descriptor, server))
    os.close(descriptor)
    return pid


def _work(descriptor: int, server: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a worker must react to SIGTERM
    die_with_parent(server)
    with Connection(descriptor) as connection:
        try:
            target: Callable[[Connection], None] = connection.recv()
        except (EOFError, ConnectionError):  # the program has ended
            return
        target(connection)


def _wait_for(pid: int, control: socket.socket) -> bool:
    """Wait until a worker has exited; return False if the program ends before."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            # The program sends nothing while it waits, so readable means that it has ended.
            if select.select([control], [], [], LOOK_SECONDS)[0]:
                return False
    return True


def exit_after(step: Callable[[], None]) -> NoReturn:
    """Exit after `step`, because the frames below belong to the process before the fork."""
    code = 1
    try:
        step()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the outermost edge of a process
        _tell(error)
    finally:
        os._exit(code)


def _tell(error: BaseException) -> None:
    """Print in one line what ended this process; standard error may be closed or full."""
    if isinstance(error, MemoryError):
        said = "a worker has no memory left: start fewer workers, or raise the limit (ulimit -v)"
    else:
        said = f"internal error in a worker, please report it: {error!r}"
    with contextlib.suppress(OSError):
        os.write(2, f"s3unzip: {said}\n".encode(errors="backslashreplace"))
        if os.environ.get("S3UNZIP_DEBUG"):
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))


def main(arguments: Sequence[str]) -> NoReturn:
    """Serve a program; the arguments are its end of a socket and the modules to import."""
    for name in arguments[1:]:
        import_module(name)
    exit_after(partial(serve, socket.socket(fileno=int(arguments[0]))))


def die_with_parent(parent: int) -> None:
    """Make this process end as soon as `parent`, which forked it, has ended.

    A worker that waits for a slow server does not read its connection. So on Linux the kernel
    kills it (PR_SET_PDEATHSIG, prctl(2)); elsewhere a thread watches the parent's process id. For
    the kernel, the parent is the thread that forked, so that thread must live as long as its
    process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the parent ended before this call
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
