"""One process at a time does a run on this machine.

A second one would forget the outcomes of the first and drop its uploads. The
lock is the kernel's, on a file in the run's folder: it ends with its process,
however that ends.
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
    """Keep other processes from doing `run` until the file that is returned is closed.

    Args:
        home: the folder that runs are kept below.
        run: its id.

    Raises:
        UsageError: another process does it.
    """
    folder = Path(home, "runs", run)
    make_folders(folder, PRIVATE)
    file = open(folder / LOCK, "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - the caller closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(
            f"{run}: another process is doing this run; follow it with: s3unzip watch {run}"
        ) from None
    return file
