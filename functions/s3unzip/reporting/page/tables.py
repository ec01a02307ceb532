"""Tables that take one task or one member at a time, in bounded memory.

A task takes 41 bytes, a member none. The report step reads the outcomes anyway and fills these
tables at the same time.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import structs

from s3unzip.model import TaskKind
from s3unzip.reporting.page.data import SizeBin, SlowTask
from s3unzip.reporting.page.document import clip

if TYPE_CHECKING:
    from s3unzip.model import TaskReport

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
