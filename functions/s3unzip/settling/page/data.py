"""The data of the report page, reduced to what fits on the page.

Times are seconds since the run began, sizes are bytes, money is US dollars. No value grows with the
archive: `page.collection` bins, ranks and clips.
The page's script reads these values as JSON; a list of bare numbers below is
an `array_like` struct, in the order of its fields.

The tables take one task or one member at a time, in bounded memory: a task takes 41 bytes, a member
none. The report step reads the outcomes anyway and fills these tables at the same time.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from s3unzip.model import Requests, TaskKind, Verdict  # msgspec reads them
from s3unzip.settling.page.document import clip

if TYPE_CHECKING:
    from s3unzip.model import TaskReport


class SizeBin(Struct, frozen=True, array_like=True):
    """Members of ``2**(bits-1)`` to ``2**bits - 1`` bytes; `bits` 0 are the empty ones."""

    bits: int
    members: int
    bytes: int


class Phase(Struct, frozen=True, array_like=True):
    """One step of the run: plan, scan, link, extract or report."""

    name: str
    start: float
    stop: float


class CostRow(Struct, frozen=True, array_like=True):
    """What one item of a bill costs, in dollars."""

    service: str
    item: str
    basis: str  # "1,000,450 requests"
    forecast: float | None
    actual: float | None


class TaskRow(Struct, frozen=True, array_like=True):
    """One row of the timeline: tasks of one kind that began one after the other."""

    kind: str
    tasks: int
    first: float  # the earliest start
    last: float  # the latest stop
    start: float  # medians
    stop: float
    members: int


class SlowTask(Struct, frozen=True, array_like=True):
    """One of the tasks that took longest."""

    task: str
    kind: str
    start: float
    seconds: float
    members: int
    bytes_written: int
    failed: int
    retries: int
    throttled: int


class Rates(Struct, frozen=True):
    """The extraction over time, in equal steps from 0."""

    step: float = 1.0
    workers: tuple[float, ...] = ()  # tasks running, mean of the step
    max_at_once: int = 0  # maximum of concurrent tasks
    members: tuple[float, ...] = ()  # a second
    bytes: tuple[float, ...] = ()  # written, a second


class Durations(Struct, frozen=True):
    """How long tasks took; bin k holds those of ``k * step`` to ``(k + 1) * step`` seconds."""

    step: float = 1.0
    tasks: tuple[int, ...] = ()
    median: float = 0.0
    p95: float = 0.0
    longest: float = 0.0


class FailedMember(Struct, frozen=True, array_like=True):
    """A failure as the table shows it."""

    key: str  # relative to the destination
    reason: str
    message: str
    offset: int | None
    task: str | None


class Comparison(Struct, frozen=True, array_like=True):
    """One forecast figure and the actual figure."""

    name: str
    unit: str  # seconds, dollars, count or bytes
    forecast: float
    actual: float | None
    low: float | None = None
    high: float | None = None


class Totals(Struct, frozen=True):
    """The figures of the first screen."""

    members: int
    directories: int
    excluded: int
    extracted: int
    unchanged: int
    failed: int
    missing: int
    tasks: int
    tasks_failed: int
    bytes_in: int
    bytes_out: int
    requests: Requests
    seconds: float
    plan_seconds: float
    task_seconds: float
    idle_seconds: float  # no task ran: between a run and its redrive or retry
    first_object: float | None  # seconds after `first_object_since`
    first_object_since: str  # "the upload" or "the start"
    cost: float | None


class Reason(Struct, frozen=True, array_like=True):
    """A code, how many members it is about, and what it means in words."""

    code: str
    members: int
    sentence: str
    advice: str


class PageData(Struct, frozen=True):
    """All data of one report page."""

    run: str
    archive: str  # last part of the source
    verdict: Verdict
    continues: bool  # a later round does the tasks that are left
    reason: str | None
    message: str | None
    offset: int | None  # in the archive, of what the message is about
    advice: str | None  # of the reason
    verified: bool  # each member was compared with the directory's CRC-32
    source: str
    destination: str
    started: float  # Unix seconds
    finished: float
    totals: Totals
    phases: tuple[Phase, ...]
    rows: tuple[TaskRow, ...]
    rates: Rates
    durations: Durations
    slowest: tuple[SlowTask, ...]
    sizes: tuple[SizeBin, ...]
    reasons: tuple[Reason, ...]  # most frequent first
    warnings: tuple[Reason, ...]
    failures: tuple[FailedMember, ...]
    comparisons: tuple[Comparison, ...]
    difference: str  # why times are left out, or are not as forecast; empty: there is no need
    costs: tuple[CostRow, ...]
    details: tuple[tuple[str, str], ...]  # name and value: pin, options
    next: str | None  # the command that goes on from here
    version: str  # of s3unzip


KINDS = tuple(TaskKind)
SLOWEST = 12  # tasks listed by name
NAME_CHARS = 100  # of a task's id


class TaskTable:
    """Columns of numbers, one row a task, in the order of arrival."""

    def __init__(self) -> None:
        self.kind = array("b")  # index in KINDS
        self.start = array("d")  # Unix seconds
        self.seconds = array("d")
        self.members = array("d")
        self.written = array("d")  # bytes
        self._slowest: list[tuple[float, str, TaskReport]] = []

    def add(self, task: TaskReport) -> None:
        """Add one task; a task that never began has no times and is left out."""
        if task.started <= 0:
            return
        self.kind.append(KINDS.index(task.kind))
        self.start.append(task.started)
        self.seconds.append(max(0.0, task.seconds))
        self.members.append(task.extracted + task.unchanged)
        self.written.append(task.bytes_written)
        # The parts of a split member are a long list, which the page does not need.
        entry = (task.seconds, task.task, structs.replace(task, uploaded=(), warnings={}))
        if len(self._slowest) < SLOWEST:
            heapq.heappush(self._slowest, entry)
        elif entry[:2] > self._slowest[0][:2]:
            heapq.heapreplace(self._slowest, entry)

    def slowest(self, origin: float) -> tuple[SlowTask, ...]:
        """Return the tasks that took longest, the longest first."""
        ranked = sorted(self._slowest, key=lambda entry: (-entry[0], entry[1]))
        return tuple(
            SlowTask(
                task=clip(task.task, NAME_CHARS),
                kind=task.kind.value,
                start=round(task.started - origin, 3),
                seconds=round(task.seconds, 3),
                members=task.members,
                bytes_written=task.bytes_written,
                failed=task.failed,
                retries=task.requests.retries,
                throttled=task.requests.throttled,
            )
            for _, _, task in ranked
        )


class SizeTable:
    """Sizes of members in bytes, counted by powers of two."""

    def __init__(self) -> None:
        self._members: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()

    def add(self, size: int, members: int = 1) -> None:
        """Add members of one size."""
        bits = size.bit_length()
        self._members[bits] += members
        self._bytes[bits] += size * members

    def bins(self) -> tuple[SizeBin, ...]:
        """Return the histogram, smallest first; empty bins are left out."""
        return tuple(SizeBin(b, self._members[b], self._bytes[b]) for b in sorted(self._members))
