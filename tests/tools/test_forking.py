"""The command line as a fork: it does what a new interpreter does, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.forking import FORK_PARENT, ForkParent
from tests.processes import Program
from tests.servers import HttpServer, Reply
from tests.zips import Entry, build
from tools.house import ROOT

if TYPE_CHECKING:
    from tests.servers import Asked

ARCHIVE = build(*(Entry(f"f{number}", os.urandom(50_000)) for number in range(9)))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux only")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the program in a folder with an archive."""
    (tmp_path / "a.zip").write_bytes(ARCHIVE)
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["--version"], b""),
        (["cat", "a.zip", "f1"], b""),
        (["ls", "-", "--json"], ARCHIVE),  # more than a pipe holds
        (["test", "-", "-w", "1", "-q"], ARCHIVE[:-30]),
        (["ls", "none.zip"], b""),
        (["rum"], ARCHIVE),  # which nobody reads
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else str(len(value)),
)
def test_a_fork_does_what_an_interpreter_does(
    words: list[str], stdin: bytes, program: Program
) -> None:
    """They give the same code, output and errors, and leave the same files."""
    ends = []
    for home in ("forked", "real"):
        variables = os.environ | program.variables | {"S3UNZIP_HOME": home}
        if home == "forked":
            done = FORK_PARENT.run(words, program.folder, variables, stdin)
        else:
            done = subprocess.run(
                [*Program.command, *words],
                cwd=program.folder,
                env=variables,
                input=stdin,
                capture_output=True,
                check=False,
            )
        left = {path.suffix for path in (program.folder / home).rglob("*")}
        ends.append((done.returncode, done.stdout, done.stderr, left))
    assert ends[0] == ends[1]


def test_workers_and_descriptors(program: Program) -> None:
    """A run has workers of its own; the input may be a descriptor."""
    with (program.folder / "a.zip").open("rb") as file:
        ended = program.run("run", "-", "out", "-w", "2", stdin=file.fileno())
    assert (ended.code, ended.out) == (0, "")
    assert len([path for path in (program.folder / "out").rglob("*") if path.is_file()]) == 9


def test_nothing_leaks_into_the_next(program: Program) -> None:
    """Neither a variable nor the folder of a process is that of the one after it."""
    program.variables["S3UNZIP_HOME"] = "kept"
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    kept = list((program.folder / "kept").rglob("*"))
    assert kept
    other = program.folder / "other"
    other.mkdir()
    second = Program(other)
    del second.variables["S3UNZIP_HOME"]
    second.variables["HOME"] = second.variables["XDG_STATE_HOME"] = str(other)
    assert second.run("runs").code == 0
    assert second.run("ls", "a.zip").code == 6
    assert second.run("run", "../a.zip", "out", "-w", "1").code == 0
    assert list((program.folder / "kept").rglob("*")) == kept


@pytest.mark.parametrize("by_whom", ["test", "clock"])
def test_a_process_is_killed(by_whom: str, program: Program) -> None:
    """The signal that ends it is a negative code; after its time it is killed."""
    pids = []

    def answer(_: Asked) -> Reply:
        pids.extend(pids_in(program.folder))
        if by_whom == "test":
            os.kill(pids[0], signal.SIGKILL)
        ended.wait(100)
        return Reply(404, b"")

    ended = threading.Event()
    variables = os.environ | program.variables
    with HttpServer(answer) as server:
        words = ["ls", f"{server.url}/a.zip"]
        if by_whom == "test":
            assert FORK_PARENT.run(words, program.folder, variables).returncode == -signal.SIGKILL
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                FORK_PARENT.run(words, program.folder, variables, seconds=1)
        ended.set()
    assert pids_in(program.folder) == []


def pids_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended
            if (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found


def test_variables_of_the_start_need_an_interpreter(program: Program) -> None:
    """A fork would not see what an interpreter reads when it starts."""
    program.variables["PYTHONWARNINGS"] = "error"
    assert not FORK_PARENT.suits(os.environ | program.variables)
    assert program.run("--version").code == 0
    program.variables["PYTHONHOME"] = "nowhere"
    assert program.run("--version").code != 0


def test_a_parent_ends_with_its_test() -> None:
    """Once closed it is gone, and the next process has another."""
    with closing(ForkParent()) as parent:
        for _ in range(2):
            assert parent.run(["--version"], ROOT, os.environ).returncode == 0
            parent.close()


def test_a_parent_that_cannot_begin_is_told() -> None:
    """A command fails at once, and says where to look."""
    with closing(ForkParent(["false"])) as parent, pytest.raises(RuntimeError, match="fork_parent"):
        parent.run(["--version"], ROOT, os.environ)
