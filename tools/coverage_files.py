"""What each process of a test run adds to the coverage.

The processes of pytest and their forks are measured by coverage: each writes a database of its own.
One that is killed while it writes leaves half a database, and coverage warns of it or fails when it
combines the files. All other processes are measured by `tools.measuring.sitecustomize`.
"""

from __future__ import annotations

import marshal
import os
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from coverage import CoverageData

from tools.house import ROOT
from tools.measuring.sitecustomize import VARIABLE

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

FOLDER = ROOT / "build" / "coverage"  # pyproject.toml, tool.coverage.run.data_file
STARTED = "started"  # the folder in it for the processes that tests start
MEASURING = ROOT / "tools" / "measuring"
LINE_BITS = 28  # how coverage's tracer packs two line numbers, and after them their signs
JOURNAL = "-journal"  # SQLite's, of a change that was not finished


def forget_processes(folder: Path = FOLDER) -> None:
    """Delete what the processes of a run that did not end have left."""
    shutil.rmtree(folder / STARTED, ignore_errors=True)


def measure_processes(variables: MutableMapping[str, str], folder: Path = FOLDER) -> None:
    """Set the variables that make Python processes write what they run, for `collect`."""
    from coverage import tracer  # noqa: PLC0415 - only a measured run needs coverage's C part

    results = folder / STARTED
    results.mkdir(parents=True, exist_ok=True)
    variables[VARIABLE] = os.pathsep.join((str(tracer.__file__), str(results)))
    paths = (str(MEASURING), variables.get("PYTHONPATH", ""))
    variables["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def collect(folder: Path = FOLDER) -> int:
    """Give coverage what the started processes have run, as one more file; return their number."""
    pairs: dict[str, set[int]] = {}
    files = list((folder / STARTED).glob("*.pairs"))
    for file in files:
        for name, found in marshal.loads(file.read_bytes()).items():  # noqa: S302 - our own
            pairs.setdefault(name, set()).update(found)
    if pairs:
        data = CoverageData(str(folder / "data"), suffix=STARTED)
        data.add_arcs(
            {os.path.relpath(name, ROOT): [*map(_unpack, found)] for name, found in pairs.items()}
        )
        data.write()
        data.close()
    forget_processes(folder)
    return len(files)


def _unpack(pair: int) -> tuple[int, int]:
    """Return the two lines that coverage's tracer has packed into one number."""
    lines = pair & ((1 << LINE_BITS) - 1), (pair >> LINE_BITS) & ((1 << LINE_BITS) - 1)
    signs = (pair >> (2 * LINE_BITS)) & 1, (pair >> (2 * LINE_BITS + 1)) & 1
    first, second = (-line if sign else line for line, sign in zip(lines, signs, strict=True))
    return first, second


def drop_unreadable(folder: Path = FOLDER) -> list[Path]:
    """Delete the data files that SQLite cannot read to their end; return them.

    A change that was not finished is undone: what the file held before it counts.
    """
    files = [path for path in sorted(folder.glob("data.*")) if not path.name.endswith(JOURNAL)]
    dropped = [path for path in files if not _is_whole(path)]
    for path in dropped:
        path.unlink()
        path.with_name(path.name + JOURNAL).unlink(missing_ok=True)
    return dropped


def _is_whole(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchall() == [("ok",)])
    except sqlite3.DatabaseError:
        return False
