"""The discrete-event simulation: all is done once, no bound is beaten, chance is seeded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from s3unzip.forecast import Platform, aws
from s3unzip.forecast.bounds import list_bounds, write_seconds
from s3unzip.forecast.demand import Demand, Job
from s3unzip.forecast.simulation import Simulation, Timeline
from s3unzip.model import Task, TaskKind
from s3unzip.settings import Tuning
from tests.unit.forecast.plans import MB, STEADY, batch, large, steady

TUNING = Tuning()
LARGE = (TaskKind.STREAM, TaskKind.COPY, TaskKind.SEGMENT)


def jobs_of(tasks: list[Task], platform: Platform, at_once: int) -> list[Job]:
    """Return the jobs of `tasks`."""
    demand = Demand(platform, TUNING, at_once)
    return [demand.job_of(task) for task in tasks]


def play(tasks: list[Task], platform: Platform, at_once: int, seed: int = 1) -> Timeline:
    """Simulate `tasks`."""
    jobs = jobs_of(tasks, platform, at_once)
    return Simulation(jobs, platform, at_once, random.Random(seed)).run()


def max_at_once(line: Timeline) -> int:
    """Return how many jobs ran at the same time at most."""
    events = [(at, 1) for at in line.dispatched] + [(at, -1) for at in line.ended]
    running = most = 0
    for _, step in sorted(events):
        running += step
        most = max(most, running)
    return most


@st.composite
def plans(draw: st.DrawFn) -> list[Task]:
    """Draw tasks of every kind."""
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 60))):
        if draw(st.booleans()):
            members = draw(st.integers(1, 4_000))
            tasks.append(batch(number, members, members * 1_000, draw(st.integers(1, 100 * MB))))
        else:
            size = draw(st.integers(8 * MB, 5_000 * MB))
            tasks.append(large(draw(st.sampled_from(LARGE)), number, size))
    return tasks


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(1, 80), st.integers(0, 5))
def test_every_job_is_done_once_within_limits(tasks: list[Task], at_once: int, seed: int) -> None:
    """Each job is dispatched, works and ends in that order, and places are never exceeded."""
    line = play(tasks, aws(workers=50), at_once, seed)
    assert len(line.ended) == len(tasks)
    for index in range(len(tasks)):
        assert 0 <= line.dispatched[index] < line.working[index] < line.ended[index]
        assert line.ended[index] - line.working[index] >= line.alone[index] * 0.999_999
    assert max_at_once(line) <= min(at_once, 50)
    # one dispatch, one beginning, one end a job; growth is the rest
    assert 3 * len(tasks) <= line.events <= 3 * len(tasks) + 20


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(1, 80), st.integers(0, 5))
def test_no_bound_is_beaten(tasks: list[Task], at_once: int, seed: int) -> None:
    """The tasks take at least what each resource alone would take."""
    platform = aws(workers=50)
    line = play(tasks, platform, at_once, seed)
    for bound in list_bounds(jobs_of(tasks, platform, at_once), platform, min(at_once, 50)):
        assert line.end >= bound.seconds * 0.999, bound


@settings(max_examples=30, deadline=None)
@given(plans(), st.integers(0, 5))
def test_same_seed_same_run(tasks: list[Task], seed: int) -> None:
    """Chance comes from the seed alone."""
    assert play(tasks, aws(), 20, seed) == play(tasks, aws(), 20, seed)


@settings(max_examples=30, deadline=None)
@given(plans())
def test_more_workers_are_hardly_ever_slower(tasks: list[Task]) -> None:
    """Twice the places take at most a little longer (Graham's anomaly is below one long task)."""
    few, many = (play(tasks, steady(workers=100), n) for n in (5, 10))
    assert many.end <= few.end * 1.02 + 0.1


def test_list_scheduling_by_hand() -> None:
    """Six equal batches on two workers take three times one batch, to the microsecond."""
    line = play([batch(n) for n in range(6)], steady(workers=2), 2)
    one = play([batch(0)], steady(workers=1), 1)
    assert line.end == pytest.approx(3 * one.end)
    assert line.freed_by[:2] == [-1, -1]
    assert sorted(line.freed_by[2:4]) == [0, 1] or line.freed_by[2] in {0, 1}


def test_dispatch_rate_spaces_starts() -> None:
    """Ten starts a second means that the last of 21 starts two seconds in."""
    line = play([batch(n) for n in range(21)], steady(workers=100, dispatch_rate=10.0), 100)
    assert max(line.dispatched) == pytest.approx(2.0)


def test_lambda_scaling_delays_what_is_beyond_the_burst() -> None:
    """With a burst of 5 and 2 environments a second, the tenth of ten waits 2.5 s."""
    platform = steady(workers=100, burst=5.0, refill=2.0)
    tasks = [batch(n, members=32_000) for n in range(10)]  # long enough that none is reused
    line = play(tasks, platform, 100)
    assert line.dispatched[4] == pytest.approx(0.0)
    assert line.dispatched[9] == pytest.approx(2.5)


def test_warm_environments_start_cold_once() -> None:
    """Ten tasks, two at a time: the first two start cold, the other eight warm."""
    platform = replace(steady(workers=2), cold_start=STEADY)
    line = play([batch(n) for n in range(10)], platform, 2)
    assert sum(one > 0 for one in line.cold) == 2


def test_environments_of_an_earlier_map_have_no_cold_start() -> None:
    """Of ten tasks at once, six find the environments that another Map left idle."""
    platform = replace(steady(workers=10), cold_start=STEADY)
    tasks = [batch(n) for n in range(10)]
    earlier = play(tasks[:6], platform, 10)
    jobs = jobs_of(tasks, platform, 10)
    line = Simulation(jobs, platform, 10, random.Random(1), earlier.environments).run()
    assert (earlier.environments, line.environments) == (6, 10)
    assert sum(one > 0 for one in line.cold) == 4


def test_a_prefix_that_is_too_slow_paces_all() -> None:
    """40 batches of 1,000 on a prefix of 1,000 PUT/s take 40 s, and say they were throttled."""
    platform = steady(workers=20, prefix_writes=1_000.0)
    line = play([batch(n, members=999) for n in range(40)], platform, 20)
    assert line.end == pytest.approx(40.0, rel=0.02)
    assert line.throttled_seconds > 35


def test_a_prefix_grows_while_it_is_throttled() -> None:
    """With a doubling after 10 s, 40,000 PUTs at first 1,000/s take 10 + 10 + 10/4 s."""
    platform = steady(workers=40, prefix_writes=1_000.0, growth_seconds=10.0)
    line = play([batch(n, members=999) for n in range(40)], platform, 40)
    assert write_seconds(40_000, platform) == pytest.approx(22.5)
    assert line.end == pytest.approx(22.5, rel=0.03)


def test_large_members_are_not_slowed_by_batches() -> None:
    """A throttled prefix answers a copy's few requests: it takes as long as alone."""
    platform = steady(workers=40, prefix_writes=1_000.0, copy_rate=50.0 * MB)
    copy = large(TaskKind.COPY, 99, 2_000 * MB)
    alone = play([copy], platform, 40)
    line = play([copy, *(batch(n, members=1_999) for n in range(39))], platform, 40)
    assert line.throttled_seconds > 60
    assert line.ended[0] == pytest.approx(alone.end, rel=0.01)


def test_nothing_to_do_takes_no_time() -> None:
    """A Map without tasks ends at once."""
    assert play([], aws(), 10).end == 0.0
