"""The forecast as a whole: ranges, the critical path, the budget, the published fixtures."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.errors import BudgetError, UsageError
from s3unzip.forecast import (
    FIXTURES,
    Fixture,
    Forecast,
    Latency,
    aws,
    check_budget,
    count_sizes,
    find_fixture,
    local,
    make_fixture,
    make_forecast,
    make_tasks,
    make_workload,
)
from s3unzip.forecast.course import PLANNER_STATES
from s3unzip.forecast.sides import Sides
from s3unzip.model import TaskKind, encode
from s3unzip.planning.cut import first_workers
from s3unzip.settings import GIB, MIB, Tuning
from tests.unit.forecast.plans import MB, STEADY, batch, large, steady

TUNING = Tuning()
SMALL = Fixture("small", "2,000 members of 10 KB", 2_000, 10_000, 4_000)


@pytest.fixture(scope="module")
def published() -> dict[str, Forecast]:
    """Return forecasts of the fixtures that others measured."""
    return {
        name: make_forecast(make_fixture(fixture, TUNING), aws(), TUNING)
        for name, fixture in FIXTURES.items()
        if fixture.published is not None
    }


def test_published_fixtures_beat_what_others_measured(published: dict[str, Forecast]) -> None:
    """Each is forecast at a third of the published time or less, even on a bad day at a half."""
    assert set(published) == {"400k", "49k", "1k"}
    for name, forecast in published.items():
        known = FIXTURES[name].published
        assert known is not None
        assert forecast.duration.expected < known.seconds / 3, name
        assert forecast.duration.high < known.seconds / 2, name


def test_published_fixtures_stay_above_their_bounds(published: dict[str, Forecast]) -> None:
    """49,152 PUTs at 3,500 a second need 14 s with any number of workers."""
    forecast = published["49k"]
    assert forecast.bounds[0].name == "write rate"
    assert forecast.bounds[0].seconds == pytest.approx(49_152 / 3_500, rel=0.01)
    for one in published.values():
        assert one.tasks_seconds >= one.bounds[0].seconds * 0.999


@pytest.mark.parametrize("name", ["400k", "49k", "1k", "100gb", "100gb-stored"])
def test_the_path_adds_up(name: str) -> None:
    """The steps of the critical path sum to the duration, and the range holds it."""
    forecast = make_forecast(make_fixture(FIXTURES[name], TUNING), aws(), TUNING)
    assert sum(step.seconds for step in forecast.steps) == pytest.approx(forecast.duration.expected)
    assert forecast.duration.low <= forecast.duration.expected <= forecast.duration.high
    assert forecast.dollars.low <= forecast.cost.total <= forecast.dollars.high
    assert 0 < forecast.first_object.expected <= forecast.duration.expected
    assert forecast.chain


def test_a_split_member_is_scanned_linked_and_seen_last() -> None:
    """With 500 workers 100 GB passes two Maps one after the other; it is visible at the end."""
    forecast = make_forecast(make_fixture(FIXTURES["100gb"], TUNING), aws(workers=500), TUNING)
    names = [step.name for step in forecast.steps]
    assert names.index("start scans") < names.index("end scans") < names.index("link")
    assert names.index("link") < names.index("start slices")
    # The slices find the environments of the scans.
    assert "cold start" in names[: names.index("link")]
    assert "cold start" not in names[names.index("link") :]
    assert forecast.kinds == {"segment": 1}
    assert forecast.first_object.expected == forecast.duration.expected


@pytest.mark.parametrize(("members", "parts", "waits"), [(1, 3, 17), (4, 3, 17), (5, 3, 27)])
def test_the_link_step_waits_for_requests_in_a_row(members: int, parts: int, waits: int) -> None:
    """7 requests for the run; for up to 4 members at once 8, and a read and a write of segments."""
    slices = [
        large(TaskKind.SEGMENT, member, 64 * MB, part, parts)
        for member in range(members)
        for part in range(parts)
    ]
    forecast = make_forecast(make_workload(slices, TUNING, title="split"), steady(), TUNING)
    (link,) = (step for step in forecast.steps if step.name == "link")
    cpu = members * parts * rates.LINK_SEGMENT_SECONDS
    assert link.seconds == pytest.approx(waits * STEADY.mean + cpu)


@pytest.mark.parametrize(("name", "handed"), [("49k", True), ("1k", False)])
def test_large_directories_are_handed_to_the_planner(name: str, *, handed: bool) -> None:
    """It has a cold start of its own; it and the workers beside it are calls and states."""
    workload = make_fixture(FIXTURES[name], TUNING)
    whole = replace(TUNING, tail_bytes=workload.directory_bytes)
    forecast, without = (make_forecast(workload, aws(), one) for one in (TUNING, whole))
    steps = {step.name: step.seconds for step in forecast.steps}
    assert ("hand over" in steps) is handed
    assert "hand over" not in {step.name for step in without.steps}
    calls, states = (
        [line.quantity for one in (forecast, without) for line in one.cost.lines if match(line)]
        for match in (
            lambda line: (line.service, line.item) == ("Lambda", "requests"),
            lambda line: line.item == "Standard",
        )
    )
    size = workload.bytes_in + workload.directory_bytes
    warm = first_workers(workload.members, size, TUNING)
    assert calls[0] - calls[1] == (1 + warm) * handed
    assert states[0] - states[1] == (PLANNER_STATES + warm) * handed
    machine = local(workers=4, put=Latency(0.01, 0.02))
    on_one = make_forecast(workload, machine, TUNING)
    assert "hand over" not in {step.name for step in on_one.steps}


def test_workers_start_while_the_planner_is_at_work() -> None:
    """If the cold starts are shorter than the planner's work, the first tasks have none."""
    tuning = replace(TUNING, max_workers=4)  # each of them is started early
    workload = make_fixture(FIXTURES["49k"], tuning)
    platform = replace(aws(), cold_start=Latency(0.9, 0.9))
    forecast = make_forecast(workload, platform, tuning)
    names = [step.name for step in forecast.steps]
    assert "hand over" in names
    assert "cold start" not in names


