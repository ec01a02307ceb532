"""Commands on runs that were: ``runs``, ``show``, ``redrive``, ``retry``, ``abort``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip import run_files
from s3unzip.cli.commands.rerun import (
    is_completed,
    read_summary,
    recall_options,
    rerun_here,
)
from s3unzip.cli.options import archive_options as o
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
from s3unzip.errors import NotFoundError
from s3unzip.model import Status
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from s3unzip.cli.runs import Runs


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
        print_report(report, sys.stdout, environment=env, connections=runs.connections(name))
    return report.verdict.exit_code


def _page_of(run: str, runs: Runs, *, deployed: bool) -> Path:
    """Return where the page of a run is on this machine, fetched if it is elsewhere."""
    from s3unzip.stores.files import PRIVATE, make_folders

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
    context: typer.Context,
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
    from s3unzip.operate.runs import redrive as redrive_deployed

    config = connection.config()
    if env is not None:
        deployed = open_deployed(env, config)
        name = deployed.find(run)
        if not is_completed(name, deployed, json=json):
            redrive_deployed(deployed, name)
            _tell_or_print(
                f"redriven: s3unzip watch {name}{deployed.found_by}", Redriven(name, env), json=json
            )
        return 0
    return rerun_here(run, redrive, context, connection, power, password, json=json)


def retry_run(
    context: typer.Context,
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
        if not is_completed(name, deployed, json=json):
            tasks = deployed.retry(name)
            words = (
                f"{tasks:,} tasks: s3unzip watch {name}{deployed.found_by}"
                if tasks
                else "none failed"
            )
            _tell_or_print(words, Retried(name, env, tasks), json=json)
        return 0
    return rerun_here(run, retry_failed, context, connection, power, password, json=json)


def abort_run(
    context: typer.Context,
    run: o.RunId,
    connection: Connection,
    env: o.Env = None,
    json: o.Json = False,
) -> int:
    """Stop a run and drop its incomplete uploads.

    Members that are already written stay.
    """
    from s3unzip.cli.runs import open_deployed, open_runs
    from s3unzip.context import Context
    from s3unzip.objects import upload_registry
    from s3unzip.stores.clock import LocalClock

    config = connection.config()
    stopped = False
    if env is None:
        runs: Runs = open_runs(None, config)
        name = runs.find(run)
        runs = open_runs(None, recall_options(connection, context, name, runs).config())
    else:
        runs = deployed = open_deployed(env, config)
        name = deployed.find(run)
        stopped = deployed.stop(name)
        if stopped and not json:
            sys.stdout.write("execution stopped\n")
    # Without a plan it was stopped while it was planned, and the report function ends it.
    summary = runs.records(name).find_summary() if stopped else read_summary(name, runs)
    context_of_run = Context(stores=runs.stores, clock=LocalClock())
    count = 0 if summary is None else upload_registry.abort_run(summary.run, context_of_run)
    uploads = "upload" if count == 1 else "uploads"
    words = f"{name}: {count:,} incomplete {uploads} dropped"
    _tell_or_print(words, Aborted(name, env, stopped=stopped, uploads=count), json=json)
    return 0


def _tell_or_print(words: str, value: object, *, json: bool) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(f"{words}\n")
