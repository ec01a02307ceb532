"""The runs of this machine: their ids, folders, locks and uploads.

If a second process worked on a run, it would replace the plan of the first process, delete its
outcomes and abort its uploads. A run is therefore locked before any of its files is written. The
lock is on a file in the run's folder; the kernel releases it when the process ends for any reason.

Two runs may write the same keys concurrently. A run that aborts the uploads of its killed workers
finds the uploads by their keys, so it might also find uploads of the other run. Each multipart
upload therefore has a file below ``uploads/``, next to the runs, that contains the id of its run.

* The file is written after the upload begins, and removed shortly before or after the upload ends.
  A run may abort three kinds of uploads: its own, those without a file, and those of a run on which
  no process is working.
* A killed process leaves its files behind. A file is ignored if no process works on its run.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BufferedWriter
from itertools import islice
from operator import itemgetter
from pathlib import Path

from msgspec import convert

from s3unzip.context import UploadNotes
from s3unzip.errors import (
    NotFoundError,
    ServiceFaultError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.model import Location, Report, Stop, Verdict
from s3unzip.run_ids import STEM_AT, run_stem, time_of_run
from s3unzip.runs.records import NESTED, RunRecords
from s3unzip.runs.run_list import RUNNING, ListedRun, RunList
from s3unzip.runs.step import STOPPED
from s3unzip.settling.nested import has_nested
from s3unzip.stores.config import HOME_ADVICE, StoreConfig
from s3unzip.stores.files import PRIVATE, explaining, make_folders, translate_error
from s3unzip.stores.open import OpenedStores

LOCK = "lock"
BOOT = "boot"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# The folder of a day contains the runs of the archives that were last modified on that day.
DAY_FOLDER = re.compile(r"\d{4}-\d\d-\d\d")
TRIES = 5  # maximum number of tries to lock a run
PAUSE = 0.02  # seconds between two tries
ENDED = "ENDED"  # state of a run that no process is working on
STOP_SECONDS = 60.0  # maximum time to wait for a stopped run to end


def lock_run(home: str, run: str) -> BufferedWriter:
    """Lock `run` against other processes until the returned file is closed.

    `home` is the folder of this machine's records.

    Raises:
        UsageError: another process is working on the run.
    """
    folder = Path(home, "runs", run)
    with ExitStack() as closing:
        with _explaining_records(folder):
            make_folders(folder, PRIVATE)
            file = closing.enter_context(
                open(folder / LOCK, "ab", opener=partial(os.open, mode=0o600))
            )
        # Another process that calls `is_at_work` briefly holds the lock of an idle run.
        for _ in range(TRIES):
            with _explaining_records(folder), suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_nlink == 0:  # `prune` has just removed the file
                    return lock_run(home, run)
                closing.pop_all()  # keeps the file open for the caller
                return file
            time.sleep(PAUSE)
    raise UsageError(
        f"{run}: another process is working on this run; watch it with: s3unzip watch {run}"
    )


@contextmanager
def _explaining_records(folder: Path) -> Iterator[None]:
    """Translate an `OSError`; suggest another folder for the records if this would help."""
    try:
        yield
    except OSError as error:
        explained = translate_error(error, str(error.filename or folder))
        if error.errno in {errno.EMFILE, errno.ENFILE}:  # another folder would not help
            raise explained from error
        raise type(explained)(f"{explained}; {HOME_ADVICE}") from error


def machine_restarted_since(home: str, run: str) -> bool:
    """Return whether the machine may have been restarted since a process worked on `run`.

    Returns True if this cannot be determined.
    """
    try:
        boot_id = Path(home, "runs", run, BOOT).read_bytes()
    except FileNotFoundError:
        return True
    return not boot_id or boot_id != read_boot_id()


def note_start(home: str, run: str) -> None:
    """Record that a process has worked on `run` since the machine's last boot."""
    path = Path(home, "runs", run, BOOT)
    with explaining(str(path)):
        path.touch(mode=0o600)  # makes a new file private
        path.write_bytes(read_boot_id())


