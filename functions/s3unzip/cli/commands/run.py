"""``run``: extract an archive on this machine."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace
from msgspec.structs import replace as replace_fields

from s3unzip.cli.home import runs_home
from s3unzip.cli.options import archive as o
from s3unzip.cli.options.connections import RunConnection
from s3unzip.cli.options.groups import with_groups
from s3unzip.cli.options.power import Power
from s3unzip.cli.selecting import judge_selection
from s3unzip.model import OnConflict, Request, encode
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context
    from s3unzip.forecast import Platform
    from s3unzip.local.forkserver import ForkServer
    from s3unzip.local.runner import Pool
    from s3unzip.model import Location, PlanSummary, Report, Run
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.ports import Stores

Conflict = Annotated[
    OnConflict, typer.Option("--on-conflict", help="What to do where DEST has the key.")
]
Nested = Annotated[
    int,
    typer.Option(
        "--nested", metavar="DEPTH", min=0, help="Extract archives inside it, so many levels deep."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("run")(with_groups(run_command))


def run_command(
    source: o.Source,
    dest: o.Dest,
    selection: o.Selection,
    layout: o.Layout,
    reading: o.Reading,
    power: Power,
    connection: RunConnection,
    on_conflict: Conflict = OnConflict.OVERWRITE,
    as_gzip: o.AsGzip = None,
    trust_crc: Annotated[
        bool, typer.Option("--trust-crc", help="With --as-gzip: do not inflate to check.")
    ] = False,
    nested: Nested = 0,
    marker: Annotated[
        bool, typer.Option("--marker", help="Write _SUCCESS last, if all went well.")
    ] = False,
    max_cost: o.MaxCost = None,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> int:
    """Extract an archive on this machine.

    Exit code: 0 all extracted, 1 some members failed, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip redrive continues),
    2 wrong request, 6 a store refused, 7 no member selected,
    74 stdout cannot be written, 130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    from s3unzip.cli.contexts import open_context, worker_modules
    from s3unzip.local.forkserver import ForkServer

    chosen = replace_fields(
        o.make_options(selection, layout, reading, as_gzip=as_gzip),
        on_conflict=on_conflict,
        trust_crc=trust_crc,
        password_ref=reading.reference,
        nested_depth=nested,
        marker=marker,
    )
    request = Request(parse_source(source), parse_destination(dest), chosen)
    connection.check_destination(request.destination)
    tuning = power.tuning(power.processes)
    config = connection.config()
    policy = reading.policy(request.destination)
    program = partial(open_context, config, policy, tuning)
    worker = partial(open_context, replace(config, check_reachable=False), policy, tuning)
    platform = local_platform(config, request.destination, power.processes)
    modules = worker_modules(config.work, request.source, request.destination)
    with ForkServer(modules) as server:
        machine = Machine(program, worker, power.processes, platform, server)
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
    from s3unzip.cli.terminal.output import print_report
    from s3unzip.cli.terminal.progress import RunDisplay
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
            written = _read_written(request, context.stores)
            judge = judge_selection(request.options)
            report = run_archive(request, context, make_pool, planned, judge, written)
        if json:
            sys.stdout.write(encode(report).decode() + "\n")
        if not quiet:
            print_report(report)
        if not request.options.nested_depth:
            return report.verdict.exit_code
        below = _run_nested(report, context, make_pool, admit, quiet=quiet, json=json)
        return report.verdict.exit_code or below


def _read_written(request: Request, stores: Stores) -> WrittenObjects | None:
    """Return what this machine's runs wrote, where the run asks what is there already."""
    from s3unzip.cli.home import runs_of
    from s3unzip.runs.records import RunRecords
    from s3unzip.runs.written import read_written

    if request.options.on_conflict is OnConflict.OVERWRITE:
        return None
    names = runs_of(runs_home(), request.source)
    return read_written((RunRecords.open(stores, name) for name in names), request.destination)


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
    from s3unzip.cli.terminal.output import print_nested
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


def _guard(summary: PlanSummary, context: Context, max_cost: float) -> None:
    from s3unzip.forecast import (
        check_budget,
        make_forecast,
        make_workload,
    )
    from s3unzip.runs.records import RunRecords

    tasks = RunRecords.open(context.stores, summary.run.id).tasks()
    workload = make_workload(tasks, context.tuning, title=summary.run.id, summary=summary)
    if context.platform is not None:
        check_budget(make_forecast(workload, context.platform, context.tuning), max_cost)
