"""Where this machine keeps its runs: ``$S3UNZIP_HOME``, else the user's state folder."""

from __future__ import annotations

import os
from pathlib import Path

from s3unzip.model import Location, run_stem


def runs_home() -> Location:
    """Return the folder that runs are kept below.

    Without ``S3UNZIP_HOME`` it follows the XDG base directory specification.
    """
    home = os.environ.get("S3UNZIP_HOME")
    if not home:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        home = str(Path(state).expanduser() / "s3unzip")
    return Location("file", "", str(Path(home).absolute()) + "/")


def known_runs(home: Location) -> list[str]:
    """Return the ids of the runs below `home`, the latest first."""
    folder = Path(home.key) / "runs"
    try:
        found = [entry for entry in os.scandir(folder) if entry.is_dir()]
    except FileNotFoundError:
        return []
    return [entry.name for entry in sorted(found, key=lambda e: e.stat().st_mtime, reverse=True)]


def runs_of_archive(home: Location, source: Location) -> list[str]:
    """Return the ids of the runs below `home` that may be of `source`, the earliest first."""
    begin = f"{run_stem(source)}-"
    return [run for run in reversed(known_runs(home)) if run.startswith(begin)]
