"""A function's process is a fork of one that has already imported its libraries.

An execution environment begins as a process with a state of its own, whose parent is this one:
docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html. How it begins is
`embedded.fork_server`, which says why.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_runtime: Any = import_module("ministack.core.lambda_runtime")

SERVER = Path(__file__).resolve().parent.parent / "fork_server.py"
# Variables that Python reads when it starts: the same for all functions.
SHARED = ("PYTHONPATH", "PYTHONNOUSERSITE", "PATH", "LANG", "TZ")
_SET_CHILD_SUBREAPER = 36  # prctl(2)


class ForkServer:
    """The program `embedded.fork_server`, which starts with the first process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: socket.socket | None = None

    def fork(self, variables: Mapping[str, str], folder: str, output: int) -> int:
        """Make a process of this one's, which prints to the pipe `output`; return its number.

        Raises:
            OSError: the program has ended; it has printed why.
        """
        message = json.dumps({"variables": dict(variables), "folder": folder}).encode()
        with self._lock:
            self._messages = self._messages or _start(variables)
            socket.send_fds(self._messages, [message], [output])
            answer = self._messages.recv(32)
        if not answer:
            raise ConnectionResetError("the parent of the functions has ended")
        return int(answer)


class Process:
    """A function's process, with what MiniStack uses of `subprocess.Popen`; thread-safe."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stdin = self.stderr = None
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, a signal's with a minus; None: the process runs."""
        with self._lock:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if ended else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the process has ended.

        Raises:
            subprocess.TimeoutExpired: it runs after `timeout` seconds.
        """
        if self.poll() is None:
            self._await_end(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(SERVER), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with self._lock:
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(15)

    def kill(self) -> None:
        """End the process."""
        self.send_signal(9)

    def _await_end(self, timeout: float | None) -> None:
        try:
            file = os.pidfd_open(self.pid)
        except ProcessLookupError:  # another thread has seen its end
            return
        try:
            ends = select.poll()
            ends.register(file, select.POLLIN)
            ends.poll(None if timeout is None else max(0.0, timeout) * 1_000)
        finally:
            os.close(file)


def install() -> None:
    """Make the processes of python functions by a `ForkServer`; start all others as before."""
    if find_spec("awslambdaric") is None or os.environ.get("EMBEDDED_PYTHON"):
        return  # not Linux, or functions with another interpreter than this one
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        return  # an old kernel: nobody would learn how a process ends
    server = ForkServer()

    def start(command: list[str], *, env: dict[str, str], **settings: Any) -> Any:
        if "EMBEDDED_TMP_MIB" not in env:  # of a runtime that is not Python
            return subprocess.Popen(command, env=env, **settings)  # noqa: S603 - MiniStack's own
        reading, writing = os.pipe()
        try:
            pid = server.fork(env, settings["cwd"], writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return Process(pid, os.fdopen(reading, "rb"))

    vars(_runtime)["subprocess"] = SimpleNamespace(**(vars(subprocess) | {"Popen": start}))


def _start(variables: Mapping[str, str]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared = {name: variables[name] for name in SHARED if name in variables}
    with theirs:
        subprocess.Popen(  # noqa: S603 - fixed arguments
            [sys.executable, "-P", str(SERVER)],
            stdin=theirs.fileno(),
            env=shared | {"EMBEDDED_PRELOAD": os.environ.get("EMBEDDED_PRELOAD", "")},
        )
    return ours
