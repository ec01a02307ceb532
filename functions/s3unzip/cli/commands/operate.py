"""Commands on runs that were: ``runs``, ``show``, ``redrive``, ``retry``, ``abort``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip import run_files
from s3unzip.cli.options import archive as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.options.destinations import RunConnection
from s3unzip.cli.options.power import Power
from s3unzip.cli.terminal.json_lines import (
    Aborted,
    FailedMember,
    Redriven,
    Retried,
    print_json,
)
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import PlanSummary, Status, Verdict
from s3unzip.reporting.next_step import resume_command
from s3unzip.stores.home import runs_home
from s3unzip.stores.locations import STANDARD_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.cli.runs import Runs
    from s3unzip.context import Context
    from s3unzip.model import Report


def list_runs(
    connection: Connection,
    env: o.Env = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many runs to list.")] = 50,
    json: o.Json = False,
) -> int:
    """List runs, the latest first."""
    from s3unzip.cli.runs import list_entries, open_runs
    from s3unzip.cli.terminal.listing import print_runs

    runs = open_runs(env, connection.config())
    listed = list_entries(runs, limit)
    if json:
        for one in listed:
            print_json(one)
    else:
        print_runs(listed)
        if explanation := runs.explain_waiting():
            sys.stderr.write(f"{explanation}\n")
    return 0


def show_run(
    connection: Connection,
    run: o.RunId = "latest",
    env: o.Env = None,
    failures: Annotated[
        bool, typer.Option("--failures", help="List every failed member, one JSON a line.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Open the report page; print where it is.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Print the report of a run; the exit code is its verdict's."""
    from s3unzip.cli.runs import open_runs, report_of
    from s3unzip.cli.terminal.output import print_report

    runs = open_runs(env, connection.config())
    name = runs.find(run)
    report = report_of(name, runs)
    if failures:
        for task, outcome in runs.records(name).each_outcome():
            if outcome.status is Status.FAILED:
                print_json(FailedMember(task, outcome))
    elif html:
        _open_page(_page_of(name, runs, deployed=env is not None))
    elif json:
        print_json(report)
    else:
        print_report(report, sys.stdout, environment=env)
    return report.verdict.exit_code


def _page_of(run: str, runs: Runs, *, deployed: bool) -> Path:
    """Return where the page of a run is on this machine, fetched if it is elsewhere."""
    from s3unzip.stores.folder.descriptors import PRIVATE, make_folders

    home = Path(runs_home().key)
    if not deployed:
        page = home / "runs" / run / run_files.PAGE
        if page.is_file():
            return page
        raise NotFoundError(f"{run}: has no page; s3unzip redrive {run} writes it")
    page = home / "pages" / f"{run}.html"
    make_folders(page.parent, PRIVATE)
    page.write_bytes(runs.records(run).read_page())
    return page


def _open_page(page: Path) -> None:
    sys.stdout.write(f"{page}\n")
    if sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.as_uri())


def redrive_run(
    run: o.RunId,
    power: Power,
    password: o.Password,
    connection: RunConnection,
    env: o.Env = None,
    json: o.Json = False,
) -> int:
    """Continue a run: do the tasks that did not end."""
    from s3unzip.cli.runs import open_deployed
    from s3unzip.local.runner import redrive
    from s3unzip.operate import finishing

    config = connection.config()
    if env is not None:
        deployed = open_deployed(env, config)
        name = deployed.find(run)
        if not _is_completed(name, deployed, json=json):
            finishing.redrive(deployed, name)
            _tell_or_print(
                f"redriven: s3unzip watch {name} --env {env}", Redriven(name, env), json=json
            )
        return 0
    make = LocalRerun(connection, power, password)
    return make.go(run, redrive, json=json)


def retry_run(
    run: o.RunId,
    power: Power,
    password: o.Password,
    connection: RunConnection,
    env: o.Env = None,
    json: o.Json = False,
) -> int:
    """Try the failed members of a run again.

    The other members are not touched. Fix what made these fail first.
    """
    from s3unzip.cli.runs import open_deployed
    from s3unzip.local.runner import retry_failed

    config = connection.config()
    if env is not None:
        deployed = open_deployed(env, config)
        name = deployed.find(run)
        if not _is_completed(name, deployed, json=json):
            tasks = deployed.retry(name)
            words = f"{tasks:,} tasks: s3unzip watch {name} --env {env}" if tasks else "none failed"
            _tell_or_print(words, Retried(name, env, tasks), json=json)
        return 0
    make = LocalRerun(connection, power, password)
    return make.go(run, retry_failed, json=json)


