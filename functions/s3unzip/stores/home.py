"""Where this machine keeps its runs: ``$S3UNZIP_HOME``, else the user's state folder."""

from __future__ import annotations

import os
from pathlib import Path

from s3unzip.errors import AccessDeniedError
from s3unzip.model import Location, run_stem
from s3unzip.stores.folder.os_errors import HOME_ADVICE, translate_error
from s3unzip.stores.locations import whole_path


def runs_home() -> Location:
    """Return the folder that runs are kept below.

    Without ``S3UNZIP_HOME`` it follows the XDG base directory specification.
    """
    home = os.environ.get("S3UNZIP_HOME")
    if not home:
        home = f"{os.environ.get('XDG_STATE_HOME') or '~/.local/state'}/s3unzip"
    return Location("file", "", f"{whole_path(home)}/")


def known_runs(home: Location) -> list[str]:
    """Return the ids of the runs below `home`, the latest first.

    Raises:
        AccessDeniedError: this user may not read the folder.
    """
    folder = Path(home.key) / "runs"
    try:
        found = [entry for entry in os.scandir(folder) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        denied = translate_error(error, str(folder))
        raise AccessDeniedError(f"{denied}; {HOME_ADVICE}") from error
    return [entry.name for entry in sorted(found, key=lambda e: e.stat().st_mtime, reverse=True)]


def runs_of_archive(home: Location, source: Location) -> list[str]:
    """Return the ids of the runs below `home` that may be of `source`, the earliest first."""
    begin = f"{run_stem(source)}-"
    return [run for run in reversed(known_runs(home)) if run.startswith(begin)]
