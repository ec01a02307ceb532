"""The folders of this machine's runs: which runs there are, their locks, and their uploads.

A second process at a run would replace the plan of the first, delete its outcomes and abort its
uploads. So a run is locked before any of its files is written. The kernel holds the lock, on a file
in the run's folder, and releases it whenever and however the process ends.

Two runs may write the same keys at once. A run that drops the uploads of killed workers finds them
by their keys. So each multipart upload has a file below ``uploads/``, beside the runs, with the id
of its run.

* The file is written after the upload begins, and removed shortly before or after the upload ends.
  An upload may be dropped if it has no file, if no process works on its run, or by its own run.
* A killed process leaves its files. They are ignored when no process works on their run.
"""

import errno
import fcntl
import hashlib
import os
import re
import time
from contextlib import suppress
from functools import partial
from io import BufferedWriter
from pathlib import Path

from s3unzip.errors import AccessDeniedError, UsageError
from s3unzip.model import Location
from s3unzip.run_ids import STEM_AT, run_stem, time_of_run
from s3unzip.stores.files import PRIVATE, explaining, make_folders, translate_error
from s3unzip.stores.locations import HOME_ADVICE

LOCK = "lock"
BOOT = "boot"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

DAY_FOLDER = re.compile(r"\d{4}-\d\d-\d\d")  # has the runs of archives that were put on that day
# `is_at_work` of another process holds the lock of an idle run for a moment, so try again.
TRIES = 5
PAUSE = 0.02  # seconds


def lock_run(home: str, run: str) -> BufferedWriter:
    """Lock `run` against other processes until the returned file is closed.

    `home` is the folder of this machine's records.

    Raises:
        UsageError: another process works on the run.
    """
    folder = Path(home, "runs", run)
    try:
        make_folders(folder, PRIVATE)
        file = open(folder / LOCK, "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise _explain_denial(error, folder) from error
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


def _explain_denial(error: OSError, folder: Path) -> Exception:
    """Return `error`, or one with advice if it says that access to the records is denied."""
    if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return error
    denial = translate_error(error, str(error.filename or folder))
    return AccessDeniedError(f"{denial}; {HOME_ADVICE}")


def was_restarted(home: str, run: str) -> bool:
    """Return whether the machine may have been restarted since a process worked on `run`.

    Returns True if this is not known.
    """
    try:
        boot_id = Path(home, "runs", run, BOOT).read_bytes()
    except FileNotFoundError:
        return True
    return not boot_id or boot_id != read_boot_id()


def note_start(home: str, run: str) -> None:
    """Record that a process has worked on `run` since the machine's last boot."""
    path = Path(home, "runs", run, BOOT)
    path.touch(mode=0o600)
    path.write_bytes(read_boot_id())


def read_boot_id() -> bytes:
    """Return the id of the machine's current boot; empty if the system has none."""
    with suppress(OSError):
        return BOOT_ID.read_bytes()
    with suppress(OSError):  # macOS
        import subprocess  # noqa: PLC0415 - Linux needs it only to start worker processes

        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603 - fixed words
    return b""


def is_at_work(home: str, run: str) -> bool:
    """Return whether a process on this machine works on `run`."""
    try:
        with Path(home, "runs", run, LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # that process holds the lock
        return True
    except OSError:  # no process ever worked on it, or this user may not read the lock
        return False
    return False


def known_runs(home: Location) -> list[str]:
    """Return the ids of the runs below `home`, by the times of their folders, the latest first."""
    folder = Path(home.key, "runs")
    try:
        folders = [
            run_folder
            for day in os.scandir(folder)
            if DAY_FOLDER.fullmatch(day.name)
            for run_folder in os.scandir(day)
            if run_folder.is_dir()
        ]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise _explain_denial(error, folder) from error
    folders.sort(key=lambda run_folder: run_folder.stat().st_mtime, reverse=True)
    return [os.path.relpath(run_folder.path, folder) for run_folder in folders]


def find_dated(home: Location, run: str) -> float | None:
    """Return the time of the latest run whose id differs from `run` only in its time.

    Returns None if there is no such run.
    """
    same_stem = (dated for dated in known_runs(home) if dated[STEM_AT:] == run[STEM_AT:])
    return next(map(time_of_run, same_stem), None)


def runs_of_archive(home: Location, source: Location) -> list[str]:
    """Return the ids of the runs below `home` that may be of `source`, the earliest first."""
    # The ids of older versions of s3unzip have more of the stem, and a hash of eight digits.
    pattern = rf"[^/]+/\d+-{re.escape(run_stem(source))}[A-Za-z0-9-]*-[0-9a-f]{{8,16}}"
    return [run for run in reversed(known_runs(home)) if re.match(pattern, run)]


class OpenUploads:
    """The notes of multipart uploads whose runs have their records below `home`."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._folder = Path(home, "uploads")

    def note(self, upload_id: str, run: str) -> None:
        """Note that `run` began an upload."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            make_folders(self._folder, PRIVATE)
            path.write_text(run)

    def forget(self, upload_id: str) -> None:
        """Forget an upload that is complete or aborted."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            path.unlink(missing_ok=True)

    def is_of_another(self, upload_id: str, run: str) -> bool:
        """Return whether an upload belongs to a run other than `run` that is still at work."""
        try:
            owner = self._path_of(upload_id).read_text()
        except FileNotFoundError:
            return False
        return owner != run and is_at_work(self._home, owner)

    def _path_of(self, upload_id: str) -> Path:
        """Return the file of an upload; its id may be too long for the name of a file."""
        return self._folder / hashlib.sha256(upload_id.encode()).hexdigest()[:32]
