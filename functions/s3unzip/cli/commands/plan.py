"""Commands that forecast runs, nothing written: ``plan``, ``simulate``."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.destinations import DestinationConnection
from s3unzip.cli.options.power import Power
from s3unzip.cli.terminal.json_lines import ListedFixture, print_json
from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import UsageError
from s3unzip.forecast import Platform, aws, local
from s3unzip.local.machine import LOCAL_PUT
from s3unzip.model import Options, Request
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.forecast import Forecast, Published, Workload
    from s3unzip.model import Location
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig


def plan_command(
    source: o.Source,
    selection: o.Selection,
    layout: o.Layout,
    reading: o.Reading,
    power: Power,
    connection: DestinationConnection,
    dest: Annotated[
        str | None, typer.Argument(metavar="[DEST]", help="Where members would go.")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Forecast for aws or local; default: local.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="Use this environment's settings, on aws."),
    ] = None,
    as_gzip: o.AsGzip = None,
    max_cost: o.MaxCost = None,
    json: o.Json = False,
) -> int:
    """Forecast a run: its work, time and cost; nothing is written."""
    from s3unzip.api.options import make_policy
    from s3unzip.context import Context
    from s3unzip.forecast import check_budget, forecast_archive
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.factory import open_stores

    config = connection.config()
    deployed = None if env is None else _deployed(env, on, config)
    ruled = Options() if deployed is None else deployed.orders.options
    reading = dataclasses.replace(
        reading,
        lenient=reading.lenient or ruled.lenient,
        encoding=reading.encoding or ruled.encoding,
    )
    layout = dataclasses.replace(
        layout, key_template=layout.template or ruled.key_template, prefix=None
    )
    chosen = o.make_options(selection, layout, reading, as_gzip=as_gzip or ruled.as_gzip)
    site = _choose_site(deployed, dest, on, power)
    policy = make_policy(chosen, reading.read(), site.target)
    request = Request(parse_source(source), site.target, chosen)
    with connection.opened(request.source) as stores:
        context = Context(open_stores(stores), LocalClock(), policy, site.tuning)
        workload = _workload(request, context)
    forecast = forecast_archive(workload, site.platform, site.tuning)
    _show_forecast(forecast, json=json)
    check_budget(forecast, site.max_cost if max_cost is None else max_cost)
    return 0


class _Site(NamedTuple):
    """Where a run would be done."""

    target: Location
    platform: Platform
    tuning: Tuning
    max_cost: float | None = None


def _choose_site(
    deployed: DeployedRuns | None, dest: str | None, on: str | None, power: Power
) -> _Site:
    if deployed is None:
        on = on or "local"
        platform = choose_platform(
            on, workers=power.workers or (power.processes if on == "local" else None)
        )
        return _Site(parse_destination(dest or "."), platform, power.tuning(platform.workers))
    scale = deployed.scale
    count = power.workers or scale.tuning.max_workers
    return _Site(
        parse_destination(dest) if dest else deployed.orders.destination,
        replace(scale.platform, workers=count),
        power.tuning(count, scale.tuning),
        scale.max_cost,
    )


def _deployed(env: str, on: str | None, config: StoreConfig) -> DeployedRuns:
    from s3unzip.cli.runs import open_deployed

    if on not in {None, "aws"}:
        raise UsageError(f"--env {env} is on aws, not on {on}")
    return open_deployed(env, config)


def _workload(request: Request, context: Context) -> Workload:
    from s3unzip.api.options import judge_selection
    from s3unzip.forecast import count_sizes, make_workload
    from s3unzip.planning.plan import preview_plan

    preview = preview_plan(request, context)
    judge_selection(request.options, warn)(preview.reading)
    sizes = count_sizes(member.size for member in preview.reading.selected)
    return make_workload(preview.tasks, context.tuning, title=str(request.source), sizes=sizes)


def _show_forecast(forecast: Forecast, published: Published | None = None, *, json: bool) -> None:
    from s3unzip.cli.terminal.forecasts import make_console, print_forecast

    if json:
        print_json(forecast)
    else:
        print_forecast(forecast, make_console(), published=published)


def simulate_command(
    power: Power,
    fixture: Annotated[
        str, typer.Argument(metavar="FIXTURE", help="An archive that does not exist; see --list.")
    ] = "",
    on: Annotated[str, typer.Option("--on", help="aws or local.")] = "aws",
    memory: Annotated[
        int | None, typer.Option("--memory", help="Memory of a Lambda function in MB.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random numbers.")] = 1,
    max_cost: o.MaxCost = None,
    list_fixtures: Annotated[bool, typer.Option("--list", help="List the fixtures.")] = False,
    json: o.Json = False,
) -> int:
    """Forecast the extraction of an imaginary archive."""
    from s3unzip.forecast import (
        FIXTURES,
        check_budget,
        find_fixture,
        forecast_archive,
        make_fixture,
    )

    if list_fixtures or not fixture:
        for name, known in FIXTURES.items():
            if json:
                print_json(ListedFixture(name, known.title))
            else:
                sys.stdout.write(f"{name:24} {known.title}\n")
        return 0
    platform = choose_platform(on, workers=power.workers, memory_mb=memory)
    tuning = power.tuning(platform.workers)
    found = find_fixture(fixture)
    forecast = forecast_archive(make_fixture(found, tuning), platform, tuning, seed=seed)
    check_budget(forecast, max_cost)
    _show_forecast(forecast, found.published, json=json)
    return 0


def choose_platform(
    on: str, *, workers: int | None = None, memory_mb: int | None = None
) -> Platform:
    """Return the platform called `on`, aws or local, with its usual limits.

    Args:
        on: aws or local.
        workers: tasks at once; None: 1,000 on AWS, 2 on one machine.
        memory_mb: of a Lambda.

    Raises:
        UsageError: `on` is neither, or there are no workers.
    """
    if on == "aws":
        usual = aws()
        return aws(
            workers=usual.workers if workers is None else workers,
            memory_mb=round(usual.memory_gb * 1024) if memory_mb is None else memory_mb,
        )
    if on == "local":
        return local(workers=2 if workers is None else workers, put=LOCAL_PUT)
    raise UsageError(f"--on takes aws or local, not {on!r}")
