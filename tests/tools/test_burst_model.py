"""The simulation of bursts: it is repeatable, and what it says of the shipped way holds."""

from __future__ import annotations

import math

import pytest

from bench.burst_policies import POLICIES, Policy, Shares
from bench.burst_simulated import Scenario, direct, find_least_p95, many, simulate, wide


def small_archives() -> Scenario:
    """Return a burst of direct runs."""
    return Scenario("300 small", lambda: many(300, direct), concurrency=100, workers=80, intake=20)


def few_workers() -> Scenario:
    """Return a burst of runs that need ten times the workers."""
    return Scenario(
        "20 of 8 tasks",
        lambda: many(20, lambda name: wide(name, 8)),
        concurrency=20,
        workers=16,
        intake=4,
    )


@pytest.mark.parametrize("kind", POLICIES)
def test_every_candidate_ends_every_run(kind: type[Policy]) -> None:
    """No archive is lost or failed, and the same seed gives the same times."""
    for scenario in (small_archives(), few_workers()):
        found = simulate(scenario, kind)
        assert found.failed == 0
        assert found.makespan >= 0.79 * found.bound  # the reserve counts for some, and is used
        assert repr(simulate(scenario, kind)) == repr(found)


def test_shares_are_near_the_bound_and_ask_seldom_in_vain() -> None:
    """Every run of the old way asks for all its workers; shares ask for those that are there."""
    before, now = simulate(few_workers(), Policy), simulate(few_workers(), Shares)
    assert now.makespan / now.bound <= 1.2
    assert now.refused * 10 < before.refused


def test_95_percent_of_a_burst_need_their_puts() -> None:
    """190,000 PUTs at 3,482.5 a second take 55 s; archives that come apart have no such bound."""
    scenario = Scenario("10,000 small", list)
    small = many(10_000, direct)
    assert find_least_p95(small, scenario) == pytest.approx(9_500 * 20 / 3_482.5)
    assert math.isnan(find_least_p95([direct("one"), direct("late", 5.0)], scenario))
    assert math.isnan(find_least_p95([wide("large", 8)], scenario))


def test_a_middling_run_is_not_stuck_behind_a_giant() -> None:
    """With shares it waits for some tasks of the giant, not for all."""

    def make() -> Scenario:
        middling = wide("middling", 10, 2.0, 30.0)
        middling.small = True
        giant = wide("giant", 400)
        return Scenario("giant", lambda: [giant, middling], concurrency=20, workers=16, intake=4)

    assert simulate(make(), Shares).small_p95 < 60.0
    assert math.isnan(simulate(few_workers(), Shares).small_p95)