def make_latest(home: str, run: str) -> None:
    """Make `run` the latest run, even if another run ended at the same moment."""
    folder = Path(home, "runs", run)
    with _explaining_records(folder):
        os.utime(folder, ns=(time.time_ns(), time.time_ns()))


def read_boot_id() -> bytes:
    """Return the id of the machine's current boot; empty if the system does not provide one."""
    with suppress(OSError):
        return BOOT_ID.read_bytes()
    with suppress(OSError):  # macOS
        import subprocess  # noqa: PLC0415 - not needed on Linux

        return subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=False
        ).stdout
    return b""


def is_at_work(home: str, run: str) -> bool:
    """Return whether a process on this machine is working on `run`, and thus holds its lock."""
    try:
        with Path(home, "runs", run, LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # another process holds the lock
        return True
    except OSError:  # no process has worked on the run, or this user cannot read its lock
        return False
    return False


def known_runs(home: Location) -> dict[str, float]:
    """Return the ids of the runs below `home`, latest first, with the times of their folders.

    The times are in Unix seconds. Runs that another process is removing may be left out.
    """
    folder = str(Path(home.key, "runs"))
    times: dict[str, float] = {}
    for day in [entry for entry in _scan(folder) if DAY_FOLDER.fullmatch(entry.name)]:
        for run_folder in _scan(day.path):
            with suppress(FileNotFoundError):
                if run_folder.is_dir():
                    times[os.path.relpath(run_folder.path, folder)] = run_folder.stat().st_mtime
    return dict(sorted(times.items(), key=itemgetter(1), reverse=True))


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if the folder does not exist."""
    with _explaining_records(Path(folder)), suppress(FileNotFoundError):
        return list(os.scandir(folder))
    return []


def find_latest_time(home: Location, run: str) -> float | None:
    """Return the time of the latest run with an id that differs from `run` at most in the time.

    The time is in Unix seconds. Returns None if there is no such run.
    """
    equal_runs = (other for other in known_runs(home) if other[STEM_AT:] == run[STEM_AT:])
    # `known_runs` begins with the run that changed last.
    return next(map(time_of_run, equal_runs), None)


def runs_of_archive(home: Location, source: Location) -> list[str]:
    """Return the ids of the runs below `home` that may be runs of `source`, earliest first."""
    stem = f"{run_stem(source)}-"
    return [run for run in reversed(known_runs(home)) if run[STEM_AT:].startswith(stem)]


class OpenUploads(UploadNotes):
    """The files that associate each multipart upload with its run; `home` contains the records."""

    def __init__(self, home: str) -> None:
        self._home = home

    def note(self, upload_id: str, run: str) -> None:
        """Record that `run` has begun an upload."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            make_folders(path.parent, PRIVATE)
            path.write_text(run)

    def forget(self, upload_id: str) -> None:
        """Remove the note about an upload that is complete or aborted."""
        path = self._path_of(upload_id)
        with explaining(str(path)):
            path.unlink(missing_ok=True)

    def is_of_another(self, upload_id: str, run: str) -> bool:
        """Return whether an upload belongs to an active run other than `run`."""
        try:
            owner = self._path_of(upload_id).read_text()
        except FileNotFoundError:
            return False
        return owner != run and is_at_work(self._home, owner)

    def _path_of(self, upload_id: str) -> Path:
        """Return the path of an upload's file. The name is a hash, because ids can be too long."""
        return Path(self._home, "uploads", hashlib.sha256(upload_id.encode()).hexdigest()[:32])


class LocalRuns(RunList):
    """The runs of this machine; the state of each is `RUNNING` or `ENDED`."""

    environment = None
    location = "here"
    nothing_yet = "there are no runs yet: s3unzip run SRC DEST starts one"

    def __init__(self, config: StoreConfig) -> None:
        self.work_location = config.work
        self.stores = OpenedStores(config)

    def recent(self, limit: int) -> Iterator[ListedRun]:
        """Yield runs, latest first; the time of each run is the time of its last change."""
        for run, changed in islice(known_runs(self.work_location).items(), limit):
            yield ListedRun(run, self.state(run), changed)

    def has(self, run: str) -> bool:
        """Return whether a run has a folder."""
        return run in known_runs(self.work_location)

    def prune(self, before: float) -> tuple[int, int]:
        """Remove the records of ended runs that have not changed since `before`, in Unix seconds.

        Returns:
            the number of runs that were removed, and the number of runs that were kept because
            `resume` can continue them.
        """
        removed = 0
        resumable = 0
        for run in known_runs(self.work_location):
            folder = Path(self.work_location.key, "runs", run)
            try:
                changed = folder.stat().st_mtime
            except FileNotFoundError:  # another process has just removed it
                continue
            if changed >= before or self.state(run) == RUNNING:
                continue
            if self._is_resumable(run):
                resumable += 1
                continue
            # `lock_run` raises `UsageError` if a process has just begun to work on the run.
            with suppress(UsageError), lock_run(self.work_location.key, run):
                shutil.rmtree(folder)
                removed += 1
            with suppress(OSError):  # the parent is the folder of a day and may contain other runs
                folder.parent.rmdir()
        return removed, resumable

    def _is_resumable(self, run: str) -> bool:
        """Return whether `resume` can continue a run; True if its records cannot be read.

        A run that was stopped can be continued.
        """
        records = self.records(run)
        try:
            report = records.find_report()
            if report is None:
                return records.find_plan() is not None  # without a plan, nothing can be resumed
        except UnreadableRecordError:
            return True
        # The verdict of a stopped run is FAILED. `archive_left` means that the action on the
        # archive has not been carried out yet.
        return (
            report.verdict is Verdict.FAILED
            or report.archive_left
            or _lacks_nested_runs(report, records)
        )

    def connections(self, run: str) -> StoreConfig:
        """Return the options for the stores of a run; the defaults if the plan is unreadable."""
        with suppress(NotFoundError, UnreadableRecordError):
            return convert(self.records(run).read_plan().stores, StoreConfig)
        return StoreConfig()

    def state(self, run: str) -> str:
        """Return `RUNNING` if a process is planning the run or working on it, else `ENDED`."""
        return RUNNING if is_at_work(self.work_location.key, run) else ENDED

    def stop(self, run: str) -> bool:
        """Stop the run and wait until it has ended; return whether it ended because of the stop.

        The process that works on the run reads the recorded stop, lets its workers write their
        outcomes, and writes the report. If the report was already written, the stop ends the
        extraction of nested archives.
        """
        records = self.records(run)
        deadline = time.monotonic() + STOP_SECONDS
        if self.state(run) != RUNNING:
            return False
        while self.state(run) == RUNNING:
            # Check the recorded stop each time: a run that begins deletes all its records,
            # including the stop.
            if records.find_stop() is None:
                records.write_stop(
                    Stop(Verdict.FAILED, STOPPED, "the run was stopped by s3unzip abort")
                )
            if time.monotonic() > deadline:
                raise ServiceFaultError(
                    f"{run}: still running after {STOP_SECONDS:.0f} s: it stops when its plan is "
                    "complete; to stop it now, end its process"
                )
            time.sleep(0.1)
        report = records.find_report()
        return report is not None and (
            report.reason == STOPPED or _lacks_nested_runs(report, records)
        )


def _lacks_nested_runs(report: Report, records: RunRecords) -> bool:
    """Return whether a run was stopped before all its nested archives were extracted or refused.

    `NESTED` is written last, after the report and the runs of nested archives.
    """
    return has_nested(report) and not any(records.store.names(NESTED))
