"""The command that estimates a run, nothing written: ``plan``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.destinations import DestinationConnection
from s3unzip.cli.options.power import Power
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import UsageError
from s3unzip.estimate import Platform, aws, local
from s3unzip.model import Options, Request
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.estimate import Estimate
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
        str | None, typer.Option("--on", help="Estimate for aws or local; default: local.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="Use this environment's settings, on aws."),
    ] = None,
    as_gzip: o.AsGzip = None,
    max_cost: o.MaxCost = None,
    json: o.Json = False,
) -> int:
    """Estimate a run: its work, time and cost; nothing is written."""
    from s3unzip.api.options import make_policy
    from s3unzip.context import Context
    from s3unzip.estimate import check_budget
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
        made = _estimate(request, context, site.platform)
    if json:
        print_json(made)
    else:
        from s3unzip.cli.terminal.estimates import make_console, print_estimate

        print_estimate(made, make_console())
    check_budget(made, site.max_cost if max_cost is None else max_cost)
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


def _estimate(request: Request, context: Context, platform: Platform) -> Estimate:
    from s3unzip.api.options import judge_selection
    from s3unzip.estimate import Terms, count_sizes, estimate_archive
    from s3unzip.planning.cutting import choose_concurrency
    from s3unzip.planning.plan_writer import preview_plan

    preview = preview_plan(request, context)
    judge_selection(request.options, warn)(preview.reading)
    objects, source = request.options.objects, request.source
    selected = preview.reading.selected
    terms = Terms(
        members=len(selected),
        title=str(source),
        storage_class=(objects and objects.storage_class) or "STANDARD",
        sends_events=source.scheme == "s3" and source.bucket == request.destination.bucket,
        at_once=choose_concurrency(preview.tasks, context.tuning),
        sizes=count_sizes(member.size for member in selected),
    )
    return estimate_archive(preview.tasks, platform, context.tuning, terms)


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
        return local(workers=2 if workers is None else workers)
    raise UsageError(f"--on takes aws or local, not {on!r}")