def test_nobody_waits_for_a_worker_that_starts_slowly() -> None:
    """The work begins when the planner has ended; the first tasks then have cold starts."""
    workload = make_fixture(FIXTURES["49k"], TUNING)
    slow = replace(aws(), cold_start=Latency(2.0, 60.0))
    forecasts = [make_forecast(workload, slow, TUNING, seed=seed) for seed in range(3)]
    for names in ([step.name for step in one.steps] for one in forecasts):
        assert names[:4] == ["event", "hand over", "plan", "start tasks"]
    assert any("cold start" in [step.name for step in one.steps] for one in forecasts)


@pytest.mark.parametrize(("inline", "start"), [(True, 0.45), (False, 1.2)])
def test_a_map_finds_the_workers_that_are_idle_at_its_start(*, inline: bool, start: float) -> None:
    """Of four, the one that is ready a moment later counts as not started."""
    tuning = TUNING if inline else replace(TUNING, max_inline_tasks=0)
    workload = make_workload([batch(n) for n in range(4)], tuning, title="four")
    ready = (-1.0, 0.0, start, start + 0.01)
    (side,) = Sides(workload, aws(), tuning, random.Random(1), ready).simulate()
    (one,) = side.maps
    assert one.inline is inline
    assert side.steps[0].seconds == pytest.approx(start)
    assert sum(seconds > 0 for seconds in one.timeline.cold) == 1


def test_scans_find_the_workers_that_tasks_leave() -> None:
    """Tasks of whole members get idle workers first; those that are left are the scans'."""
    slices = [large(TaskKind.SEGMENT, 9, 64 * MB, part, 4) for part in range(4)]
    workload = make_workload([batch(0), *slices], TUNING, title="both")
    both = Sides(workload, aws(), TUNING, random.Random(1), (0.0, 0.0, 0.0)).simulate()
    whole, scans = (side.maps[0].timeline for side in both)
    assert sum(seconds > 0 for seconds in whole.cold) == 0
    assert sum(seconds > 0 for seconds in scans.cold) == 2


@pytest.mark.parametrize("name", ["1k", "49k", "100gb"])
def test_the_report_function_starts_beside_the_work(name: str) -> None:
    """Its cold start is paid, but nobody waits for it."""
    workload = make_fixture(FIXTURES[name], TUNING)
    warm, cold = (
        make_forecast(workload, replace(aws(), cold_start=start), TUNING).steps[-1]
        for start in (None, Latency(0.9, 2.0))
    )
    assert warm.name == cold.name == "report"
    assert warm.seconds == pytest.approx(cold.seconds)


def test_slices_wait_beside_the_scans_where_all_have_a_worker() -> None:
    """A member of 100 GB needs neither the end of the scans' Map nor the start of another one."""
    workload = make_fixture(FIXTURES["100gb"], TUNING)
    forecast = make_forecast(workload, aws(), TUNING)
    names = [step.name for step in forecast.steps]
    assert names.index("start scans") < names.index("notice scans") < names.index("link")
    assert not {"end scans", "start slices"} & set(names)
    assert "cold start" not in names[names.index("link") :]  # the slices find the scans' places
    assert forecast.duration.expected <= 24
    apart = make_forecast(workload, aws(workers=500), TUNING)
    assert apart.duration.expected - forecast.duration.expected > 6
    # The price of it: HEADs, and children that wait.
    assert forecast.requests.head - apart.requests.head > len(workload.tasks)
    assert forecast.cost.total < 1.05 * apart.cost.total


