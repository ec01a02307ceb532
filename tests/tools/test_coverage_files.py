"""What processes add to the coverage: those that coverage measures, and those that we measure."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zipfile
from typing import TYPE_CHECKING

from coverage import CoverageData
from coverage.data import combine_parallel_data

from tests.processes import Program
from tools.coverage_files import (
    collect,
    drop_unreadable,
    forget_processes,
    measure_processes,
)
from tools.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Ends in the middle of a change whose pages are on the disk already, as SIGKILL can end it.
KILLED = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN")
database.executemany("INSERT INTO file (path) VALUES (?)", ((f"{n:0500}",) for n in range(500)))
os._exit(9)
"""


def write_data(path: Path, lines: list[int]) -> None:
    """Write a data file which says that these lines of a module were run."""
    data = CoverageData(str(path))
    data.add_lines({f"module{n}.py": lines for n in range(50)})
    data.write()
    data.close()


def combine(folder: Path) -> list[int] | None:
    """Return the lines that all data files of a folder together say; no warning is given."""
    data = CoverageData(str(folder / "data"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        combine_parallel_data(data)
    found = data.lines("module0.py")
    data.close()
    return None if found is None else sorted(found)


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Files that are cut short or overwritten go; the others are combined without a warning."""
    write_data(tmp_path / "data.whole", [1, 2])
    for name in ("cut", "garbled", "text"):
        write_data(tmp_path / f"data.{name}", [3])
    os.truncate(tmp_path / "data.cut", 6_000)
    with (tmp_path / "data.garbled").open("r+b") as file:
        file.seek(4_096)
        file.write(os.urandom(8_192))
    (tmp_path / "data.text").write_text("no database at all, but long enough for a header" * 9)
    (tmp_path / "data.empty").touch()
    dropped = drop_unreadable(tmp_path)
    assert {path.name for path in dropped} == {"data.cut", "data.garbled", "data.text"}
    assert combine(tmp_path) == [1, 2]


def test_a_change_that_was_not_finished_is_undone(tmp_path: Path) -> None:
    """What the file said before it counts, and the journal is gone."""
    path = tmp_path / "data.killed"
    write_data(path, [1])
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    assert path.with_name("data.killed-journal").exists()
    assert drop_unreadable(tmp_path) == []
    assert not path.with_name("data.killed-journal").exists()
    assert combine(tmp_path) == [1]


def test_nothing_was_measured(tmp_path: Path) -> None:
    """A folder without files, or no folder, is no fault."""
    assert drop_unreadable(tmp_path) == drop_unreadable(tmp_path / "none") == []


# What `tool.coverage.run` in pyproject.toml says, for a process that coverage itself measures.
BY_COVERAGE = """
[run]
branch = true
parallel = true
data_file = {folder}/data
source = {root}/functions/s3unzip,{root}/infra
"""

# Each module of the package is imported in a place of its own.
IN_MANY_PLACES = """
import os, subprocess, sys, threading

def in_a_thread():
    import s3unzip.version

def in_a_fork():
    import s3unzip.finding
    os._exit(0)

import s3unzip.lazy
if os.fork() == 0:
    in_a_fork()
os.wait()
thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "import s3unzip.zip.checks"], check=True)
"""


def read_arcs(folder: Path) -> dict[str, set[tuple[int, int]]]:
    """Return the arcs that all data files of a folder together say, by file of the checkout."""
    data = CoverageData(str(folder / "data"))
    combine_parallel_data(data)
    arcs = {os.path.relpath(ROOT / name, ROOT): data.arcs(name) for name in data.measured_files()}
    data.close()
    return {name: set(found) for name, found in arcs.items() if found}


def list_archive(folder: Path, **variables: str) -> None:
    """Run `s3unzip ls` as a process with these variables."""
    program = Program(folder)
    program.variables |= {"S3UNZIP_MEASURED": "", **variables}
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("a.txt", b"text")
    assert program.run("ls", "a.zip").code == 0


def test_coverage_finds_the_same(tmp_path: Path) -> None:
    """A process that coverage measures and one that we measure give the same line pairs."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    measure_processes(variables, ours)
    list_archive(ours, **variables)
    settings = theirs / "settings"
    settings.write_text(BY_COVERAGE.format(folder=theirs, root=ROOT))
    list_archive(theirs, COVERAGE_PROCESS_START=str(settings))
    assert collect(ours) == 1
    found = read_arcs(ours)
    assert len(found) > 20
    assert found == read_arcs(theirs)


def test_forks_threads_and_exits_are_measured(tmp_path: Path) -> None:
    """Each place of a program counts, however its process ends; nothing is left but data files."""
    variables = {**os.environ}
    measure_processes(variables, tmp_path)
    subprocess.run([sys.executable, "-c", IN_MANY_PLACES], env=variables, check=True)
    assert collect(tmp_path) == 3
    assert [path.name.split(".")[:2] for path in tmp_path.iterdir()] == [["data", "started"]]
    names = ("version.py", "finding.py", "lazy.py", "zip/policy.py")
    assert {f"functions/s3unzip/{name}" for name in names} <= read_arcs(tmp_path).keys()


def test_no_process_was_started(tmp_path: Path) -> None:
    """Without results there is no data file; those of an earlier run do not count."""
    measure_processes({}, tmp_path)
    (tmp_path / "started" / "1-1.pairs").write_bytes(b"of a run that was stopped")
    forget_processes(tmp_path)
    assert collect(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
