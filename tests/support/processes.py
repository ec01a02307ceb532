"""The command line in a folder of its own: in this process, or as a process."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from infra.bundle import ROOT
from s3unzip.cli.main import main
from tests.support import servers, zips

COMMAND = (sys.executable, "-m", "s3unzip")
SETPRIV = shutil.which("setpriv")
WITHOUT = "-dac_override,-dac_read_search"  # the capabilities by which root passes over rights
# What is put before a command that the rights of files bind; None: root cannot be bound here.
LIMITED: tuple[str, ...] | None = ()
if os.geteuid() == 0:
    LIMITED = (SETPRIV, "--bounding-set", WITHOUT) if SETPRIV else None


class Ended(NamedTuple):
    """How a command ended; a method that asserts something of it returns it."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ends(self, code: int, *errors: str) -> Self:
        assert self.code == code, f"exit code {self.code}\n{self.out}{self.err}"
        return self.says(*errors)

    def says(self, *errors: str) -> Self:
        assert [text for text in errors if text not in self.err] == [], self.err
        return self

    def hides(self, *errors: str) -> Self:
        assert [text for text in errors if text in self.err] == [], self.err
        return self

    def prints(self, *texts: str) -> Self:
        assert [text for text in texts if text not in self.out] == [], self.out
        return self


class Typed(io.StringIO):
    """A terminal on which an answer is typed."""

    def isatty(self) -> bool:
        return True


class Program:
    """`s3unzip` in `folder`; its runs are kept there too."""

    command: tuple[str, ...] = COMMAND

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / ".runs"
        self.variables = {
            "S3UNZIP_HOME": str(self.home),
            "COLUMNS": "200",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": str(folder / "no-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-credentials"),
        }

    def run(self, *words: str, answer: str | None = None) -> Ended:
        """Run one command to its end, in this process; `answer` is typed on a terminal."""
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            servers.set_variables(patch, self.variables)
            patch.setattr(sys, "stdin", io.StringIO() if answer is None else Typed(answer))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as end:
                main(words)
        code = end.value.code
        assert isinstance(code, int)
        return _check(code, *(stream.buffer.getvalue() for stream in (out, err)))

    def extract(self, *words: str, answer: str | None = None) -> Ended:
        """Run ``s3unzip run`` with one worker, which is a thread of this process."""
        return self.run("run", "-w", "1", *words, answer=answer)

    def start(self, *words: str) -> Ended:
        """Run one command to its end, in a process of its own."""
        return self.start_as([*self.command, *words])

    def start_as(self, command: Sequence[str]) -> Ended:
        done = run_process(command, self.folder, os.environ | self.variables)
        return _check(done.returncode, done.stdout, done.stderr)

    def add(self, name: str, *entries: zips.Entry) -> Path:
        return self.write(name, zips.build(*entries))

    def write(self, name: str, body: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return path

    def files(self, below: str = "") -> dict[str, bytes]:
        root = self.folder / below
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }

    def records_with(self, text: bytes) -> list[str]:
        """Return the names of the records of runs that hold a text; some records are there."""
        records = self.files(".runs")
        assert records
        return [Path(name).name for name, data in records.items() if text in data]

    def runs(self) -> list[str]:
        folder = self.home / "runs"
        return [str(run.relative_to(folder)) for run in folder.glob("*/*")]


def run_process(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end in `folder`, with these variables and no others."""
    return subprocess.run(
        command,
        cwd=folder,
        env=variables,
        input=b"",
        capture_output=True,
        timeout=servers.HANG_SECONDS,
        check=False,
    )


def _check(code: int, out: bytes, err: bytes) -> Ended:
    told = err.decode()
    assert re.search("Traceback|internal error|panicked", told) is None, told
    return Ended(code, out.decode(), told)


# The processes of a program, as Linux lists them below /proc


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that `pid` started, and of those that these started."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it ended
            for child in map(int, listed.read_text().split()):
                found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


# Of the shell and make, and what an activated environment asks for. No uv, node, npm, cdk or aws.
PROGRAMS = ("bash", "basename", "cat", "dirname", "env", "make", "rm", "sh", "touch", "uname")
# What make sets the tools up from. Copies that are old: a test must not set up anew the
# environment that it runs in.
DECLARATIONS = {"package.json", "package-lock.json", "pyproject.toml", "uv.lock"}


def make_checkout(folder: Path) -> Path:
    """Return a folder with links to all of the checkout, where a command may write its own."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in DECLARATIONS:
            shutil.copyfile(entry, folder / entry.name)
            os.utime(folder / entry.name, (0, 0))
        elif entry.name not in {".git", "cdk.out", "archive.zip"}:
            (folder / entry.name).symlink_to(entry)
    return folder


def make_machine(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that has Python, make and the shell's own tools.

    HOME is the real one, where jsii and uv keep their caches; AWS's files there are hidden.
    """
    folder.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    return {
        "PATH": str(folder),
        "HOME": os.environ["HOME"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "AWS_CONFIG_FILE": str(folder / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def run_program(
    words: Sequence[str | Path], variables: Mapping[str, str], folder: Path = ROOT
) -> str:
    """Run a program to its good end, with these variables and no others; return what it printed."""
    done = run_process(words, folder, variables)
    printed = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, printed
    return printed