def test_small_members_do_not_wait_for_the_scan_of_a_huge_one() -> None:
    """The first object is there before the huge members are linked, and all soon after them."""
    workload = make_fixture(FIXTURES["symbols"], TUNING)
    assert workload.kinds == {"batch": 1_000, "segment": 2}
    forecast = make_forecast(workload, aws(), TUNING)
    assert forecast.first_object.expected < 5
    assert forecast.duration.expected < 15
    machine = local(workers=4, put=Latency(0.01, 0.02))
    beside = make_forecast(replace(workload, at_once=4), machine, TUNING)
    split = tuple(task for task in workload.tasks if task.parts > 1)
    alone = make_forecast(replace(workload, tasks=split, at_once=4), machine, TUNING)
    assert beside.first_object.expected < alone.tasks_seconds


@pytest.mark.parametrize(("name", "saved"), [("1k", 5.0), ("49k", 5.0), ("100gb", 0.0)])
def test_few_tasks_need_no_distributed_map(name: str, saved: float) -> None:
    """An inline Map saves most of the seven seconds; it is not taken for 522 tasks."""
    fixture, without = FIXTURES[name], replace(TUNING, max_inline_tasks=0)
    inline = make_forecast(make_fixture(fixture, TUNING), aws(), TUNING)
    distributed = make_forecast(make_fixture(fixture, without), aws(), without)
    difference = distributed.duration.expected - inline.duration.expected
    assert saved <= difference <= saved * 1.6
    states = {line.item: line.quantity for line in inline.cost.lines}
    assert (states["Express"] == 0) is (saved > 0)
    assert (states["Standard"] > 20) is (saved > 0)


@pytest.mark.parametrize(
    ("changes", "tasks"), [({}, 39), ({"max_inline_tasks": 0}, 67), ({"max_workers": 39}, 67)]
)
def test_batches_are_cut_for_an_inline_map(changes: dict[str, int], tasks: int) -> None:
    """So that 40 workers do all at once; without an inline Map a batch takes a second."""
    tuning = replace(TUNING, **changes)
    assert len(make_tasks(FIXTURES["1k"], tuning)) == tasks


def test_an_empty_archive_has_no_tasks_to_wait_for() -> None:
    """Its run is the event, the plan and the report."""
    workload = make_workload([], TUNING, title="empty")
    forecast = make_forecast(workload, aws(), TUNING)
    assert [step.name for step in forecast.steps] == ["event", "plan", "report"]


def test_a_stored_member_is_copied_not_moved() -> None:
    """A stored member is a copy, and is streamed where the destination cannot copy."""
    fixture = FIXTURES["100gb-stored"]
    assert {task.kind for task in make_tasks(fixture, TUNING)} == {TaskKind.COPY}
    streamed = make_tasks(fixture, TUNING, copies=False)
    assert {task.kind for task in streamed} == {TaskKind.STREAM}


def test_fixture_tasks_hold_every_member_once() -> None:
    """The made-up members of a fixture are cut into tasks without loss."""
    tasks = make_tasks(FIXTURES["49k"], TUNING)
    assert sum(task.members for task in tasks) == 49_152
    assert sum(task.size for task in tasks) == 3 * GIB
    spans = sorted(task.span for task in tasks)
    assert all(one[1] == two[0] for one, two in pairwise(spans))


def test_kinds_and_sums_of_a_mixed_plan() -> None:
    """A member in slices is one member; bytes are the tasks' sums."""
    tasks = [
        large(TaskKind.SEGMENT, 0, 64 * MIB, 0, 2),
        large(TaskKind.SEGMENT, 0, 64 * MIB, 1, 2),
        large(TaskKind.COPY, 1, 9 * MIB),
        batch(0, members=7),
        batch(1, members=8),
    ]
    workload = make_workload(tasks, TUNING, title="mixed")
    assert workload.kinds == {"batch": 15, "copy": 1, "segment": 1}
    assert workload.members == 17
    assert workload.bytes_out == sum(task.size for task in tasks)


