"""The work of a forecast: the tasks that the planner cut, and their sums."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import rates
from s3unzip.model import TaskKind
from s3unzip.planning.cut import choose_concurrency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.model import PlanSummary, Task
    from s3unzip.settings import Tuning


class Bin(Struct, frozen=True):
    """The number of members with `start` to below `stop` uncompressed bytes."""

    start: int
    stop: int
    members: int


class Workload(Struct, frozen=True):
    """Tasks in the order they start, and their sums; sizes in bytes."""

    title: str
    tasks: tuple[Task, ...]
    members: int
    kinds: dict[str, int]  # members by task kind
    bytes_in: int  # bytes that are read from the archive or copied
    bytes_out: int
    directory_bytes: int
    rows_bytes: int  # members.jsonl
    at_once: int  # the concurrency that the planner requests
    sizes: tuple[Bin, ...] = ()


def make_workload(
    tasks: Iterable[Task],
    tuning: Tuning,
    *,
    title: str,
    sizes: tuple[Bin, ...] = (),
    summary: PlanSummary | None = None,
) -> Workload:
    """Return the workload of `tasks`, which come in the order they start.

    Args:
        tasks: lines of plan.jsonl.
        tuning: the settings with which the tasks were cut.
        title: the name of the workload.
        sizes: a histogram of the members' sizes, see `count_sizes`.
        summary: of the plan, if there is one; it has the requests for the directory.
    """
    listed = tuple(tasks)
    kinds: Counter[str] = Counter()
    bytes_in = bytes_out = rows = 0
    for task in listed:
        if task.part == 0:
            kinds[task.kind.value] += task.members
        bytes_in += task.span[1] - task.span[0]
        bytes_out += task.size
        rows = max(rows, task.rows[1])
    members = sum(kinds.values())
    return Workload(
        title=title,
        tasks=listed,
        members=members,
        kinds={kind.value: kinds[kind.value] for kind in TaskKind if kinds[kind.value]},
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        directory_bytes=summary.bytes_read if summary else members * rates.DIRECTORY_ENTRY,
        rows_bytes=rows,
        at_once=summary.concurrency if summary else choose_concurrency(listed, tuning),
        sizes=sizes,
    )


def count_sizes(sizes: Iterable[int]) -> tuple[Bin, ...]:
    """Return a histogram of `sizes` (bytes) with bins that double; empty bins are left out."""
    counts = Counter(map(int.bit_length, sizes))
    return tuple(
        Bin(1 << (bits - 1) if bits else 0, 1 << bits, count)
        for bits, count in sorted(counts.items())
    )