def abort_run(
    run: o.RunId,
    connection: Connection,
    env: o.Env = None,
    json: o.Json = False,
) -> int:
    """Stop a run and drop its incomplete uploads.

    Members that are already written stay.
    """
    from s3unzip.cli.runs import open_deployed, open_runs
    from s3unzip.objects import upload_registry

    config = connection.config()
    stopped = False
    if env is None:
        runs: Runs = open_runs(None, config)
        name = runs.find(run)
    else:
        runs = deployed = open_deployed(env, config)
        name = deployed.find(run)
        stopped = deployed.stop(name)
        if stopped and not json:
            sys.stdout.write("execution stopped\n")
    context = _look(runs)
    summary = read_summary(name, runs)
    count = upload_registry.abort_run(summary.run, context)
    words = f"{count} incomplete uploads dropped"
    _tell_or_print(words, Aborted(name, env, stopped=stopped, uploads=count), json=json)
    return 0


def _tell_or_print(words: str, value: object, *, json: bool) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(f"{words}\n")


class LocalRerun:
    """Does a run's work again, or what is left of it, with the options of this command."""

    def __init__(self, connection: RunConnection, power: Power, password: o.Password) -> None:
        self._connection = connection
        self._processes = power.processes
        self._tuning = power.tuning(power.processes)
        self._password = password.read()

    def go(self, name: str, act: Callable[..., Report], *, json: bool) -> int:
        """Find the run, act, print the report; return the exit code."""
        from s3unzip.api.options import make_policy
        from s3unzip.cli.runs import open_runs
        from s3unzip.cli.terminal.output import print_report
        from s3unzip.cli.terminal.progress import RunDisplay
        from s3unzip.local.machine import Machine, Setup

        runs = open_runs(None, self._connection.config())
        summary = read_summary(runs.find(name), runs)
        options = summary.run.options
        if options.password_ref is not None and self._password is None:
            raise UsageError(f"{summary.run.id} was started with a password: give --password-file")
        if _is_completed(summary.run.id, runs, json=json):
            return 0
        run = summary.run
        if run.source == STANDARD_INPUT:
            raise UsageError(
                f"{run.id}: its archive came from a pipe and is gone; continue with: "
                f"{resume_command(run)}"
            )
        policy = make_policy(options, self._password, run.destination)
        display = RunDisplay()
        with self._connection.opened(run.source) as stores:
            setup = Setup(stores, policy, self._tuning, self._processes)
            with Machine(setup, run.source, run.destination, display) as machine, display:
                machine.lock(run.id)
                display.planned(summary)  # starts a thread: the fork server must be there before
                report = act(summary, machine.context, machine.make_pool)
        if json:
            print_json(report)
        print_report(report, rates=False)  # it was not at work all the time since its start
        return report.verdict.exit_code


def _is_completed(run: str, runs: Runs, *, json: bool) -> bool:
    """Say whether nothing is left of a run, and tell it."""
    from s3unzip.reporting.after_success import is_left

    report = runs.records(run).find_report()
    if report is None or report.verdict is not Verdict.COMPLETED or is_left(report):
        return False
    sys.stderr.write(f"{run}: COMPLETED already, nothing is left to do\n")
    if json:
        print_json(report)
    return True


def _look(runs: Runs) -> Context:
    from s3unzip.context import Context
    from s3unzip.local.clock import LocalClock

    return Context(stores=runs.stores, clock=LocalClock())


def read_summary(run: str, runs: Runs) -> PlanSummary:
    """Return what the plan of a run found.

    Raises:
        NotFoundError: the run was rejected, or never planned.
    """
    try:
        return runs.records(run).read_summary()
    except NotFoundError as error:
        raise NotFoundError(f"{run}: has no plan; it was rejected, or stopped before") from error
