"""The runs of this machine. They have no executions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import convert

from s3unzip.errors import ServiceFaultError, UnreadableRecordError, UsageError
from s3unzip.local.run_folders import LOCK, is_at_work, known_runs, lock_run
from s3unzip.model import Stop, Verdict
from s3unzip.runs.run_list import RUNNING, RecentRun, RunList
from s3unzip.runs.step import STOPPED
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores

ENDED = "ENDED"  # the state of a run on which no process works
STOP_SECONDS = 60.0  # limit of waiting for a stopped run to end


class LocalRuns(RunList):
    """The runs of this machine; their state is `RUNNING` or `ENDED`."""

    environment = None
    location = "here"
    nothing_yet = "there are no runs yet: s3unzip run SRC DEST begins one"

    def __init__(self, config: StoreConfig) -> None:
        self.work_location = config.work
        self.stores = OpenedStores(config)

    def recent(self, limit: int) -> Iterator[RecentRun]:
        """Yield runs, latest first; each run's time is that of its last change."""
        for run in known_runs(self.work_location)[:limit]:
            yield RecentRun(run, "", self._folder(run).stat().st_mtime)

    def begun(self, limit: int) -> Iterator[str]:
        """Yield the runs that have a record or are in progress.

        The folder of a run that never began may have only its lock.
        """

        def has_begun(run: str) -> bool:
            has_records = any(path.name != LOCK for path in self._folder(run).iterdir())
            return has_records or is_at_work(self.work_location.key, run)

        return islice(filter(has_begun, known_runs(self.work_location)), limit)

    def has(self, run: str) -> bool:
        """Return whether there is a folder of a run."""
        return run in known_runs(self.work_location)

    def prune(self, before: float) -> tuple[int, int]:
        """Remove the records of runs that ended and did not change after `before`, in Unix seconds.

        Returns:
            the number of runs that were removed, and of those that stay because `resume` can
            continue them.
        """
        removed = 0
        resumable = 0
        for run in known_runs(self.work_location):
            folder = self._folder(run)
            if folder.stat().st_mtime >= before:
                continue
            if self._is_resumable(run):
                resumable += 1
                continue
            # `lock_run` raises `UsageError` if a process works on the run: then it stays.
            with suppress(UsageError), lock_run(self.work_location.key, run):
                shutil.rmtree(folder)
                removed += 1
            with suppress(OSError):  # the folder of the day is not empty: it has other runs
                folder.parent.rmdir()
        return removed, resumable

    def _is_resumable(self, run: str) -> bool:
        """Return whether a run did not reach its end; True if its records cannot be read.

        A run that was stopped did not: `resume` continues it.
        """
        records = self.records(run)
        try:
            report = records.find_report()
            is_planned = records.find_plan() is not None
        except UnreadableRecordError:
            return True
        if report is None:
            return is_planned  # without a plan there is nothing to resume
        # The archive is left if the action on it is still to be done.
        return report.verdict is Verdict.FAILED or report.archive_left

    def _folder(self, run: str) -> Path:
        return Path(self.work_location.key, "runs", run)

    def connections(self, run: str) -> StoreConfig:
        """Return how the run reached its stores; the defaults if its plan cannot be read."""
        try:
            plan = self.records(run).find_plan()
        except UnreadableRecordError:
            plan = None
        if plan is None:
            return StoreConfig()
        return convert(plan.stores, StoreConfig)

    def state(self, run: str) -> str:
        """Return `RUNNING` while a process plans the run or works on it, else `ENDED`."""
        return RUNNING if is_at_work(self.work_location.key, run) else ENDED

    def stop(self, run: str) -> bool:
        """Stop the run and wait for its end; return False if it had ended.

        The process of the run sees the stop on record, lets its workers write their outcomes, and
        writes the report.
        """
        records = self.records(run)
        deadline = time.monotonic() + STOP_SECONDS
        if self.state(run) != RUNNING:
            return False
        while self.state(run) == RUNNING:
            # In each loop, because a run that begins drops all records, also this stop.
            if records.find_stop() is None:
                records.write_stop(
                    Stop(Verdict.FAILED, STOPPED, "the run was stopped by s3unzip abort")
                )
            if time.monotonic() > deadline:
                raise ServiceFaultError(
                    f"{run}: still at work after {STOP_SECONDS:.0f} s: it stops once its plan is "
                    "made; to stop it now, end its process"
                )
            time.sleep(0.1)
        report = records.find_report()
        return report is not None and report.reason == STOPPED
