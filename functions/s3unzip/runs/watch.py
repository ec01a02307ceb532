"""Watching: what can be known of a run from its records while it goes on.

Each finished task leaves its report as the first line of its outcomes; only
that line is read, and the outcomes behind it only where members failed.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from s3unzip import run_files
from s3unzip.errors import NotFoundError, ServiceFaultError
from s3unzip.model import (
    Outcome,
    PlanSummary,
    Status,
    TaskReport,
    decode,
)

if TYPE_CHECKING:
    from s3unzip.stores.ports import RunStore

READERS = 16  # reports read at once
INDEX = run_files.outcomes(run_files.INDEX_TASK)


class RunEntry(NamedTuple):
    """One run in a list."""

    id: str
    state: str  # of its execution; empty on one machine
    started: float  # Unix seconds


class Items(NamedTuple):
    """Items of the Map that is at work, or was last."""

    waiting: int
    running: int
    succeeded: int
    failed: int


@dataclass(slots=True)
class RunSnapshot:
    """What is known of a run by now; counts are of finished tasks."""

    summary: PlanSummary | None = None  # None: the plan is still made
    tasks: int = 0
    scans: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # as ports.Progress knows them
    throttled: int = 0
    retries: int = 0
    first_object: float | None = None  # Unix seconds
    failures: list[tuple[str, Outcome]] = field(default_factory=list)  # new ones, with their task


class RunWatcher:
    """Looks at one run's records, again and again, and reads only what is new."""

    def __init__(self, work: RunStore, listed: int = 20) -> None:
        self._work = work
        self._listed = listed  # failures shown at each look
        self._summary: PlanSummary | None = None
        self._done: dict[str, TaskReport] = {}

    def look(self) -> RunSnapshot:
        """Return what is known now.

        Raises:
            ServiceFaultError: the store does not answer.
        """
        if self._summary is None:
            self._summary = self._read_summary()
        if self._summary is None:
            return RunSnapshot()
        seen = RunSnapshot(self._summary)
        names = [
            n for n in self._work.names(run_files.OUTCOMES) if n != INDEX and n not in self._done
        ]
        with ThreadPoolExecutor(READERS, thread_name_prefix="watch") as pool:
            fresh = list(pool.map(self._read_report, names))
        for name, report in zip(names, fresh, strict=True):
            if report is not None and report.unfinished == 0:
                self._done[name] = report
                if report.failed and len(seen.failures) < self._listed:
                    seen.failures += self._failures(name, report)
        seen.failures = seen.failures[: self._listed]
        self._add_up(seen)
        if self._summary.scans and not self._done:
            seen.scans = sum(1 for n in self._work.names(run_files.SCANS) if n.endswith(".json"))
        return seen

    def _add_up(self, seen: RunSnapshot) -> None:
        seen.tasks = len(self._done)
        for report in self._done.values():
            whole = report.parts == 1
            seen.counts.update(
                extracted=report.extracted if whole else 0,
                unchanged=report.unchanged,
                failed=report.failed,
                bytes_read=report.bytes_read,
                bytes_written=report.bytes_written,
            )
            seen.throttled += report.requests.throttled
            seen.retries += report.requests.retries
        firsts = [r.first_object for r in self._done.values() if r.first_object is not None]
        seen.first_object = min(firsts, default=None)

    def _read_summary(self) -> PlanSummary | None:
        try:
            return decode(self._work.read(run_files.SUMMARY), PlanSummary)
        except NotFoundError:
            return None

    def _read_report(self, name: str) -> TaskReport | None:
        """Return a task's report, None where it is being written again."""
        head = b""
        try:
            for piece in self._work.stream(name):
                head += piece
                if b"\n" in head:
                    break
        except (NotFoundError, ServiceFaultError):
            return None
        line, end, _ = head.partition(b"\n")
        return decode(line, TaskReport) if end else None

    def _failures(self, name: str, report: TaskReport) -> list[tuple[str, Outcome]]:
        found = []
        for line in self._work.read(name).splitlines()[1:]:
            outcome = decode(line, Outcome)
            if outcome.status is Status.FAILED:
                found.append((report.task, outcome))
                if len(found) == self._listed:
                    break
        return found
