"""Ensures that only one process at a time works on a run on this machine.

A second process would delete the outcomes of the first and abort its uploads. The kernel holds the
lock, on a file in the run's folder, and releases it whenever and however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import UsageError
from s3unzip.stores.folder.descriptors import PRIVATE, make_folders

if TYPE_CHECKING:
    from io import BufferedWriter

LOCK = "lock"
TRIES, PAUSE = 5, 0.02  # seconds: `is_at_work` holds the lock of an idle run for a moment


def lock_run(home: str, run: str) -> BufferedWriter:
    """Lock `run` against other processes until the returned file is closed.

    Args:
        home: the folder of all runs.
        run: its id.

    Raises:
        UsageError: another process works on the run.
    """
    folder = Path(home, "runs", run)
    make_folders(folder, PRIVATE)
    file = open(folder / LOCK, "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - the caller closes it
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(PAUSE)
        else:
            return file
    file.close()
    raise UsageError(
        f"{run}: another process is working on this run; watch it with: s3unzip watch {run}"
    )


def is_at_work(home: str, run: str) -> bool:
    """Return whether a process on this machine works on `run`.

    Args:
        home: the folder of all runs.
        run: its id.
    """
    try:
        with Path(home, "runs", run, LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever worked on it, or this user may not look
        return False
    return False
