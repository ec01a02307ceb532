"""Data files of coverage that a killed process left half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

from coverage import CoverageData
from coverage.data import combine_parallel_data

from tools.coverage_files import drop_unreadable

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
