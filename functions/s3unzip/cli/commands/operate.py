"""Commands on runs that were: ``runs``, ``show``, ``redrive``, ``retry``, ``abort``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli import options as o
from s3unzip.cli.commands.run import (
    Puts,
    Workers,
    available_cores,
    local_tuning,
    open_worker,
)
from s3unzip.cli.home import known_runs
from s3unzip.cli.output import print_report, printable
from s3unzip.cli.progress import show_seconds
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.pipeline.leftovers import abort_leftovers
from s3unzip.pipeline.model import PlanSummary, Status, decode, encode
from s3unzip.pipeline.report import each_outcome, read_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.cli.stores import StoreConfig
    from s3unzip.pipeline.context import Context
    from s3unzip.pipeline.model import Report, Run

RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or latest.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("runs")(list_runs)
    app.command("show")(show_run)
    app.command("redrive")(redrive_run)
    app.command("retry")(retry_run)
    app.command("abort")(abort_run)


def list_runs(json: o.Json = False) -> int:
    """List the runs of this machine, the latest first."""
    config = o.store_config(None, None, None)
    context = _look(config)
    for run in known_runs(config.work):
        work = context.stores.work(run)
        report = read_report(work)
        if json:
            if report is not None:
                sys.stdout.write(encode(report).decode() + "\n")
            continue
        if report is None:
            sys.stdout.write(f"{'-':16}  {'not finished':22}  {run}\n")
            continue
        when = datetime.fromtimestamp(report.started, UTC)
        took = show_seconds(report.finished - report.started)
        sys.stdout.write(f"{when:%Y-%m-%d %H:%M}  {report.verdict:22}  {took:>8}  {run}\n")
    return 0


def show_run(
    run: RunId,
    failures: Annotated[
        bool, typer.Option("--failures", help="List every failed member, one JSON a line.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Print the report of a run; the exit code is its verdict's."""
    config = o.store_config(None, None, None)
    context = _look(config)
    name = find_run(run, config)
    report = _report_of(name, context)
    if failures:
        for task, outcome in each_outcome(context.stores.work(name)):
            if outcome.status is Status.FAILED:
                sys.stdout.write(encode({"task": task, "outcome": outcome}).decode() + "\n")
    elif json:
        sys.stdout.write(encode(report).decode() + "\n")
    else:
        print_report(report, sys.stdout)
    return report.verdict.exit_code


def redrive_run(
    run: RunId,
    workers: Workers = None,
    puts: Puts = None,
    password_file: o.PasswordFile = None,
    tune: o.Tune = None,
    json: o.Json = False,
    endpoint_url: o.EndpointUrl = None,
    region: o.Region = None,
    profile: o.Profile = None,
) -> int:
    """Do what a run left: only tasks that did not end."""
    from s3unzip.local.runner import redrive  # noqa: PLC0415

    config = o.store_config(endpoint_url, region, profile)
    make = _Again(config, workers, puts, tune, password_file)
    return make.go(run, redrive, json=json)


def retry_run(
    run: RunId,
    workers: Workers = None,
    puts: Puts = None,
    password_file: o.PasswordFile = None,
    tune: o.Tune = None,
    json: o.Json = False,
    endpoint_url: o.EndpointUrl = None,
    region: o.Region = None,
    profile: o.Profile = None,
) -> int:
    """Try the failed members of a run again, after a fix; the others are left alone."""
    from s3unzip.local.runner import retry_failed  # noqa: PLC0415

    config = o.store_config(endpoint_url, region, profile)
    make = _Again(config, workers, puts, tune, password_file)
    return make.go(run, retry_failed, json=json)


def abort_run(
    run: RunId,
    endpoint_url: o.EndpointUrl = None,
    region: o.Region = None,
    profile: o.Profile = None,
) -> int:
    """Drop the incomplete uploads of a run; members that are written stay."""
    config = o.store_config(endpoint_url, region, profile)
    context = _look(config)
    summary = read_summary(find_run(run, config), context)
    work = context.stores.work(summary.run.id)
    count = abort_leftovers(summary.run, work, context, context.calls())
    sys.stdout.write(f"{count} incomplete uploads dropped\n")
    return 0


class _Again:
    """Does a run's work again, or what is left of it, with the options of this command."""

    def __init__(
        self,
        config: StoreConfig,
        workers: int | None,
        puts: int | None,
        tune: list[str] | None,
        password_file: o.PasswordFile,
    ) -> None:
        self._config = config
        self._processes = workers or available_cores()
        self._tuning = local_tuning(tune, self._processes, puts)
        self._password = o.read_password(password_file)

    def go(self, name: str, act: Callable[..., Report], *, json: bool) -> int:
        """Find the run, act, print the report; return the exit code."""
        from s3unzip.cli.progress import RunDisplay  # noqa: PLC0415
        from s3unzip.local.clock import LocalClock  # noqa: PLC0415
        from s3unzip.local.pool import WorkerPool  # noqa: PLC0415

        summary = read_summary(find_run(name, self._config), _look(self._config))
        options = summary.run.options
        if options.password_ref is not None and self._password is None:
            raise UsageError(f"{summary.run.id} was begun with a password: give --password-file")
        worker = partial(open_worker, self._config, options, self._tuning, self._password)
        display = RunDisplay()
        display.planned(summary)

        def make_pool(run: Run) -> WorkerPool:
            return WorkerPool(run, self._processes, worker, display)

        with display:
            report = act(summary, worker(LocalClock(), display), make_pool)
        if json:
            sys.stdout.write(encode(report).decode() + "\n")
        print_report(report)
        return report.verdict.exit_code


def _look(config: StoreConfig) -> Context:
    """Return a context that looks at runs; it needs no right on any bucket."""
    from s3unzip.cli.stores import open_stores  # noqa: PLC0415
    from s3unzip.local.clock import LocalClock  # noqa: PLC0415
    from s3unzip.pipeline.context import Context  # noqa: PLC0415

    return Context(stores=open_stores(config), clock=LocalClock())


def find_run(name: str, config: StoreConfig) -> str:
    """Return the whole id of a run.

    Raises:
        NotFoundError: there is none.
        UsageError: several begin so.
    """
    known = known_runs(config.work)
    if name == "latest" and known:
        return known[0]
    found = [run for run in known if run == name] or [r for r in known if r.startswith(name)]
    if not found:
        raise NotFoundError(f"{printable(name)}: no such run here; see s3unzip runs")
    if len(found) > 1:
        raise UsageError(f"{printable(name)}: {len(found)} runs begin so; see s3unzip runs")
    return found[0]


def _report_of(run: str, context: Context) -> Report:
    report = read_report(context.stores.work(run))
    if report is None:
        raise NotFoundError(f"{run}: has no report yet; s3unzip redrive {run} continues it")
    return report


def read_summary(run: str, context: Context) -> PlanSummary:
    """Return what the plan of a run found.

    Raises:
        NotFoundError: the run was rejected, or never planned.
    """
    try:
        return decode(context.stores.work(run).read("summary.json"), PlanSummary)
    except NotFoundError as error:
        raise NotFoundError(f"{run}: has no plan; it was rejected, or stopped before") from error
