"""Ensures that only one process at a time works on a run on this machine.

A second process would replace the plan of the first, delete its outcomes and abort its uploads. So
a run is locked before anything of it is written. The kernel holds the lock, on a file in the run's
folder, and releases it whenever and however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from s3unzip.errors import AccessDeniedError, UsageError
from s3unzip.model import run_id
from s3unzip.stores.files import PRIVATE, make_folders, translate_error
from s3unzip.stores.locations import HOME_ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedWriter

    from s3unzip.model import Request
    from s3unzip.planning.reading import Reading

LOCK = "lock"
TRIES, PAUSE = 5, 0.02  # seconds: `is_at_work` holds the lock of an idle run for a moment


def lock_run(home: str, run: str) -> BufferedWriter:
    """Lock `run` against other processes until the returned file is closed.

    Args:
        home: the folder of all runs.
        run: its id.

    Raises:
        AccessDeniedError: the folder of runs may not be written.
        UsageError: another process works on the run.
    """
    folder = Path(home, "runs", run)
    try:
        make_folders(folder, PRIVATE)
        file = open(folder / LOCK, "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - the caller closes it
    except PermissionError as error:
        denied = translate_error(error, str(error.filename or folder))
        raise AccessDeniedError(f"{denied}; {HOME_ADVICE}") from error
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


class RunLocks:
    """The runs that this process works on; a context manager that releases them at its end.

    Args:
        home: the folder of all runs.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._held = ExitStack()
        self._runs: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._runs.clear()

    def take(self, run: str) -> None:
        """Lock a run, unless it is locked here already.

        Raises:
            UsageError: another process works on the run.
        """
        if run not in self._runs:
            self._held.enter_context(lock_run(self._home, run))
            self._runs.add(run)

    def claim(
        self, request: Request, judge: Callable[[Reading], None] | None = None
    ) -> Callable[[Reading], None]:
        """Return a function that locks the run of `request` when its archive was read.

        `judge` is called first: what it refuses leaves no lock behind.
        """

        def claimed(reading: Reading) -> None:
            if judge is not None:
                judge(reading)
            self.take(run_id(request, reading.pin))

        return claimed


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
