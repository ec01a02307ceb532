"""Start the command line as a fork of a process that has already imported it (Linux)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import CompletedProcess
from typing import IO, TYPE_CHECKING

from tests.fork_parent import NUMBER
from tests.patience import HANG_SECONDS
from tools.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Variables that an interpreter or a library reads when it starts: a fork would not see them.
AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "TYPER_", "BOTO_")
MEASURING = ("COVERAGE_", "S3UNZIP_MEASURED")


def _at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {n: value for n, value in variables.items() if n.startswith(AT_START + MEASURING)}


class ForkParent:
    """The program `tests.fork_parent`, which starts with the first process; thread-safe.

    Args:
        prefix: what is put before its command, which changes its rights.
    """

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self.prefix = prefix
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: socket.socket | None = None
        self._at_start: dict[str, str] = {}

    def suits(self, variables: Mapping[str, str]) -> bool:
        """Return whether a fork with these variables is what a new interpreter would be."""
        if sys.platform != "linux":
            return False
        self._start_once()
        return _at_start(variables) == self._at_start

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        stdin: bytes | int = b"",
        seconds: float = HANG_SECONDS,
    ) -> CompletedProcess[bytes]:
        """Run a command to its end, as `subprocess.run` does for a new interpreter.

        Raises:
            subprocess.TimeoutExpired: it ran for too many seconds and was killed.
            RuntimeError: the parent has ended.
        """
        typed = stdin if isinstance(stdin, bytes) else b""
        given, feeding = os.pipe()
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        words = [str(word) for word in words]
        request = {"words": words, "folder": str(folder), "variables": dict(variables)}
        try:
            files = (given if isinstance(stdin, bytes) else stdin, *theirs)
            with suppress(ConnectionError):  # it has ended, as the pipe says
                socket.send_fds(self._start_once(), [json.dumps(request).encode()], files)
        finally:
            for file in (given, *theirs):
                os.close(file)
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_feed, feeding, typed)
            out, err = (threads.submit(_drain, file) for file in ours[:2])
            code = _await_end(ours[2], words, seconds)
        return CompletedProcess(words, code, out.result(), err.result())

    def close(self) -> None:
        """End it; it does not wait for the processes that it has started."""
        if self._messages and self._process:
            self._messages.close()
            self._process.wait(HANG_SECONDS)
            self._messages = self._process = None

    def _start_once(self) -> socket.socket:
        with self._lock:
            if self._messages is None:
                self._messages, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._at_start = _at_start(os.environ)
                command = [*self.prefix, sys.executable, "-m", "tests.fork_parent"]
                with theirs:
                    self._process = subprocess.Popen(
                        command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd=ROOT
                    )
            return self._messages


def _feed(file: int, typed: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(file, "wb") as pipe:
        pipe.write(typed)


def _drain(file: int) -> bytes:
    with os.fdopen(file, "rb") as pipe:
        return pipe.read()


def _await_end(file: int, words: Sequence[str], seconds: float) -> int:
    with os.fdopen(file, "rb", buffering=0) as pipe:
        pid = _read_number(pipe)
        if not select.select([pipe], [], [], seconds)[0]:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, seconds)
        return _read_number(pipe)


def _read_number(pipe: IO[bytes]) -> int:
    data = pipe.read(NUMBER.size)
    if not data:
        raise RuntimeError("`python -m tests.fork_parent` has ended; its errors say why")
    return int(NUMBER.unpack(data)[0])


FORK_PARENT = ForkParent()  # of this process; the fixture of tests/conftest.py ends it
