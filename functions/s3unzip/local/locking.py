"""Ensures that only one process at a time works on a run on this machine.

A second process would delete the outcomes of the first and abort its uploads. The kernel holds the
lock, on a file in the run's folder, and releases it whenever and however the process ends.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import UsageError
from s3unzip.stores.folder.descriptors import PRIVATE, make_folders

if TYPE_CHECKING:
    from io import BufferedWriter

LOCK = "lock"


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
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(
            f"{run}: another process is working on this run; watch it with: s3unzip watch {run}"
        ) from None
    return file
