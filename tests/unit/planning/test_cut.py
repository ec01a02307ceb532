"""Cutting into tasks, and the estimate of time and cost, beside the simulation of before."""

import re
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.errors import UsageError
from s3unzip.estimate import PLAN_PUTS, Estimate, check_budget, estimate, estimate_archive
from s3unzip.model import STORE_KINDS, Location, Options, Request, Requests, Task, TaskKind
from s3unzip.object_properties import ObjectProperties
from s3unzip.planning.cut import (
    TASK_OVERHEAD,
    Load,
    TaskCutter,
    choose_workers,
    order_tasks,
    small_seconds,
)
from s3unzip.pricing import Platform, aws, local, price
from s3unzip.printable import show_dollars
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


@pytest.mark.parametrize(
    ("members", "scheme", "workers"),
    [
        (1, "s3", 1),
        (2_000, "s3", 1),
        (20_000, "s3", 1),
        (100_000, "s3", 8),
        (2_000, "file", 1),
        (6_000, "file", 2),
        (100_000, "file", 8),
    ],
)
def test_a_process_is_started_where_it_pays(members: int, scheme: str, workers: int) -> None:
    """Small members of one machine: one process does 2,000, and eight do 100,000."""
    tuning = make_tuning(machine_tuning(8))
    cutter = _cut([(5_000, 11_000, 8)] * members, tuning, step=10_000)
    assert choose_workers(cutter.tasks, tuning, STORE_KINDS[scheme]) == workers


@pytest.mark.parametrize(
    ("members", "puts"), [(0, 1), (5, 5), (200, 32), (2_000, 62), (9_000, 100)]
)
def test_a_connection_is_opened_where_it_pays(members: int, puts: int) -> None:
    """Above 32 connections, each must carry 32 PUTs; a process on one machine has at most 100."""
    assert make_tuning(machine_tuning(1)).puts_at_once(members) == puts


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
    assert [
        (task.members, task.size)
        for task in _cut([member] * 9, replace(WIDE, **(bounds | {bound: most}))).tasks
    ] == [(3, 3 * member[1])] * 3


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


@pytest.mark.parametrize(
    ("changes", "tasks"), [({}, 40), ({"max_few_tasks": 0}, 58), ({"max_workers": 8}, 32)]
)
def test_batches_are_few_where_a_distributed_map_would_take_longer(
    changes: dict[str, int], tasks: int
) -> None:
    """An inline Map does a short run: as many batches as it takes, or a little fewer.

    Batches are not as large as allowed when that would leave workers idle.
    """
    tuning = replace(Tuning(), **changes)
    assert 0.8 * tasks <= len(_cut([(1_000, 1_000, 0)] * 60_000, tuning, step=8_000).tasks) <= tasks


# The estimate of nine archives


TUNING = Tuning()
ASKED = Request(Location("s3", "in", "a.zip"), Location("s3", "out", ""))


class Group(NamedTuple):
    """Equal members, sizes in bytes."""

    members: int
    size: int
    compressed: int
    method: int = 8


class Band(NamedTuple):
    """Seconds and dollars of a good and a bad day, by the discrete-event simulation.

    It simulated every task and PUT on AWS with 1,000 workers and was replaced by the formula in
    November 2026. The band of 100 GB is that with slices after the scans.
    """

    low: float
    high: float
    cheap: float
    dear: float


ARCHIVES = {
    "400,000 of 10 KB": ([Group(400_000, 10_000, 4_000)], Band(125.1, 190.0, 2.03, 2.06)),
    "49,152 of 64 KiB": ([Group(49_152, 65_536, 29_928)], Band(18.3, 27.4, 0.250, 0.2550)),
    "1,000 of 4.5 MB": ([Group(1_000, 4_724_883, 2_171_600)], Band(6.0, 11.5, 0.0084, 0.0104)),
    "one of 2 KB": ([Group(1, 2_000, 800)], Band(1.76, 3.76, 2.9e-5, 3.6e-5)),
    "100 of 2 KB": ([Group(100, 2_000, 800)], Band(1.93, 4.12, 5.2e-4, 5.4e-4)),
    "100 GB deflated": ([Group(1, 100 * rates.GB, 35 * rates.GB)], Band(20.6, 44.3, 0.098, 0.156)),
    "100 GB stored": (
        [Group(1, 100 * rates.GB, 100 * rates.GB, 0)],
        Band(19.0, 42.3, 0.0105, 0.0207),
    ),
    "1,000 small, two of 1.1 GB": (
        [Group(1_000, 20_000, 7_000), Group(2, 1_143_000_000, 400_000_000)],
        Band(8.1, 19.4, 0.0089, 0.0105),
    ),
    "10,000,000 of 4 KB": ([Group(10_000_000, 4_000, 1_600)], Band(1402.6, 4408.2, 50.3, 51.0)),
}


