"""Commands that do a run, or say what one would do: ``run``, ``plan``, ``simulate``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from s3unzip.cli import options as o
from s3unzip.cli.commands.archive import make_context
from s3unzip.cli.home import runs_home
from s3unzip.cli.output import print_report
from s3unzip.errors import UsageError
from s3unzip.local.processors import available_processors
from s3unzip.model import OnConflict, Options, Request, encode
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.aws_lambda.environment import Capacity, RunDefaults
    from s3unzip.context import Context
    from s3unzip.forecast import Forecast, Platform, Workload
    from s3unzip.local.forkserver import ForkServer
    from s3unzip.local.runner import Pool
    from s3unzip.model import Location, PlanSummary, Report, Run
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig

Prefix = Annotated[
    str | None,
    typer.Option("--prefix", help="Put members below DEST/PREFIX instead of the archive's name."),
]
Template = Annotated[
    str | None,
    typer.Option("--key-template", help="How keys are made; default {archive_stem}/{member}."),
]
Conflict = Annotated[
    OnConflict, typer.Option("--on-conflict", help="What to do where DEST has the key.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", "-w", min=1, help="Worker processes; default: cores.")
]
Puts = Annotated[
    int | None, typer.Option("--puts", "-p", min=1, help="PUTs in flight in each worker.")
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", help="Refuse above so many dollars, before the first PUT."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("run")(run_command)
    app.command("plan")(plan_command)
    app.command("simulate")(simulate_command)


def run_command(
    source: o.Source,
    dest: o.Dest,
    include: o.Include = None,
    exclude: o.Exclude = None,
    member: o.Member = None,
    limit: o.Limit = None,
    prefix: Prefix = None,
    key_template: Template = None,
    on_conflict: Conflict = OnConflict.OVERWRITE,
    workers: Workers = None,
    puts: Puts = None,
    lenient: o.Lenient = False,
    encoding: o.Encoding = None,
    as_gzip: o.AsGzip = None,
    trust_crc: Annotated[
        bool, typer.Option("--trust-crc", help="With --as-gzip: do not inflate to check.")
    ] = False,
    password_file: o.PasswordFile = None,
    nested: o.Nested = 0,
    marker: Annotated[
        bool, typer.Option("--marker", help="Write _SUCCESS last, if all went well.")
    ] = False,
    max_cost: MaxCost = None,
    dest_owner: o.DestOwner = None,
    kms_key: o.KmsKey = None,
    tune: o.Tune = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no report.")] = False,
    json: o.Json = False,
    allow: o.Allow = None,
    endpoint_url: o.EndpointUrl = None,
    region: o.Region = None,
    profile: o.Profile = None,
) -> int:
    """Extract an archive on this machine.

    Exit code: 0 all extracted, 1 some members failed, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip redrive continues),
    2 wrong request, 6 a store refused, 74 stdout cannot be written,
    130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    from s3unzip.cli.contexts import open_context, worker_modules
    from s3unzip.local.forkserver import ForkServer

    chosen = o.make_options(
        include=include,
        exclude=exclude,
        members=member,
        limit=limit,
        lenient=lenient,
        encoding=encoding,
        key_template=template_of(prefix, key_template),
        on_conflict=on_conflict,
        as_gzip=as_gzip,
        trust_crc=trust_crc,
        password_ref=None if password_file is None else f"file:{password_file}",
        nested_depth=nested,
        marker=marker,
    )
    request = Request(parse_source(source), parse_destination(dest), chosen)
    if request.destination.scheme != "s3" and (dest_owner or kms_key):
        raise UsageError(f"{request.destination}: --dest-owner and --kms-key are for S3")
    processes = workers or len(available_processors())
    tuning = local_tuning(tune, processes, puts)
    config = o.store_config(
        endpoint_url, region, profile, owner=dest_owner, kms_key=kms_key, allow=allow
    )
    policy = o.policy_of(chosen, o.read_password(password_file), request.destination)
    program = partial(open_context, config, policy, tuning)
    worker = partial(open_context, replace(config, check_reachable=False), policy, tuning)
    platform = local_platform(config, request.destination, processes)
    modules = worker_modules(config.work, request.source, request.destination)
    with ForkServer(modules) as server:
        machine = Machine(program, worker, processes, platform, server)
        return _run(request, machine, max_cost, quiet=quiet, json=json)


class Machine(NamedTuple):
    """This machine, as a run uses it."""

    program: partial[Context]  # of a clock and a progress, as is the next
    worker: partial[Context]
    processes: int
    platform: Platform
    server: ForkServer