def test_an_empty_plan_is_forecast_too() -> None:
    """Nothing selected still takes a plan and a report, and no division fails."""
    workload = make_workload([], TUNING, title="nothing")
    forecast = make_forecast(workload, aws(), TUNING)
    assert forecast.tasks == 0
    assert forecast.duration.expected > 0
    assert forecast.first_object.expected <= forecast.duration.expected


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3_000), st.integers(0, 1_000_000), st.integers(0, 3))
def test_same_seed_same_forecast(members: int, size: int, seed: int) -> None:
    """A forecast is a function of plan, platform, settings and seed."""
    workload = make_fixture(Fixture("x", "x", members, size, size // 2), TUNING)
    one, two = (make_forecast(workload, aws(), TUNING, seed=seed) for _ in range(2))
    assert one == two
    assert one.requests.put >= members


def test_another_seed_is_another_day() -> None:
    """Seeds differ in what chance gives, a little."""
    workload = make_fixture(SMALL, TUNING)
    one, two = (make_forecast(workload, aws(), TUNING, seed=seed) for seed in (1, 2))
    assert one.duration != two.duration
    assert one.duration.expected == pytest.approx(two.duration.expected, rel=0.25)


def test_a_slower_store_takes_longer() -> None:
    """Ten times the latency of a PUT is never faster, and costs the same requests."""
    workload = make_fixture(SMALL, TUNING)
    fast, slow = (
        make_forecast(workload, local(workers=2, put=Latency(p50, 2 * p50)), TUNING)
        for p50 in (0.01, 0.1)
    )
    assert fast.duration.expected < slow.duration.expected
    assert fast.requests == slow.requests


def test_the_budget_refuses_before_anything_runs() -> None:
    """Above the limit the refusal names the figure, the limit and a way out; at it, it passes."""
    forecast = make_forecast(make_fixture(SMALL, TUNING), aws(), TUNING)
    check_budget(forecast, None)
    check_budget(forecast, forecast.cost.total)
    with pytest.raises(BudgetError, match=r"\$0\.0\d+ for 2,000 members.*limit of \$0\.0050"):
        check_budget(forecast, 0.005)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_senseless_budget_is_refused(limit: float) -> None:
    """A negative limit, or one that is no number, is a usage error and not a pass."""
    forecast = make_forecast(make_fixture(SMALL, TUNING), aws(), TUNING)
    with pytest.raises(UsageError, match="cost limit"):
        check_budget(forecast, limit)


def test_a_task_beyond_a_time_limit_is_warned_of() -> None:
    """A copy that would outlast an Express execution causes a warning."""
    workload = make_workload([large(TaskKind.COPY, 0, 600 * GIB)], TUNING, title="one copy")
    forecast = make_forecast(workload, aws(), TUNING)
    assert "Express" in forecast.warnings[0]
    slow = replace(local(workers=1, put=Latency(0.01, 0.02)), copy_rate=1_000_000.0)
    assert make_forecast(workload, slow, TUNING).warnings == ()


def test_unknown_fixtures_are_named_with_the_known() -> None:
    """A typo is answered with the list."""
    with pytest.raises(UsageError, match=r"'500k'.*400k, 49k"):
        find_fixture("500k")


def test_sizes_are_counted_in_bins_that_double() -> None:
    """0 has a separate bin; 1,024 begins one."""
    bins = count_sizes([0, 1, 1_023, 1_024, 2_047])
    assert [(one.start, one.stop, one.members) for one in bins] == [
        (0, 1, 1),
        (1, 2, 1),
        (512, 1_024, 1),
        (1_024, 2_048, 2),
    ]


def test_a_forecast_is_json() -> None:
    """A forecast converts to JSON and back: the report keeps it beside the actual figures."""
    forecast = make_forecast(make_fixture(SMALL, TUNING), aws(), TUNING)
    read = json.loads(encode(forecast))
    assert read["duration"]["expected"] == forecast.duration.expected
    assert read["cost"]["lines"][0]["service"] == "S3"


@pytest.mark.no_cover  # which would take longer than the test; the others run the same code
@pytest.mark.no_cover  # the other tests take its branches; measured, it takes four times as long
def test_ten_million_members_are_no_more_events_than_tasks() -> None:
    """The work of a simulation grows with the tasks, not with the members."""
    # The tasks of one million, ten times over: to cut ten million takes half a minute.
    cut = make_tasks(Fixture("1m", "1,000,000 members", 1_000_000, 4_000, 1_600), TUNING)
    tasks = [replace(task, id=f"{task.id}-{turn}") for turn in range(10) for task in cut]
    workload = make_workload(tasks, TUNING, title="10,000,000 members of 4 KB")
    forecast = make_forecast(workload, aws(), TUNING)
    assert forecast.members == 10_000_000
    assert forecast.tasks < 20_000
    assert forecast.requests.put >= 10_000_000