@cache
def _tasks_of(*groups: Group) -> list[Task]:
    cutter = TaskCutter(
        TUNING,
        Load(
            sum(one.members for one in groups),
            sum(one.members * one.compressed for one in groups),
            sum(one.members * one.size for one in groups),
        ),
        can_copy=True,
    )
    index = offset = 0
    for group in groups:
        pitch = 80 + group.compressed  # with the local header
        for first in range(0, group.members, 8_192):
            count = min(8_192, group.members - first)
            cutter.add(
                [
                    Member(
                        index + n,
                        path="",
                        raw_name=None,
                        offset=offset + n * pitch,
                        stop=offset + (n + 1) * pitch,
                        compressed_size=group.compressed,
                        size=group.size,
                        crc32=0,
                        method=group.method,
                        flags=0,
                        mtime=None,
                        mode=None,
                    )
                    for n in range(count)
                ],
                range(
                    index * rates.MEMBER_ROW,
                    (index + count + 1) * rates.MEMBER_ROW,
                    rates.MEMBER_ROW,
                ),
            )
            index, offset = index + count, offset + count * pitch
    cutter.end_batch(index * rates.MEMBER_ROW)
    return [*order_tasks(cutter.tasks), *cutter.copies]


def _estimated(groups: list[Group], platform: Platform) -> Estimate:
    tasks = _tasks_of(*groups)
    return estimate_archive(
        ASKED,
        tasks,
        platform,
        TUNING,
        workers=choose_workers(tasks, TUNING, STORE_KINDS["s3"]),
        sizes=(),
    )


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_estimate_is_within_the_band_of_the_simulation(name: str) -> None:
    """Expected seconds and dollars are between those of its good and its bad day."""
    groups, band = ARCHIVES[name]
    made = _estimated(groups, aws())
    assert band.low <= made.seconds <= band.high
    states = sum(line.dollars for line in made.cost.lines if line.service == "Step Functions")
    # The simulation's direct run wrote one object more.
    assert band.cheap - rates.PRICE_S3_WRITE <= made.cost.total <= band.dear + states
    assert made.members == sum(group.members for group in groups)


@pytest.mark.parametrize(
    ("name", "platform", "bound"),
    [
        ("10,000,000 of 4 KB", aws(), "writes below one prefix"),
        ("1,000 of 4.5 MB", local(workers=2), "all tasks, shared by 2 workers"),
        ("100 GB stored", aws(), "the longest task"),
    ],
)
def test_the_bound_is_named(name: str, platform: Platform, bound: str) -> None:
    """Ten million PUTs are bound by S3's rate, one huge member by itself, many by the workers."""
    assert bound in _estimated(ARCHIVES[name][0], platform).bound


PRICED = {
    "5 members of 2 KB": Group(5, 2_000, 800),
    "1,000 members of 10 KB": Group(1_000, 10_000, 4_000),
    "1,000 members of 1 MB": Group(1_000, rates.MB, 400_000),
    "1,000,000 members of 10 KB": Group(1_000_000, 10_000, 4_000),
    "1,000,000 members of 1 MB": Group(1_000_000, rates.MB, 400_000),
    "10,000,000 members of 4 KB": Group(10_000_000, 4_000, 1_600),
    "one deflated member of 100 GB": Group(1, 100 * rates.GB, 50 * rates.GB),
    "one stored member of 100 GB": Group(1, 100 * rates.GB, 100 * rates.GB, 0),
}


