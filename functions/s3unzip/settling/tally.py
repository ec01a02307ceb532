"""The result of a run: sums over its tasks, scans and members."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from s3unzip.model import Failure, Outcome, Requests, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from s3unzip.model import ScanReport, TaskReport


class Tally(Struct):
    """Sums over tasks and outcomes; the listed failures bound the memory."""

    listed: int
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    tasks: int = 0
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None
    retried: Collection[int] = ()  # members with a later outcome than that of the plan's task

    def add_task(self, report: TaskReport) -> None:
        """Add the cost of one task."""
        self.tasks += 1
        self.requests = self.requests + report.requests
        self.bytes_read += report.bytes_read
        self.bytes_written += report.bytes_written
        self.task_seconds += report.seconds
        self.warnings.update(report.warnings)
        first = report.first_object
        if first is not None and (self.first_object is None or first < self.first_object):
            self.first_object = first

    def add_scans(self, scans: Sequence[ScanReport]) -> None:
        """Add the cost of the scans."""
        for scan in scans:
            self.requests = self.requests + scan.requests
            self.bytes_read += scan.bytes_read
            self.task_seconds += scan.seconds

    def add(self, outcome: Outcome, task: str) -> None:
        """Add one member; a retried member counts by its last outcome."""
        if outcome.index not in self.retried:
            self.add_last(outcome, task)

    def add_last(self, outcome: Outcome, task: str) -> None:
        """Add one member by its last outcome."""
        self.counts[outcome.status] += 1
        if outcome.status is not Status.FAILED:
            return
        reason = outcome.reason or "unknown"
        self.reasons[reason] += 1
        if len(self.failures) < self.listed:
            self.failures.append(
                Failure(
                    outcome.key,
                    reason,
                    outcome.message or "",
                    outcome.index,
                    outcome.offset,
                    task,
                )
            )

    @property
    def members(self) -> int:
        """Members with an outcome."""
        return self.counts.total()
