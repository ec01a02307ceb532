"""Watching: what can be known of a run from its records while it goes on.

Each finished task leaves its report as the first line of its outcomes; only that line is read, and
the outcomes behind it only where members failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, field

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Outcome, PlanSummary, Status, Task, TaskKind, TaskReport
from s3unzip.runs.records import MEMBER, PLAN_TASK, RunRecords
from s3unzip.stores.calls import map_ahead

READERS = 16  # outcomes that are read at once


def count_progress(reports: Iterable[TaskReport], next_tasks: Iterable[Task] = ()) -> Counter[str]:
    """Return what the progress is told of tasks on record.

    A scan has no members of its own, nor has a slice: settling gives the split member its outcome.
    The slices of a member that is streamed in the end do not count.
    """
    counts: Counter[str] = Counter()
    known = {report.task: report for report in reports}
    streams = {task.id for task in next_tasks if task.kind is TaskKind.STREAM} | known.keys()
    for task, report in known.items():
        kind, member, *part = task.split("-")
        if kind in {"slice", "copy"} and part and f"stream-{member}" in streams:
            continue
        if report.kind is not TaskKind.SCAN:
            counts.update(
                extracted=report.extracted,
                unchanged=report.unchanged,
                failed=report.failed,
                bytes_done=report.bytes_done,
                bytes_written=report.bytes_written,
                bytes_copied=report.bytes_written if report.kind is TaskKind.COPY else 0,
            )
        counts.update(bytes_read=report.bytes_read)
    return counts


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


class RunSnapshot(Struct):
    """What is known of a run by now; counts are of finished tasks."""

    summary: PlanSummary | None = None  # None: the plan is still made
    rounds: int = 0
    tasks: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # as ports.Progress knows them
    throttled: int = 0
    retries: int = 0
    first_object: float | None = None  # Unix seconds
    failures: list[tuple[str, Outcome]] = field(default_factory=list)  # new ones, with their task


class RunWatcher:
    """Reads one run's records, again and again, and only what is new."""

    def __init__(self, records: RunRecords, listed: int = 20) -> None:
        self._records = records
        self._listed = listed  # failures shown at each time
        self._summary: PlanSummary | None = None
        self._done: dict[str, TaskReport] = {}

    def read(self) -> RunSnapshot:
        """Return what is known now; `ServiceFaultError` where the store does not answer."""
        if self._summary is None:
            self._summary = self._records.find_plan()
        if self._summary is None:
            return RunSnapshot()
        failures: dict[str, tuple[str, Outcome]] = {}
        known = {*self._done, PLAN_TASK}
        tasks = [task for task in self._records.list_outcomes() if task not in known]
        fresh = map_ahead(self._find_report, tasks, READERS)
        for task, report in zip(tasks, fresh, strict=True):
            if report is not None and report.unfinished == 0:
                self._done[task] = report
                if report.failed and len(failures) < self._listed:
                    failures |= {one.key: (task, one) for one in self._find_failures(task)}
        reports = self._done.values()
        firsts = [report.first_object for report in reports if report.first_object is not None]
        return RunSnapshot(
            self._summary,
            rounds=len(self._records.list_rounds()),
            tasks=sum(not task.startswith(MEMBER) for task in self._done),
            counts=count_progress(reports),
            throttled=sum(report.requests.throttled for report in reports),
            retries=sum(report.requests.retries for report in reports),
            first_object=min(firsts, default=None),
            failures=list(failures.values())[: self._listed],
        )

    def _find_report(self, task: str) -> TaskReport | None:
        try:
            return self._records.find_task_report(task)
        except ServiceFaultError:  # it is read at the next time
            return None

    def _find_failures(self, task: str) -> list[Outcome]:
        found = self._records.find_outcomes(task)
        outcomes = found.outcomes if found is not None else []
        return [one for one in outcomes if one.status is Status.FAILED][: self._listed]
