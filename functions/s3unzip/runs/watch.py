"""Watching: what can be known of a run from its records while it goes on.

Each finished task leaves its report as the first line of its outcomes; only
that line is read, and the outcomes behind it only where members failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from s3unzip import run_files
from s3unzip.errors import NotFoundError, ServiceFaultError
from s3unzip.model import Outcome, PlanSummary, Status, TaskKind, TaskReport
from s3unzip.stores.readahead import map_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.runs.records import RunRecords

READERS = 16  # outcomes that are looked at at once


def counts_of(report: TaskReport) -> Counter[str]:
    """Return what the progress is told of a task on record.

    A slice has no members of its own: settling gives the split member its outcome. The members
    of a retry failed before, so they are done already.
    """
    if report.parts > 1:
        return Counter(bytes_done=report.bytes_done)
    if report.task.startswith(run_files.RETRIES):
        right = report.extracted + report.unchanged
        return Counter(extracted=report.extracted, unchanged=report.unchanged, failed=-right)
    return Counter(
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        bytes_done=report.bytes_done,
    )


def find_streamed(records: RunRecords) -> set[tuple[int, int]]:
    """Return the rows of members whose slices are dropped: the members are streamed again whole."""
    try:
        return {task.rows for task in records.redo() if task.parts == 1}
    except NotFoundError:  # every task of the plan ended
        return set()


class RunEntry(NamedTuple):
    """One run in a list."""

    id: str
    state: str  # of its execution; empty on one machine
    started: float  # Unix seconds


def unique_runs(entries: Iterable[RunEntry]) -> Iterator[RunEntry]:
    """Yield the first entry of each run: a run may have a claim and an execution or a refusal."""
    known: set[str] = set()
    for entry in entries:
        if entry.id not in known:
            known.add(entry.id)
            yield entry


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

    def __init__(self, records: RunRecords, listed: int = 20) -> None:
        self._records = records
        self._listed = listed  # failures shown at each look
        self._summary: PlanSummary | None = None
        self._done: dict[str, TaskReport] = {}
        self._streamed: set[tuple[int, int]] = set()  # rows of members whose slices are dropped
        self._dropped: set[str] = set()  # these slices

    def look(self) -> RunSnapshot:
        """Return what is known now.

        Raises:
            ServiceFaultError: the store does not answer.
        """
        if self._summary is None:
            self._summary = self._records.find_summary()
        if self._summary is None:
            return RunSnapshot()
        seen = RunSnapshot(self._summary)
        tasks = [task for task in self._records.list_tasks() if task not in self._done]
        fresh = map_ahead(self._find_report, tasks, READERS)
        for task, report in zip(tasks, fresh, strict=True):
            if report is not None and report.unfinished == 0:
                self._done[task] = report
                if report.failed and len(seen.failures) < self._listed:
                    seen.failures += self._failures(task)
        latest = {outcome.key: (task, outcome) for task, outcome in seen.failures}  # retries last
        seen.failures = list(latest.values())[: self._listed]
        self._drop_slices()
        self._add_up(seen)
        if self._summary.scans and not self._done:
            seen.scans = self._records.count_scan_reports()
        return seen

    def _drop_slices(self) -> None:
        """Find the slices whose members are streamed again whole; these bytes are not done."""
        if not any(report.parts > 1 for report in self._done.values()):
            return
        streamed = find_streamed(self._records) - self._streamed
        if streamed:
            self._streamed |= streamed
            slices = (task for task in self._records.tasks() if task.parts > 1)
            self._dropped |= {task.id for task in slices if task.rows in streamed}

    def _add_up(self, seen: RunSnapshot) -> None:
        seen.tasks = len(self._done)
        for task, report in self._done.items():
            if task not in self._dropped:
                seen.counts.update(counts_of(report))
            seen.counts.update(
                bytes_read=report.bytes_read,
                bytes_copied=report.bytes_written if report.kind is TaskKind.COPY else 0,
                bytes_written=report.bytes_written,
            )
            seen.throttled += report.requests.throttled
            seen.retries += report.requests.retries
        firsts = [r.first_object for r in self._done.values() if r.first_object is not None]
        seen.first_object = min(firsts, default=None)

    def _find_report(self, task: str) -> TaskReport | None:
        try:
            return self._records.find_task_report(task)
        except ServiceFaultError:  # the next look may succeed
            return None

    def _failures(self, task: str) -> list[tuple[str, Outcome]]:
        found = self._records.find_outcomes(task)
        outcomes = found.outcomes if found is not None else []
        failed = [outcome for outcome in outcomes if outcome.status is Status.FAILED]
        return [(task, outcome) for outcome in failed[: self._listed]]
