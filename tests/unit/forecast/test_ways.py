"""Which way the forecast sends an archive, and what it says of direct runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast import (
    FIXTURES,
    Fixture,
    Forecast,
    Latency,
    aws,
    forecast_archive,
    local,
    make_fixture,
    make_forecast,
    merge_tasks,
    one_function,
)
from s3unzip.settings import MIB, Tuning

TUNING = Tuning()


def forecast(fixture: Fixture, tuning: Tuning = TUNING) -> Forecast:
    """Return the forecast of a fixture on AWS."""
    return forecast_archive(make_fixture(fixture, tuning), aws(), tuning)


def is_direct(made: Forecast) -> bool:
    """Say whether a forecast is of a direct run: it pays for no step of a state machine."""
    return made.cost.by_service()["Step Functions"] == 0.0


@pytest.mark.parametrize("name", ["1", "100"])
def test_small_archives_are_direct_runs(name: str) -> None:
    """They take a few seconds cold, about two warm, and cost hardly more than their PUTs."""
    made = forecast(FIXTURES[name])
    assert is_direct(made)
    assert made.duration.expected <= 3.5
    assert made.cost.total - made.cost.unavoidable <= 0.000_03
    function = one_function(rates.DIRECT_MEMORY_MB, member_seconds=TUNING.member_seconds)
    warm = replace(function, cold_start=None)
    workload = merge_tasks(make_fixture(FIXTURES[name], TUNING))
    assert make_forecast(workload, warm, TUNING).duration.expected <= 2.2


@pytest.mark.parametrize("name", ["1k", "49k", "100gb"])
def test_large_archives_are_not(name: str) -> None:
    """Their bytes or members are beyond the bounds."""
    assert not is_direct(forecast(FIXTURES[name]))


@pytest.mark.parametrize(
    "changes",
    [
        {"max_direct_members": 99},
        {"max_direct_bytes": 100_000},
        {"max_direct_seconds": 1.0},
        {"tail_bytes": 1_000},
    ],
)
def test_each_bound_holds(changes: dict[str, float]) -> None:
    """Beyond any one of them the state machine does the archive."""
    assert not is_direct(forecast(FIXTURES["100"], replace(TUNING, **changes)))


@pytest.mark.parametrize(("size", "direct"), [(20 * MIB, True), (40 * MIB, False)])
def test_members_of_some_size(size: int, direct: bool) -> None:  # noqa: FBT001 - a parameter
    """A member that the state machine would stream may be one PUT of a direct run."""
    assert is_direct(forecast(Fixture("x", "x", 2, size, size))) is direct


def test_a_machine_has_one_way() -> None:
    """On one machine there is nothing to choose, whatever the archive."""
    workload = make_fixture(FIXTURES["1"], TUNING)
    platform = local(workers=2, put=Latency(0.01, 0.02))
    assert forecast_archive(workload, platform, TUNING) == make_forecast(workload, platform, TUNING)


def test_an_empty_archive() -> None:
    """No task is no trouble."""
    assert is_direct(forecast(Fixture("x", "x", 0, 1, 1)))
