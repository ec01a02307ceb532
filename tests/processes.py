"""The command line as a real process, in a folder of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.patience import HANG_SECONDS

COMMAND = (sys.executable, "-m", "s3unzip.cli")
SETPRIV = shutil.which("setpriv")
WITHOUT = "-dac_override,-dac_read_search"  # the capabilities by which root passes over rights
# What is put before a command that the rights of files bind; None: root cannot be bound here.
LIMITED: tuple[str, ...] | None = ()
if os.geteuid() == 0:
    LIMITED = (SETPRIV, "--bounding-set", WITHOUT) if SETPRIV else None


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Program:
    """Runs `s3unzip` in `folder`; its runs are kept there too."""

    command: tuple[str, ...] = COMMAND

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            "S3UNZIP_HOME": str(folder / ".runs"),
            "COLUMNS": "200",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": str(folder / "no-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-credentials"),
        }

    def run(self, *words: str, stdin: bytes | int = b"") -> Ended:
        """Run one command to its end; `stdin` is what it reads, or a file descriptor."""
        return self.run_as([*self.command, *words], stdin)

    def run_as(self, command: Sequence[str], stdin: bytes | int = b"") -> Ended:
        """Run a command that starts the program in its own way."""
        return _read(_start(command, self.folder, os.environ | self.variables, stdin))


def run_command(
    words: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `s3unzip` to its end in `folder`, with these variables and no others."""
    done = _start([*COMMAND, *words], folder, variables)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def _start(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], stdin: bytes | int = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=None if isinstance(stdin, bytes) else stdin,
        input=stdin if isinstance(stdin, bytes) else None,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def _read(done: subprocess.CompletedProcess[bytes]) -> Ended:
    err = done.stderr.decode()
    assert "Traceback" not in err
    assert "internal error" not in err
    assert "panicked" not in err
    return Ended(done.returncode, done.stdout.decode(), err)
