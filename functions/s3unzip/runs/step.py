"""One step of a run: a plan, a scan, a link, a task or a report, with what it works with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from s3unzip.errors import DeadlineError
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.context import Context
    from s3unzip.errors import Finding
    from s3unzip.model import PlannedMember, Run
    from s3unzip.stores.calls import Calls


class Step:
    """What a step has: its run, the run's records, its calls, and what it read and noted.

    Args:
        run: the run.
        name: of the step, for messages; of a task or scan, its id.
        context: of the worker.
        calls: retries and counts the requests of this step.
    """

    def __init__(self, run: Run, name: str, context: Context, calls: Calls) -> None:
        stores = context.stores
        self.run = run
        self.name = name
        self.context = context
        self.calls = calls
        self.started = context.clock.now()  # Unix seconds
        self.records = RunRecords.open(stores, run.id, calls)
        self.archive = stores.source(run.source).pinned(run.source, run.pin)
        self.destination = stores.destination(run.destination)
        self.bytes_read = 0  # of the archive
        self.warnings: Counter[str] = Counter()  # by code

    def read_rows(self, span: tuple[int, int]) -> list[PlannedMember]:
        """Return the members of a task: those in bytes [start, stop) of the member list."""
        return self.records.read_rows(span, self.run.key_prefix)

    def add_read(self, count: int) -> None:
        """Count bytes that were read of the archive."""
        self.bytes_read += count

    def warned(self, findings: Iterable[Finding]) -> None:
        """Count warnings by their code."""
        for finding in findings:
            self.warnings[finding.code] += 1

    def check_time(self) -> None:
        """Check that the worker may go on.

        Raises:
            DeadlineError: its time limit is near.
        """
        margin = self.context.tuning.margin_seconds
        if self.context.clock.remaining() < margin:
            raise DeadlineError(f"{self.name}: {margin:.0f} s before the worker's time limit")
