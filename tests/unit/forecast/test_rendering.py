"""Forecasts on a terminal and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from msgspec.structs import replace
from rich.console import Console

from s3unzip.cli.commands.plan import choose_platform
from s3unzip.cli.terminal.forecasts import print_forecast
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.errors import BudgetError, UsageError
from s3unzip.forecast import (
    Forecast,
    Platform,
    check_budget,
    find_fixture,
    forecast_archive,
    make_fixture,
)
from s3unzip.settings import Tuning

TUNING = Tuning()


def simulate(name: str, platform: Platform, max_cost: float | None = None) -> Forecast:
    """Return the forecast of a fixture, as the command makes it."""
    forecast = forecast_archive(make_fixture(find_fixture(name), TUNING), platform, TUNING)
    check_budget(forecast, max_cost)
    return forecast


def shown(name: str, on: str) -> str:
    """Return what is printed for a fixture."""
    out = io.StringIO()
    console = Console(file=out, width=110, color_system=None)
    forecast = simulate(name, choose_platform(on))
    print_forecast(forecast, console, published=find_fixture(name).published)
    return out.getvalue()


def test_a_person_reads_time_cost_and_what_decides_them() -> None:
    """The tables name duration, range, sizes, the critical path, bounds and each service."""
    text = shown("49k", "aws")
    for part in (
        "49,152 files of 64 KB on aws",
        "first object after",
        "Others measured 3 min 21 s",
        "Critical path",
        "write rate",
        "64 KiB",
        "Step Functions",
        "one PUT a member, which no tool avoids",
    ):
        assert part in text


def test_one_machine_has_no_bill() -> None:
    """A local forecast prints the path, and says that nothing is paid for."""
    text = shown("1k", "local")
    assert "on local" in text
    assert "nothing that is paid for by use" in text


def test_one_huge_member_is_told_in_bytes_a_second() -> None:
    """Less than one member a second is shown in bytes a second."""
    assert "GiB/s" in shown("100gb", "aws")


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON goes to a pipe: one line, with the expected seconds."""
    print_json(simulate("1k", choose_platform("aws")))
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line)["duration"]["expected"] > 0


def test_one_machine_that_writes_to_s3_has_a_budget_too() -> None:
    """The requests of a local run against S3 are guarded; against another store they are free."""
    paid = replace(choose_platform("local", workers=2), priced_requests=True)
    with pytest.raises(BudgetError):
        simulate("49k", paid, max_cost=0.01)
    simulate("49k", choose_platform("local", workers=2), max_cost=0.01)


def test_platforms_are_aws_and_local() -> None:
    """Any other is refused by name; workers and memory are taken over."""
    assert choose_platform("aws", workers=7, memory_mb=2048).workers == 7
    assert choose_platform("aws", memory_mb=2048).memory_gb == 2.0
    with pytest.raises(UsageError, match="'gcp'"):
        choose_platform("gcp")
    with pytest.raises(UsageError, match="workers"):
        choose_platform("aws", workers=0)
