"""The lists of a run's work: which Map of the state machine does each, and with how many workers.

A run has at most three lists: tasks of whole members, scans of segments, and slices of split
members. The first is worked off beside the other two, so both sides share the run's workers.
"""

from __future__ import annotations

import heapq
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from s3unzip import rates
from s3unzip.model import TaskKind
from s3unzip.planning.cutting import choose_concurrency

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s3unzip.model import Task
    from s3unzip.settings import Tuning


# Slices may wait for the link step in their children, whose life is bounded: only short ones do.
MAX_OVERLAP_SECONDS = 60.0

L = TypeVar("L")
S = TypeVar("S")


class WorkList(StrEnum):
    """A list of work; the fields of an execution's input that concern it have its name."""

    WHOLE = "whole"  # tasks of members that are one task, or part of a batch
    SCAN = "scan"  # scans of the segments of split members
    SLICES = "slices"  # tasks of split members


class Shares(NamedTuple):
    """How many workers each side of a run may use at once; at least one each."""

    whole: int
    split: int  # scans, and later slices


def divide_tasks(tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """Return the tasks of whole members and those of split members, each in the given order."""
    whole: list[Task] = []
    slices: list[Task] = []
    for task in tasks:
        (slices if task.parts > 1 else whole).append(task)
    return whole, slices


def mix(long: Sequence[L], short: Sequence[S], at_once: int) -> list[L | S]:
    """Return two lists by turns: first one of `short`, then as many of `long` as run beside it.

    One worker does all of `short` first, so that its results are there early.
    """
    mixed: list[L | S] = []
    beside = max(0, at_once - 1)
    turns = 0 if beside else len(short)
    mixed += short[:turns]
    for turn, one in enumerate(short[turns:]):
        mixed += [one, *long[turn * beside : (turn + 1) * beside]]
    return mixed + list(long[(len(short) - turns) * beside :])


def share_workers(tasks: Iterable[Task], tuning: Tuning) -> Shares:
    """Return the workers of both sides: together at most `max_workers`, but at least one each.

    If there are not enough for both, each side has a share by its forecast seconds, so that both
    end at about the same time. A slice is scanned and extracted, so its seconds count twice.
    """
    whole, slices = divide_tasks(tasks)
    wanted = Shares(choose_concurrency(whole, tuning), choose_concurrency(slices, tuning))
    if not whole or not slices or sum(wanted) <= tuning.max_workers:
        return wanted
    short = sum(task.seconds for task in whole)
    long = 2 * sum(task.seconds for task in slices)
    share = round(tuning.max_workers * short / (short + long)) if short + long else 1
    first = min(wanted.whole, max(1, share))
    second = max(1, min(wanted.split, tuning.max_workers - first))
    return Shares(max(1, min(wanted.whole, tuning.max_workers - second)), second)


def choose_inline(
    tasks: Iterable[Task], shares: Shares, tuning: Tuning
) -> Mapping[WorkList, Sequence[Task]]:
    """Return the lists that an inline Map does, each with its tasks; a scan's is its segment.

    An inline Map does at most 40 items at once, and each item adds events to the execution's
    history. So all inline lists together have at most `max_inline_tasks` items, and a list is
    inline only if that ends no later than a Distributed Map, whose start and end take seconds. An
    empty list is always inline.
    """
    whole, slices = divide_tasks(tasks)
    lists = {
        WorkList.WHOLE: (whole, shares.whole),
        WorkList.SCAN: ([one for one in slices if one.kind is TaskKind.SEGMENT], shares.split),
        WorkList.SLICES: (slices, shares.split),
    }
    chosen = {}
    left = tuning.max_inline_tasks
    for name, (listed, at_once) in sorted(lists.items(), key=lambda one: len(one[1][0])):
        if len(listed) <= left and _is_sooner_inline(listed, at_once):
            chosen[name] = listed
            left -= len(listed)
    return chosen


def can_overlap(scans: int, slices: int, at_once: int, longest: float) -> bool:
    """Say whether the slices of split members may wait for the link step beside the scans.

    Their Map then starts with that of the scans, and its children wait until all segments are
    linked. A child that waits needs no worker, but has a place in its Map and a bounded life. So
    all scans must run at once, and be short.

    Args:
        scans: how many, done by a Distributed Map.
        slices: how many, likewise.
        at_once: workers of this side of the run.
        longest: seconds of the longest task; a scan takes about as long as its slice.
    """
    return 0 < scans <= slices <= at_once and longest <= MAX_OVERLAP_SECONDS


def _is_sooner_inline(tasks: Sequence[Task], at_once: int) -> bool:
    inline = _forecast_seconds(tasks, min(at_once, rates.MAP_INLINE_AT_ONCE))
    around = rates.MAP_START_SECONDS + rates.MAP_END_SECONDS
    return inline <= around + _forecast_seconds(tasks, at_once)


def _forecast_seconds(tasks: Sequence[Task], at_once: int) -> float:
    """Return when the last task ends if `at_once` workers take them in this order."""
    workers = [0.0] * max(1, min(at_once, len(tasks)))
    for task in tasks:
        heapq.heapreplace(workers, workers[0] + task.seconds)
    return max(workers)


def longest_first(tasks: Iterable[Task], sizes: Mapping[str, int]) -> list[Task]:
    """Return segments by uncompressed size, the largest first, then the other tasks in their order.

    The uncompressed size of a segment is known only after its scan, and differs by a factor of ten
    within one member. The longest task must not begin last (Graham, 1969).
    """
    return sorted(tasks, key=lambda task: -sizes.get(task.id, 0))
