"""``backlog``: the one report of archives that were submitted together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from s3unzip.operate.backlog.values import Backlog, BacklogReport
    from s3unzip.operate.runs import DeployedRuns

EVERY = 5.0  # seconds

Every = Annotated[
    float, typer.Option("--every", min=0.1, help="With --watch: seconds between two looks.")
]


def backlog_command(
    connection: Connection,
    env: o.RequiredEnv,
    backlog: Annotated[
        str, typer.Argument(metavar="BACKLOG", help="The id that submit printed, or latest.")
    ] = "latest",
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait until all archives have ended.")
    ] = False,
    every: Every = EVERY,
    failures: Annotated[
        bool,
        typer.Option("--failures", help="List every archive with a problem, one JSON a line."),
    ] = False,
    json: o.Json = False,
) -> int:
    """Print the one report of archives that were submitted together.

    With --watch and --json, a line each time that a figure changes; the last line is the report.

    Exit code: the highest one of the archives, as of s3unzip run; at least 1 before all have ended.
    """
    from s3unzip.cli.runs import open_deployed

    if failures and watch:
        raise UsageError("--failures: is not for --watch; give it after the end")
    runs = open_deployed(env, connection.config())
    found = find_one(backlog, runs)
    if failures:
        from s3unzip.operate.backlog.summary import Summary

        return Summary(found, runs, print_json).look().exit_code
    report = follow_backlog(found, runs, every, json=json) if watch else _look(found, runs)
    return show_backlog(report, runs, json=json)


def find_one(name: str, runs: DeployedRuns) -> Backlog:
    """Return the backlog with an id that begins so, or the latest.

    Raises:
        NotFoundError: there is none, or nothing of it was queued.
        UsageError: several begin so.
    """
    from s3unzip.operate.backlog.records import find_backlog
    from s3unzip.operate.backlog.submitting import open_records

    found = find_backlog(runs.client("s3"), runs.work_location, name)
    return open_records(runs).read_backlog(found)


def _look(backlog: Backlog, runs: DeployedRuns) -> BacklogReport:
    from s3unzip.operate.backlog.summary import Summary

    return Summary(backlog, runs).look()


def follow_backlog(
    backlog: Backlog, runs: DeployedRuns, every: float, *, json: bool
) -> BacklogReport:
    """Wait for the end of a backlog; show what changes meanwhile."""
    from s3unzip.cli.terminal.backlog_output import tell_progress
    from s3unzip.operate.backlog.following import follow
    from s3unzip.operate.backlog.summary import Summary

    def show(report: BacklogReport) -> None:
        if json:
            print_json(report)
            sys.stdout.flush()
        else:
            sys.stderr.write(f"{tell_progress(report)}\n")

    return follow(Summary(backlog, runs).look, every, show)


def show_backlog(report: BacklogReport, runs: DeployedRuns, *, json: bool) -> int:
    """Print the report of a backlog; return its exit code."""
    from s3unzip.cli.terminal.backlog_output import print_backlog

    if json:
        print_json(report)
    else:
        print_backlog(report, runs.found_by)
    return report.exit_code
