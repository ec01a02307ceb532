"""The data files of coverage that can be read; those of killed processes often cannot.

Each process that is measured writes a file of its own. A process that is killed while it writes
leaves half a database, and coverage warns of it or fails when it combines the files.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tools.structure import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "build" / "coverage"  # pyproject.toml, tool.coverage.run.data_file
JOURNAL = "-journal"  # SQLite's, of a change that was not finished


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
