"""What a task says of its members, and the object it says it in.

``outcomes/<task>.jsonl``: the task's report on the first line, then one
outcome a line. Written once, when the task ends or its time runs out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import (
    Outcome,
    Status,
    TaskReport,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.context import Context
    from s3unzip.errors import Finding
    from s3unzip.model import MemberRow, Part, Task
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import RunStore

TICK = 0.2  # seconds between two words to the progress display


@dataclass(slots=True)
class OutcomeLog:
    """Gathers the outcomes of one task; any thread may add."""

    run: str
    task: Task
    context: Context
    calls: Calls
    started: float
    outcomes: list[Outcome] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    put_seconds: list[float] = field(default_factory=list)
    first_object: float | None = None
    uploaded: tuple[Part, ...] = ()
    upload_id: str | None = None
    slice_done: bool = False  # a slice of a split member has no outcome: settling gives one
    _earlier: TaskReport | None = None  # of the attempts before this one
    _told: int = 0
    _told_read: int = 0
    _next_tick: float = 0.0

    @property
    def work(self) -> RunStore:
        """The run store; its requests are counted and retried by the calls of this task."""
        return self.context.stores.run_store(self.run, self.calls)

    def extracted(
        self,
        row: MemberRow,
        seconds: float,
        size: int | None = None,
        etag: str | None = None,
    ) -> None:
        """Note that a member is whole and right in the destination.

        Args:
            row: the member.
            seconds: how long the PUT or the Complete took.
            size: bytes of the object, where it is not the member's own size.
            etag: as the store answered, without quotes; None if it did not say.
        """
        written = row.size if size is None else size
        self.put_seconds.append(seconds)
        if self.first_object is None:
            self.first_object = self.context.clock.now()
        self.outcomes.append(
            Outcome(row.index, row.key, Status.EXTRACTED, written, row.crc32, etag=etag)
        )

    def unchanged(self, row: MemberRow) -> None:
        """Note that the destination already has exactly this member."""
        self.outcomes.append(Outcome(row.index, row.key, Status.UNCHANGED, row.size, row.crc32))

    def failed(self, row: MemberRow, finding: Finding) -> None:
        """Note why a member is not in the destination."""
        self.outcomes.append(Outcome.failed(row.index, row.key, finding))

    def resume(self, earlier: TaskOutcomes) -> None:
        """Take over what an earlier attempt of the task finished, and what it cost."""
        self.outcomes.extend(earlier.outcomes)
        self._told = len(self.outcomes)
        self._earlier = earlier.report
        self.first_object = earlier.report.first_object
        self.warnings.update(earlier.report.warnings)

    def warned(self, findings: Iterable[Finding]) -> None:
        """Count warnings by their code."""
        for finding in findings:
            self.warnings[finding.code] += 1

    def tick(self, *, now: bool = False) -> None:
        """Tell the progress display what is new, a few times a second."""
        progress = self.context.progress
        if progress is None:
            return
        time = self.context.clock.now()
        if not now and time < self._next_tick:
            return
        self._next_tick = time + TICK
        new = self.outcomes[self._told :]
        self._told += len(new)
        counts: Counter[str] = Counter(outcome.status.value for outcome in new)
        counts["bytes_written"] = sum(o.size for o in new if o.status is Status.EXTRACTED)
        counts["bytes_read"] = self.bytes_read - self._told_read
        self._told_read = self.bytes_read
        progress.finished(counts)

    def report(self) -> TaskReport:
        """Return the task's report as of now, what earlier attempts cost included."""
        before = self._earlier or TaskReport(self.task.id, self.task.kind, 0, started=self.started)
        seconds = self.context.clock.now() - self.started
        counts = Counter(outcome.status for outcome in self.outcomes)
        task = self.task
        return TaskReport(
            task=task.id,
            kind=task.kind,
            members=task.members,
            extracted=counts[Status.EXTRACTED],
            unchanged=counts[Status.UNCHANGED],
            failed=counts[Status.FAILED],
            bytes_read=before.bytes_read + self.bytes_read,
            bytes_written=self._written(),
            requests=before.requests + self.calls.requests,
            started=before.started,
            seconds=round(before.seconds + seconds, 6),
            first_object=self.first_object,
            put_seconds=round(before.put_seconds + sum(self.put_seconds), 6),
            part=task.part,
            parts=task.parts,
            uploaded=self.uploaded,
            upload_id=self.upload_id,
            warnings=dict(self.warnings),
            unfinished=self._unfinished(),
        )

    def write(self) -> TaskReport:
        """Write the outcomes to the work store; return the task's report."""
        self.tick(now=True)
        report = self.report()
        lines = [encode(report), *(encode(outcome) for outcome in self.outcomes), b""]
        self.work.write(run_files.outcomes(self.task.id), [b"\n".join(lines)])
        return report

    def _written(self) -> int:
        if self.uploaded:
            return sum(part.size for part in self.uploaded)
        return sum(o.size for o in self.outcomes if o.status is Status.EXTRACTED)

    def _unfinished(self) -> int:
        return 0 if self.slice_done else self.task.members - len(self.outcomes)


@dataclass(frozen=True, slots=True)
class TaskOutcomes:
    """What is on record of one task."""

    report: TaskReport
    outcomes: list[Outcome]

    @property
    def complete(self) -> bool:
        """Whether the task left nothing to do."""
        return self.report.unfinished == 0


def read_outcomes(work: RunStore, task: str) -> TaskOutcomes | None:
    """Return what is on record of `task`; None: nothing yet."""
    try:
        lines = work.read(run_files.outcomes(task)).splitlines()
    except NotFoundError:
        return None
    return TaskOutcomes(
        decode(lines[0], TaskReport), [decode(line, Outcome) for line in lines[1:] if line]
    )


def iterate_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut a stream of pieces into lines; memory is bounded by a piece and a line."""
    rest = b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        yield from lines
    if rest:
        yield rest