@pytest.mark.parametrize("archive", PRICED)
def test_the_page_about_cost_has_the_totals_of_the_estimate(archive: str) -> None:
    """Whoever changes a price or the cutting sees which figures docs/cost.md has to change."""
    page = (Path(__file__).parents[3] / "docs/cost.md").read_text("utf-8")
    (total,) = re.findall(rf"^\| {archive}.*\$([0-9.]+) \|$", page, re.MULTILINE)
    decimals = len(total.partition(".")[2])
    assert f"{_estimated([PRICED[archive]], aws()).cost.total:.{decimals}f}" == total


def test_a_tiny_archive_is_read_by_one_request() -> None:
    """The first read has all of a tiny archive; the members of a larger one are read by another."""
    assert [
        _estimated([Group(members, 2_000, 800)], aws()).requests.get for members in (1, 1_000)
    ] == [1, 2]


def test_one_machine_has_no_bill_but_that_of_s3() -> None:
    """Two workers take as long as their processors; only requests to S3 itself cost money."""
    groups = [Group(49_152, 65_536, 29_928)]
    made = _estimated(groups, local(workers=2))
    assert 10.2 <= made.seconds <= 11.8  # the simulation's band
    assert (made.cost.total, made.cost.lines) == (0.0, ())
    paid = _estimated(groups, local(workers=2, priced_reads=True, priced_writes=True))
    assert paid.cost.total == pytest.approx(0.246, rel=0.01)
    assert {line.service for line in paid.cost.lines} == {"S3"}


def test_the_bill_has_the_events_of_s3_and_the_class_of_the_objects() -> None:
    """One event an archive; one a member too where the bucket sends events; dear classes more."""
    bill = partial(price, members=1_000, requests=Requests(put=1_010), seconds=1.0, tasks=1)
    plain = bill(ASKED, aws())
    shared = bill(replace(ASKED, destination=Location("s3", "in", "x/")), aws())
    assert shared.total - plain.total == pytest.approx(1_000 * rates.PRICE_S3_EVENT)
    rare = bill(replace(ASKED, options=Options(objects=ObjectProperties("GLACIER_IR"))), aws())
    assert rare.total - plain.total == pytest.approx(1_000 * 0.015 / 1_000)
    assert plain.unavoidable == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (0.001, r"1,000 members, above the limit of \$0.0010;.* Raise --max-cost, or"),
        (-1.0, "cost limit"),
        (float("nan"), "cost limit"),
    ],
)
def test_a_budget_refuses_what_is_expected_to_cost_more(limit: float, message: str) -> None:
    """The message names the cost, the limit and what no tool avoids; a limit is a number from 0."""
    made = _estimated([Group(1_000, 10_000, 4_000)], aws())
    check_budget(made, None)
    check_budget(made, 1.0)
    with pytest.raises(UsageError, match=message):
        check_budget(made, limit)


def test_a_task_that_outlasts_a_function_is_named() -> None:
    """A huge member that cannot be split has a warning; its task writes one record."""
    huge = Task("stream-0", TaskKind.STREAM, (0, 100), 1, (0, 80 * rates.GB), 90 * rates.GB, 0.0)
    made = estimate(ASKED, [huge], aws(), TUNING)
    assert ("stop after 900 s" in made.warnings[0], made.requests.put) == (True, PLAN_PUTS + 1)


def test_sizes_are_counted_in_bins_that_double() -> None:
    """Empty bins are left out, and empty members have their own."""
    assert [
        (one.start, one.stop, one.members)
        for one in estimate(ASKED, [], aws(), TUNING, sizes=[0, 1, 5, 6, MIB]).sizes
    ] == [
        (0, 1, 1),
        (1, 2, 1),
        (4, 8, 2),
        (MIB, 2 * MIB, 1),
    ]


@given(st.floats(1e-9, 1e6), st.floats(1e-6, 1))
def test_a_cost_above_a_limit_looks_above_it(limit: float, more: float) -> None:
    """In one sentence, two amounts that differ do not look the same."""
    cost = limit * (1 + more)
    if cost - limit > 1e-11:
        assert show_dollars(cost, limit) != show_dollars(limit, cost)
