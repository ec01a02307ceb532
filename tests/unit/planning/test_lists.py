"""The lists of a run's work: which are inline, and how the workers are shared."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from s3unzip.model import Task, TaskKind
from s3unzip.planning.lists import (
    Shares,
    WorkList,
    can_overlap,
    choose_inline,
    divide_tasks,
    longest_first,
    mix,
    share_workers,
)
from s3unzip.settings import Tuning

TUNING = Tuning()


def batches(count: int, seconds: float = 1.0) -> list[Task]:
    """Return batches of one member each."""
    return [
        Task(f"batch-{n}", TaskKind.BATCH, (n, n + 1), 1, (0, 1), 1, seconds) for n in range(count)
    ]


def slices(count: int, seconds: float = 1.0, kind: TaskKind = TaskKind.SEGMENT) -> list[Task]:
    """Return the slices of one member."""
    return [
        Task(f"{kind}-{n}", kind, (0, 1), 1, (n, n + 1), 1, seconds, part=n, parts=count)
        for n in range(count)
    ]


def test_tasks_are_divided_by_their_members() -> None:
    """Slices of split members are one list, all other tasks the other, in their order."""
    mixed = [*slices(2), *batches(2)]
    assert divide_tasks(mixed) == (batches(2), slices(2))


@pytest.mark.parametrize(
    ("short", "long", "workers", "expected"),
    [
        (10, 0, 4, Shares(4, 1)),
        (0, 10, 4, Shares(1, 4)),
        (3, 5, 8, Shares(3, 5)),  # enough for both
        (20, 20, 9, Shares(3, 6)),  # each slice is scanned and extracted
        (2, 90, 10, Shares(1, 9)),
        (90, 2, 10, Shares(9, 1)),
        (1, 1, 1, Shares(1, 1)),  # both sides always go on
    ],
)
def test_both_sides_share_the_workers(
    short: int, long: int, workers: int, expected: Shares
) -> None:
    """By their seconds, where there are not enough for both."""
    tuning = replace(TUNING, max_workers=workers)
    assert share_workers([*slices(long), *batches(short)], tuning) == expected


def test_lists_of_no_seconds_are_shared() -> None:
    """A plan whose tasks take no time by the forecast gets workers, too."""
    tuning = replace(TUNING, max_workers=4)
    assert share_workers([*slices(9, 0.0), *batches(9, 0.0)], tuning) == Shares(1, 3)


@pytest.mark.parametrize(
    ("tasks", "shares", "inline"),
    [
        ([], Shares(1, 1), {"whole", "scan", "slices"}),  # nothing to start a Map for
        (batches(80), Shares(80, 1), {"whole", "scan", "slices"}),
        (batches(81), Shares(80, 1), {"scan", "slices"}),
        ([*batches(3), *slices(30)], Shares(3, 30), {"whole", "scan", "slices"}),
        ([*batches(3), *slices(70)], Shares(3, 70), {"whole", "scan"}),  # with 143 in sum
        ([*batches(3), *slices(300)], Shares(3, 300), {"whole"}),
        (slices(9, kind=TaskKind.COPY), Shares(1, 9), {"whole", "scan", "slices"}),
        # 41 tasks are two rounds of 40: too long where one takes more than a Map's start and end
        (batches(41, 7.0), Shares(41, 1), {"whole", "scan", "slices"}),
        (batches(41, 7.1), Shares(41, 1), {"scan", "slices"}),
        (batches(41, 60.0), Shares(8, 1), {"whole", "scan", "slices"}),  # 8 at once either way
    ],
)
def test_short_lists_are_inline(tasks: list[Task], shares: Shares, inline: set[str]) -> None:
    """Where they are done no later so, and all together do not fill the history."""
    assert set(choose_inline(tasks, shares, TUNING)) == inline


@pytest.mark.parametrize(
    ("scans", "slices", "at_once", "longest", "expected"),
    [
        (522, 522, 522, 3.5, True),
        (522, 530, 530, 3.5, True),  # another member is copied in slices
        (522, 522, 521, 3.5, False),  # one child would wait for a place
        (522, 522, 522, 60.1, False),  # children live 300 s
        (0, 24, 24, 3.5, False),  # copies only: there is no scan to wait for
    ],
)
def test_slices_wait_only_where_all_run_at_once(
    scans: int, slices: int, at_once: int, longest: float, *, expected: bool
) -> None:
    """All scans run at once and are short, so the wait ends within the life of a child."""
    assert can_overlap(scans, slices, at_once, longest) is expected


def test_inline_maps_can_be_switched_off() -> None:
    """Only empty lists are inline then."""
    tuning = replace(TUNING, max_inline_tasks=0)
    assert set(choose_inline(batches(1), Shares(1, 1), tuning)) == {
        WorkList.SCAN,
        WorkList.SLICES,
    }


@pytest.mark.parametrize(
    ("at_once", "expected"),
    [
        (1, ["a", "b", "c", 1, 2, 3, 4, 5]),  # one worker: the small ones are there first
        (2, ["a", 1, "b", 2, "c", 3, 4, 5]),
        (4, ["a", 1, 2, 3, "b", 4, 5, "c"]),
    ],
)
def test_long_and_short_work_begins_by_turns(at_once: int, expected: list[object]) -> None:
    """One worker does short work while the others do the long one."""
    assert mix([1, 2, 3, 4, 5], ["a", "b", "c"], at_once) == expected


def test_long_slices_begin_first_and_others_keep_their_order() -> None:
    """Of what is known only after linking, the longest may not begin last."""
    tasks = [
        Task(name, TaskKind.BATCH, (0, 0), 1, (0, 0), 0, 1.0)
        for name in ("batch-1", "segment-a", "batch-0", "segment-b", "segment-c")
    ]
    ordered = longest_first(tasks, {"segment-a": 5, "segment-b": 70, "segment-c": 6})
    assert [one.id for one in ordered] == [
        "segment-b",
        "segment-c",
        "segment-a",
        "batch-1",
        "batch-0",
    ]
