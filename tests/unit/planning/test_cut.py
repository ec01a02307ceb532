"""Cutting: every member in exactly one task, no bound passed, large ones alone."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip.model import TaskKind
from s3unzip.planning.cut import (
    TASK_OVERHEAD,
    Load,
    TaskCutter,
    choose_workers,
    order_tasks,
    small_seconds,
)
from s3unzip.settings import MIB, Tuning, machine_tuning, make_tuning
from s3unzip.zip import Member

SMALL = replace(
    Tuning(),
    small_member=1_000,
    copy_from=1_000,
    split_from=5_000,
    segment_bytes=2_000,
    copy_task_bytes=3_000,
    batch_bytes=4_000,
    batch_output=8_000,
    batch_members=5,
)
# Only what a test narrows ends a batch: not the forecast seconds.
WIDE = replace(Tuning(), small_member=1_000, batch_seconds=1e9, batch_min_seconds=1e9)
Size = tuple[int, int, int]  # compressed, plain, method
sizes = st.lists(
    st.tuples(st.integers(0, 9_000), st.integers(0, 9_000), st.sampled_from([0, 8, 12])),
    max_size=60,
)


def _rows_of(members: list[Size]) -> list[Member]:
    starts = accumulate((30 + compressed for compressed, _, _ in members), initial=0)
    spans = enumerate(zip(pairwise(starts), members, strict=True))
    return [
        Member(
            index,
            f"k{index}",
            None,
            *span,
            compressed,
            plain if method else compressed,
            0,
            method,
            0,
            0,
            0,
        )
        for index, (span, (compressed, plain, method)) in spans
    ]


def _cut(
    members: list[Size], tuning: Tuning = SMALL, *, step: int = 7, copies: bool = True
) -> TaskCutter:
    rows = _rows_of(members)
    work = Load(len(rows), sum(r.compressed_size for r in rows), sum(r.size for r in rows))
    cutter = TaskCutter(tuning, work, can_copy=copies)
    for first in range(0, len(rows), step):
        last = min(first + step, len(rows))
        cutter.add(rows[first:last], range(first * 10, last * 10 + 10, 10))
    cutter.end_batch(len(rows) * 10)
    return cutter


@pytest.mark.parametrize(("members", "workers"), [(1, 1), (2_000, 1), (6_000, 3), (100_000, 8)])
def test_a_process_is_started_where_it_pays(members: int, workers: int) -> None:
    """Small members of one machine: one process does 2,000, and eight do 100,000."""
    tuning = make_tuning(machine_tuning(8))
    cutter = _cut([(5_000, 11_000, 8)] * members, tuning, step=10_000)
    assert choose_workers(cutter.tasks, tuning) == workers


@given(sizes)
def test_every_member_is_in_exactly_one_task_or_split(members: list[Size]) -> None:
    """The rows of the tasks cover members.jsonl once; slices cover a split member's data once."""
    cutter = _cut(members)
    tasks = cutter.tasks + cutter.copies
    spans = sorted({task.rows for task in tasks})
    stops = [stop for _, stop in spans]
    assert [0, *stops] == [*(start for start, _ in spans), 10 * len(members)]
    for span in spans:
        parts = [task for task in tasks if task.rows == span]
        assert [task.part for task in parts] == list(range(parts[0].parts))
        if parts[0].parts > 1:
            edges = [edge for task in parts for edge in task.span]
            assert [0, *edges[1::2]] == [*edges[::2], members[span[0] // 10][0]]


@pytest.mark.parametrize(
    ("bound", "most", "member"),
    [
        ("batch_bytes", 2_750, (900, 10, 8)),
        ("batch_output", 2_750, (10, 900, 8)),
        ("batch_members", 3, (1, 1, 8)),
    ],
)
def test_each_bound_of_a_batch_is_reached(bound: str, most: int, member: Size) -> None:
    """Bytes in, bytes out and members each end a batch alone: as full as it may be."""
    bounds = {"batch_bytes": 1 << 40, "batch_output": 1 << 40, "batch_members": 1 << 40}
    limits = replace(WIDE, **(bounds | {bound: most}))
    tasks = _cut([member] * 9, limits).tasks
    assert [(task.members, task.size) for task in tasks] == [(3, 3 * member[1])] * 3


@given(sizes, st.integers(1, 20))
def test_the_cut_does_not_depend_on_how_rows_arrive(members: list[Size], step: int) -> None:
    """One row at a time or all at once: the same tasks."""
    assert _cut(members, step=step).tasks == _cut(members, step=1).tasks


@pytest.mark.parametrize(
    ("member", "copies", "kinds"),
    [
        ((500, 900, 8), True, [TaskKind.BATCH]),
        ((2_000, 2_000, 0), True, [TaskKind.COPY]),
        ((2_000, 2_000, 0), False, [TaskKind.STREAM]),
        ((4_000, 9_000, 8), True, [TaskKind.STREAM]),
        ((6_000, 9_000, 8), True, [TaskKind.SCAN] * 3),
        ((6_000, 9_000, 12), True, [TaskKind.STREAM]),
        ((9_000, 9_000, 0), True, [TaskKind.COPY] * 3),
    ],
)
def test_members_are_done_by_what_they_are(
    member: Size, kinds: list[TaskKind], *, copies: bool
) -> None:
    """Small: batch; stored: copy; deflated: stream, or scans when huge."""
    cutter = _cut([member], copies=copies)
    assert [task.kind for task in cutter.tasks + cutter.copies] == kinds


@pytest.mark.parametrize("method", [0, 8])
def test_the_largest_member_has_fewer_slices_than_an_upload_has_parts(method: int) -> None:
    """A member of 50 TB has at most 1,000 slices, and each has at least one of 10,000 parts."""
    size = 50 * 10**12
    cutter = _cut([(size, size, method)], Tuning())
    assert len(cutter.tasks + cutter.copies) <= 1_000


@pytest.mark.parametrize(
    ("members", "workers", "segments"),
    [
        ([400 * MIB], 80, 16),  # as many as are worth a Map of their own
        ([400 * MIB, 400 * MIB], 80, 16),
        ([257 * MIB], 4, 5),  # each worker begins with a search, so few workers get long segments
        ([2_000 * MIB], 80, 32),  # 64 MiB at most
    ],
)
def test_few_segments_are_shorter(members: list[int], workers: int, segments: int) -> None:
    """An archive with little to split is cut into more segments, so that it ends sooner."""
    tasks = _cut(
        [(size, 3 * size, 8) for size in members], replace(Tuning(), max_workers=workers)
    ).tasks
    assert [task.kind for task in tasks] == [TaskKind.SCAN] * segments


def test_a_small_archive_is_spread_over_the_workers() -> None:
    """Batches are not as large as allowed when that would leave workers idle."""
    tuning = replace(Tuning(), max_workers=8)
    assert len(_cut([(5_000, 11_000, 8)] * 40_000, tuning, step=8_000).tasks) >= 16


def test_the_longest_tasks_start_first_and_neighbours_apart() -> None:
    """Large members first, by forecast; then batches, never two siblings in a row."""
    ordered = order_tasks(_cut([(500, 900, 8)] * 80 + [(4_000, 9_000, 8), (2_000, 5_000, 8)]).tasks)
    assert [task.kind for task in ordered[:2]] == [TaskKind.STREAM] * 2
    assert ordered[0].seconds >= ordered[1].seconds
    numbers = [int(task.id[6:]) for task in ordered[2:]]
    assert sorted(numbers) == list(range(len(numbers)))
    assert all(abs(a - b) != 1 for a, b in pairwise(numbers))


def test_tasks_are_forecast_with_their_start() -> None:
    """A batch as its members, a stream as its bytes, a copy as parts that go side by side."""
    tuning = replace(SMALL, worker_bandwidth=1_000.0, parts_in_flight=4)
    batch, stream, copy = (
        _cut([member], tuning).tasks[0]
        for member in [(500, 900, 8), (4_000, 3_000, 12), (2_800, 2_800, 0)]
    )
    assert [task.seconds for task in (batch, stream, copy)] == [
        round(TASK_OVERHEAD + small_seconds(Load(1, 500, 900), tuning), 3),
        pytest.approx(TASK_OVERHEAD + 4.0),
        pytest.approx(TASK_OVERHEAD + 0.7),
    ]
    slices = _cut([(9_000, 9_000, 0)], tuning).copies
    assert [task.size for task in slices] == [3_000] * 3
    assert [task.seconds for task in slices] == pytest.approx([TASK_OVERHEAD + 0.75] * 3)


@pytest.mark.parametrize(("changes", "tasks"), [({}, 40), ({"max_few_tasks": 0}, 58)])
def test_batches_are_few_where_a_distributed_map_would_take_longer(
    changes: dict[str, int], tasks: int
) -> None:
    """An inline Map does a short run: as many batches as it takes, or a little fewer."""
    tuning = replace(Tuning(), **changes)
    assert 0.8 * tasks <= len(_cut([(1_000, 1_000, 0)] * 60_000, tuning, step=8_000).tasks) <= tasks