def _run(
    request: Request,
    machine: Machine,
    max_cost: float | None,
    *,
    quiet: bool,
    json: bool,
) -> int:
    from s3unzip.cli.progress import RunDisplay
    from s3unzip.local.clock import LocalClock
    from s3unzip.local.leftovers import drop_leftovers
    from s3unzip.local.locking import lock_run
    from s3unzip.local.pool import WorkerPool
    from s3unzip.local.runner import run_archive

    display = RunDisplay(enabled=False if quiet else None)
    context = replace(machine.program(LocalClock(), display), platform=machine.platform)

    def make_pool(run: Run) -> WorkerPool:
        return WorkerPool(run, machine.processes, machine.worker, display, machine.server)

    locks = ExitStack()

    def admit(summary: PlanSummary) -> None:
        if max_cost is not None:
            _guard(summary, context, max_cost)
        locks.enter_context(lock_run(runs_home().key, summary.run.id))
        drop_leftovers(runs_home().key, summary.run, context)

    def planned(summary: PlanSummary) -> None:
        admit(summary)
        display.planned(summary)

    with locks:
        with display:
            report = run_archive(request, context, make_pool, planned)
        if json:
            sys.stdout.write(encode(report).decode() + "\n")
        if not quiet:
            print_report(report)
        if not request.options.nested_depth:
            return report.verdict.exit_code
        below = _run_nested(report, context, make_pool, admit, quiet=quiet, json=json)
        return report.verdict.exit_code or below


def _run_nested(
    report: Report,
    context: Context,
    make_pool: Callable[[Run], Pool],
    planned: Callable[[PlanSummary], None],
    *,
    quiet: bool,
    json: bool,
) -> int:
    """Extract the archives that a run extracted; return 1 if not all of them went well."""
    from s3unzip.cli.output import print_nested
    from s3unzip.local.nesting import run_nested

    nested = run_nested(report, context, make_pool, planned)
    for one in nested:
        if json:
            sys.stdout.write(encode(one).decode() + "\n")
        if not quiet:
            print_nested(one)
    return 0 if all(one.is_right for one in nested) else 1


def local_platform(config: StoreConfig, destination: Location, processes: int) -> Platform:
    """Return this machine as forecasts know it; a store of one's own sends no bill."""
    from s3unzip.cli.platforms import choose_platform

    amazon = destination.scheme == "s3" and config.endpoint_url is None
    return choose_platform("local", workers=processes, priced_requests=amazon)


def local_tuning(tune: list[str] | None, processes: int, puts: int | None) -> Tuning:
    """Return the tuning of a run on this machine."""
    more = {"max_workers": processes}
    if puts is not None:
        more["puts_in_flight"] = puts
    return o.tuning_of(tune, None, **more)


def template_of(prefix: str | None, template: str | None) -> str | None:
    """Return the key template that ``--prefix`` and ``--key-template`` ask for.

    Raises:
        UsageError: both are given.
    """
    if prefix is None:
        return template
    if template is not None:
        raise UsageError("--prefix and --key-template: give one of them")
    cleaned = prefix.strip("/")
    return f"{cleaned}/{{member}}" if cleaned else "{member}"


