"""Where this machine keeps its runs: ``$S3UNZIP_HOME``, else the user's state folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from s3unzip.errors import AccessDeniedError
from s3unzip.model import Location, run_stem
from s3unzip.stores.folder.os_errors import HOME_ADVICE, translate_error
from s3unzip.stores.locations import whole_path

DAY = re.compile(r"\d{4}-\d\d-\d\d")  # the folder of the runs of archives that were put then


def runs_home() -> Location:
    """Return the folder that runs are kept below.

    Without ``S3UNZIP_HOME`` it follows the XDG base directory specification.
    """
    home = os.environ.get("S3UNZIP_HOME")
    if not home:
        home = f"{os.environ.get('XDG_STATE_HOME') or '~/.local/state'}/s3unzip"
    return Location("file", "", f"{whole_path(home)}/")


def known_runs(home: Location) -> list[str]:
    """Return the ids of the runs below `home`, the latest first: by the times of their folders.

    `AccessDeniedError`: this user may not read the folder.
    """
    folder = Path(home.key) / "runs"
    try:
        days = [day for day in os.scandir(folder) if DAY.fullmatch(day.name)]
        found = [entry for day in days for entry in os.scandir(day) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        denied = translate_error(error, str(error.filename or folder))
        raise AccessDeniedError(f"{denied}; {HOME_ADVICE}") from error
    found.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    return [os.path.relpath(entry.path, folder) for entry in found]


def runs_of_archive(home: Location, source: Location) -> list[str]:
    """Return the ids of the runs below `home` that may be of `source`, the earliest first."""
    stem = re.escape(run_stem(source))
    of_it = re.compile(rf"[-0-9]+/[0-9]+-{stem}-[0-9a-f]{{8}}")
    return [run for run in reversed(known_runs(home)) if of_it.match(run)]
