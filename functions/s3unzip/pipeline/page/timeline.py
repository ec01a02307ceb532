"""Bins a table of tasks over time: phases, rows of the timeline, rates, durations.

A task's members and bytes are spread evenly over its time: an outcome has no
clock of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from s3unzip.pipeline.model import TaskKind
from s3unzip.pipeline.page.data import Durations, Phase, Rates, TaskRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s3unzip.pipeline.model import PlanSummary, Report
    from s3unzip.pipeline.page.tables import TaskTable

    Floats = NDArray[np.float64]

ROWS = 120  # of the timeline
STEPS = 240  # of the rates
BINS = 32  # of the durations
# What a reader counts in: parts of a second, seconds, minutes, hours.
NICE = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
        60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)  # fmt: skip


def phases(
    report: Report,
    summary: PlanSummary | None,
    table: TaskTable,
    steps: Sequence[Phase],
    origin: float,
) -> tuple[Phase, ...]:
    """Return the run's steps in order of time, in seconds from `origin`."""
    began = summary.started if summary and summary.started else report.started
    planned = began + report.plan_seconds
    found = [Phase("plan", began, planned)] if report.plan_seconds else []
    found += steps
    if table.start:
        first = min(table.start)
        last = max(s + d for s, d in zip(table.start, table.seconds, strict=True))
        if not steps and summary is not None and summary.scans:
            found.append(Phase("scan, link", planned, max(planned, first)))
        found.append(Phase("extract", first, last))
        found.append(Phase("report", last, max(last, report.finished)))
    return tuple(
        Phase(p.name, round(p.start - origin, 3), round(p.stop - origin, 3)) for p in found
    )


def rows(table: TaskTable, origin: float) -> tuple[TaskRow, ...]:
    """Return at most `ROWS` rows: each kind's tasks in order of their start, cut evenly."""
    kind = np.array(table.kind, dtype=np.int8)
    start, seconds, members = (
        _floats(table.start) - origin,
        *map(_floats, (table.seconds, table.members)),
    )
    found = []
    present = [number for number in range(len(TaskKind)) if (kind == number).any()]
    for number in present:
        mine = np.flatnonzero(kind == number)
        mine = mine[np.lexsort((seconds[mine], start[mine]))]
        share = max(1, int((ROWS - len(present)) * len(mine) / len(kind)))
        found += [
            _row(list(TaskKind)[number], start[some], seconds[some], members[some])
            for some in np.array_split(mine, min(len(mine), share))
        ]
    return tuple(found)


def _row(kind: TaskKind, start: Floats, seconds: Floats, members: Floats) -> TaskRow:
    middle = float(np.median(start))
    return TaskRow(
        kind=kind.value,
        tasks=len(start),
        first=round(float(start.min()), 3),
        last=round(float((start + seconds).max()), 3),
        start=round(middle, 3),
        stop=round(middle + float(np.median(seconds)), 3),
        members=int(members.sum()),
    )


def rates(table: TaskTable, origin: float) -> Rates:
    """Return workers, members and bytes over time in at most `STEPS` equal steps."""
    if not table.start:
        return Rates()
    start = _floats(table.start) - origin
    # A task shorter than the clock's tick still did its work at some time.
    seconds = _floats(table.seconds).clip(min=0.001)
    end = float((start + seconds).max())
    step = _nice(end / STEPS)
    edges = np.arange(int(np.ceil(round(end / step, 9))) + 1, dtype=np.float64) * step
    workers, members, written = (
        _per_second(start, seconds, amount, edges)
        for amount in (seconds, _floats(table.members), _floats(table.written))
    )
    return Rates(
        step=step,
        workers=tuple(round(value, 2) for value in workers),
        most=_most(start, start + seconds),
        members=tuple(round(value, 2) for value in members),
        bytes=tuple(float(round(value)) for value in written),
    )


def _most(start: Floats, stop: Floats) -> int:
    """Return how many tasks ran at one moment; one that stops makes room for one that starts."""
    moments = np.concatenate([stop, start])
    change = np.concatenate([-np.ones(len(stop)), np.ones(len(start))])
    return int(np.cumsum(change[np.lexsort((change, moments))]).max())


def _per_second(start: Floats, seconds: Floats, amount: Floats, edges: Floats) -> list[float]:
    """Return how much of `amount`, spread evenly over each task, falls between two edges."""
    done = [float((amount * np.clip((edge - start) / seconds, 0, 1)).sum()) for edge in edges]
    return [(after - before) / float(edges[1]) for before, after in pairwise(done)]


def durations(table: TaskTable) -> Durations:
    """Return how long tasks took."""
    if not table.seconds:
        return Durations()
    seconds = _floats(table.seconds)
    longest = float(seconds.max())
    step = _nice(longest / BINS)
    bins = np.bincount((seconds / step).astype(np.int64))
    median, p95 = np.percentile(seconds, [50, 95])
    return Durations(
        step=step,
        tasks=tuple(int(count) for count in bins),
        median=round(float(median), 3),
        p95=round(float(p95), 3),
        longest=round(longest, 3),
    )


def _nice(least: float) -> float:
    """Return the smallest nice step that is not below `least`, in seconds."""
    return next((step for step in NICE if step >= least), float(np.ceil(least)))


def _floats(column: Sequence[float]) -> Floats:
    return np.array(column, dtype=np.float64)