def plan_command(
    source: o.Source,
    dest: Annotated[
        str | None, typer.Argument(metavar="[DEST]", help="Where members would go.")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Forecast for aws or local; default: local.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="On aws, as that environment is deployed."),
    ] = None,
    include: o.Include = None,
    exclude: o.Exclude = None,
    member: o.Member = None,
    limit: o.Limit = None,
    prefix: Prefix = None,
    key_template: Template = None,
    workers: Workers = None,
    puts: Puts = None,
    lenient: o.Lenient = False,
    encoding: o.Encoding = None,
    as_gzip: o.AsGzip = None,
    password_file: o.PasswordFile = None,
    max_cost: MaxCost = None,
    tune: o.Tune = None,
    json: o.Json = False,
    allow: o.Allow = None,
    endpoint_url: o.EndpointUrl = None,
    region: o.Region = None,
    profile: o.Profile = None,
) -> int:
    """Say what a run would do, take and cost; nothing is written."""
    from s3unzip.cli.platforms import choose_platform
    from s3unzip.forecast import check_budget, make_forecast

    config = o.store_config(endpoint_url, region, profile, allow=allow)
    deployed = None if env is None else _deployed(env, on, config)
    ruled = Options() if deployed is None else deployed.orders.options
    chosen = o.make_options(
        include=include,
        exclude=exclude,
        members=member,
        limit=limit,
        lenient=lenient or ruled.lenient,
        encoding=encoding or ruled.encoding,
        key_template=template_of(prefix, key_template) or ruled.key_template,
        as_gzip=as_gzip or ruled.as_gzip,
    )
    if deployed is None:
        target = parse_destination(dest or ".")
        on = on or "local"
        platform = choose_platform(
            on, workers=workers or (len(available_processors()) if on == "local" else None)
        )
        tuning = local_tuning(tune, platform.workers, puts)
    else:
        target = parse_destination(dest) if dest else deployed.orders.destination
        count = workers or deployed.scale.tuning.max_workers
        platform = replace(deployed.scale.platform, workers=count)
        more = {} if puts is None else {"puts_in_flight": puts}
        tuning = o.tuning_of(tune, deployed.scale.tuning, max_workers=count, **more)
        max_cost = deployed.scale.max_cost if max_cost is None else max_cost
    context = replace(make_context(config, chosen, password_file, target), tuning=tuning)
    request = Request(parse_source(source), target, chosen)
    forecast = make_forecast(_workload(request, context), platform, tuning)
    _show_forecast(forecast, json=json)
    check_budget(forecast, max_cost)
    return 0


class _Deployed(NamedTuple):
    """What an environment says of its runs."""

    orders: RunDefaults
    scale: Capacity


def _deployed(env: str, on: str | None, config: StoreConfig) -> _Deployed:
    from s3unzip.aws_lambda.environment import read_orders, read_scale
    from s3unzip.cli.runs import open_deployed

    if on not in {None, "aws"}:
        raise UsageError(f"--env {env} is on aws, not on {on}")
    variables = open_deployed(env, config).planner_variables()
    return _Deployed(read_orders(variables), read_scale(variables))


def _workload(request: Request, context: Context) -> Workload:
    from s3unzip.forecast import count_sizes, make_workload
    from s3unzip.preview import preview_plan

    preview = preview_plan(request, context)
    sizes = count_sizes(member.size for member in preview.reading.selected)
    return make_workload(preview.tasks, context.tuning, title=str(request.source), sizes=sizes)


def _show_forecast(forecast: Forecast, *, json: bool) -> None:
    from rich.console import Console

    from s3unzip.cli.forecasts import forecast_json, print_forecast

    if json:
        sys.stdout.write(forecast_json(forecast).decode() + "\n")
    else:
        print_forecast(forecast, Console(highlight=False))


def _guard(summary: PlanSummary, context: Context, max_cost: float) -> None:
    from s3unzip.forecast import (
        check_budget,
        make_forecast,
        make_workload,
    )
    from s3unzip.runs.records import planned_tasks

    tasks = planned_tasks(context.stores.run_store(summary.run.id))
    workload = make_workload(tasks, context.tuning, title=summary.run.id, summary=summary)
    if context.platform is not None:
        check_budget(make_forecast(workload, context.platform, context.tuning), max_cost)


def simulate_command(
    fixture: Annotated[
        str, typer.Argument(metavar="FIXTURE", help="An archive that does not exist; see --list.")
    ] = "",
    on: Annotated[str, typer.Option("--on", help="aws or local.")] = "aws",
    workers: Workers = None,
    memory: Annotated[int | None, typer.Option("--memory", help="MB of a Lambda.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the chance in it.")] = 1,
    max_cost: MaxCost = None,
    tune: o.Tune = None,
    list_fixtures: Annotated[bool, typer.Option("--list", help="List the fixtures.")] = False,
    json: o.Json = False,
) -> int:
    """Forecast the extraction of an archive that does not exist (yet)."""
    from rich.console import Console

    from s3unzip.cli import forecasts
    from s3unzip.cli.platforms import choose_platform
    from s3unzip.forecast import FIXTURES

    if list_fixtures or not fixture:
        for name, known in FIXTURES.items():
            sys.stdout.write(f"{name:24} {known.title}\n")
        return 0
    platform = choose_platform(on, workers=workers, memory_mb=memory)
    tuning = o.tuning_of(tune, None)
    forecast = forecasts.simulate(fixture, platform, tuning, seed=seed, max_cost=max_cost)
    if json:
        sys.stdout.write(forecasts.forecast_json(forecast).decode() + "\n")
    else:
        console = Console(highlight=False)
        forecasts.print_forecast(forecast, console, published=forecasts.find_published(fixture))
    return 0
