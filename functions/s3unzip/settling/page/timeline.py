"""Bins a table of tasks over time: phases, rows of the timeline, rates, durations.

A task's members and bytes are spread evenly over its time, because an outcome has no timestamp.
"""

from __future__ import annotations

import math
from itertools import accumulate
from operator import add, sub
from statistics import median, quantiles
from typing import TYPE_CHECKING

from s3unzip.model import TaskKind
from s3unzip.settling.page.data import Durations, Phase, Rates, TaskRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.model import PlanSummary, Report
    from s3unzip.settling.page.data import TaskTable

ROWS = 120  # of the timeline
STEPS = 240  # of the rates
BINS = 32  # of the durations
# Units that people use: parts of a second, seconds, minutes, hours.
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
    places: dict[int, list[int]] = {number: [] for number in range(len(TaskKind))}
    for place, kind in enumerate(table.kind):
        places[kind].append(place)
    present = [number for number in places if places[number]]
    found = []
    for number in present:
        mine = sorted(places[number], key=lambda at: (table.start[at], table.seconds[at]))
        share = max(1, (ROWS - len(present)) * len(mine) // len(table.kind))
        pieces = _cut(mine, min(len(mine), share))
        found += [_row(list(TaskKind)[number], table, some, origin) for some in pieces]
    return tuple(found)


def _cut(places: Sequence[int], pieces: int) -> Iterator[Sequence[int]]:
    """Yield `pieces` slices of `places`; their lengths differ by one at most."""
    length, more = divmod(len(places), pieces)
    start = 0
    for piece in range(pieces):
        stop = start + length + (piece < more)
        yield places[start:stop]
        start = stop


def _row(kind: TaskKind, table: TaskTable, places: Sequence[int], origin: float) -> TaskRow:
    start = [table.start[at] - origin for at in places]
    seconds = [table.seconds[at] for at in places]
    middle = median(start)
    return TaskRow(
        kind=kind.value,
        tasks=len(places),
        first=round(min(start), 3),
        last=round(max(map(add, start, seconds)), 3),
        start=round(middle, 3),
        stop=round(middle + median(seconds), 3),
        members=int(sum(table.members[at] for at in places)),
    )


def rates(table: TaskTable, origin: float) -> Rates:
    """Return workers, members and bytes over time in at most `STEPS` equal steps."""
    if not table.start:
        return Rates()
    start = [at - origin for at in table.start]
    # A task may be shorter than the clock's resolution; its work still counts.
    stop = [at + max(seconds, 0.001) for at, seconds in zip(start, table.seconds, strict=True)]
    end = max(stop)
    step = _round_step(end / STEPS)
    steps = math.ceil(round(end / step, 9))
    workers, members, written = (
        _per_second(zip(start, stop, amount, strict=True), step, steps)
        for amount in (map(sub, stop, start), table.members, table.written)
    )
    return Rates(
        step=step,
        workers=tuple(round(value, 2) for value in workers),
        max_at_once=_count_at_once(start, stop),
        members=tuple(round(value, 2) for value in members),
        bytes=tuple(float(round(value)) for value in written),
    )


def _count_at_once(start: Iterable[float], stop: Iterable[float]) -> int:
    """Return the maximum of concurrent tasks; equal stop and start do not overlap."""
    moments = sorted([*((at, 1) for at in start), *((at, -1) for at in stop)])
    return max(accumulate(change for _, change in moments))


def _per_second(
    spans: Iterable[tuple[float, float, float]], step: float, steps: int
) -> list[float]:
    """Return the rate (amount a second) of each step.

    Args:
        spans: start, stop and amount, which is spread evenly between the two.
        step: seconds.
        steps: how many.
    """
    ends = [0.0] * steps  # amounts in the first and the last step of each span
    change = [0.0] * (steps + 1)  # differences of the amounts in the steps between
    for start, stop, amount in spans:
        rate = amount / (stop - start)
        first, last = (min(int(moment / step), steps - 1) for moment in (start, stop))
        if first == last:
            ends[first] += amount
            continue
        ends[first] += rate * ((first + 1) * step - start)
        ends[last] += rate * (stop - last * step)
        change[first + 1] += rate * step
        change[last] -= rate * step
    # Rounding errors can make these sums slightly negative.
    whole = accumulate(change)
    return [max(0.0, part + inner) / step for part, inner in zip(ends, whole, strict=False)]


def idle_seconds(table: TaskTable) -> float:
    """Return how long no task ran, between the first start and the last stop."""
    idle, reached = 0.0, 0.0
    for start, seconds in sorted(zip(table.start, table.seconds, strict=True)):
        if reached and start > reached:
            idle += start - reached
        reached = max(reached, start + seconds)
    return idle


def durations(table: TaskTable) -> Durations:
    """Return how long tasks took."""
    if not table.seconds:
        return Durations()
    ordered = sorted(table.seconds)
    longest = ordered[-1]
    step = _round_step(longest / BINS)
    bins = [0] * (int(longest / step) + 1)
    for seconds in ordered:
        bins[int(seconds / step)] += 1
    return Durations(
        step=step,
        tasks=tuple(bins),
        median=round(median(ordered), 3),
        p95=round(_p95(ordered), 3),
        longest=round(longest, 3),
    )


def _p95(ordered: Sequence[float]) -> float:
    return quantiles(ordered, n=20, method="inclusive")[-1] if len(ordered) > 1 else ordered[0]


def _round_step(minimum: float) -> float:
    """Return the smallest round step of at least `minimum` seconds."""
    return next((step for step in NICE if step >= minimum), float(math.ceil(minimum)))
