"""Runs of this machine that are continued: their records, and how their stores are reached."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from s3unzip.cli.options.connections import AllowedWeb, Connection
from s3unzip.cli.options.destinations import RunConnection
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import PlanSummary, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from s3unzip.cli.options.archive_options import Password
    from s3unzip.cli.options.power import Power
    from s3unzip.cli.runs import Runs
    from s3unzip.model import Connections, Report, Run


def rerun_here(
    run: str,
    act: Callable[..., Report],
    context: typer.Context,
    connection: RunConnection,
    power: Power,
    password: Password,
    *,
    json: bool,
) -> int:
    """Do what is left of a run of this machine, print its report; return the exit code.

    Args:
        run: its id, the beginning of one, or latest.
        act: `local.runner.redrive` or `retry_failed`.
        context: says which options are typed.
        connection: how stores are reached; what is not typed is as it was when the run began.
        power: of this machine.
        password: of encrypted members.
        json: whether to print the report as JSON, too.
    """
    from s3unzip.api.options import make_policy
    from s3unzip.cli.runs import open_runs
    from s3unzip.cli.terminal.output import print_report
    from s3unzip.cli.terminal.progress import RunDisplay
    from s3unzip.local.contexts import record_of
    from s3unzip.local.machine import Machine, Setup
    from s3unzip.stores.factory import check_reachable

    tuning, secret = power.tuning(power.processes), password.read()
    runs = open_runs(None, connection.config())
    name = runs.find(run)
    summary = read_summary(name, runs)
    planned = summary.run
    if is_completed(name, runs, json=json):
        return 0
    _check(planned, secret)
    policy = make_policy(planned.options, secret, planned.destination)
    display = RunDisplay()
    with recall_options(connection, context, name, runs).opened(planned.source) as stores:
        check_reachable(stores, planned.source, planned.destination)
        setup = Setup(stores, policy, tuning, power.processes)
        with Machine(setup, planned.source, planned.destination, display) as machine, display:
            machine.go_on(name, record_of(stores))
            report = act(summary, machine.context, machine.make_pool, display.planned)
    if json:
        print_json(report)
    # No rates: it was not at work all the time since its start.
    print_report(report, rates=False, connections=record_of(stores))
    return report.verdict.exit_code


def _check(run: Run, secret: bytes | None) -> None:
    """Refuse a run whose password is not here any more.

    Raises:
        UsageError: it needs a password.
    """
    if run.options.password_ref is not None and secret is None:
        raise UsageError(f"{run.id} was started with a password: give --password-file")


def recall_options(
    connection: Connection, context: typer.Context, run: str, runs: Runs
) -> RunConnection:
    """Return how the stores of a run are reached, by its records and by what is typed now."""
    return recall(connection, context, runs.records(run).find_connections())


def is_completed(run: str, runs: Runs, *, json: bool) -> bool:
    """Say whether nothing is left of a run, and tell it."""
    from s3unzip.settling.after_success import is_left

    report = runs.records(run).find_report()
    if report is None or report.verdict is not Verdict.COMPLETED or is_left(report):
        return False
    sys.stderr.write(f"{run}: COMPLETED already, nothing is left to do\n")
    if json:
        print_json(report)
    return True


def read_summary(run: str, runs: Runs) -> PlanSummary:
    """Return what the plan of a run found.

    Raises:
        NotFoundError: the run was rejected, or never planned.
    """
    try:
        return runs.records(run).read_summary()
    except NotFoundError as error:
        raise NotFoundError(
            f"{run}: has no plan, because the archive was refused or planning failed; start again "
            "with s3unzip run"
        ) from error


# Of two options that exclude each other, the one that is typed counts.
RIVALS = {"no_sign_request": "request_payer", "request_payer": "no_sign_request"}


def recall(connection: Connection, context: typer.Context, known: Connections) -> RunConnection:
    """Return the options of a run: as they are typed now, else as they were when it began.

    Args:
        connection: the options of this command.
        context: says which of them are typed; those of the environment's variables are not.
        known: what the run's records have.
    """
    values: dict[str, Any] = {one.name: getattr(connection, one.name) for one in fields(connection)}
    typed = {name for name in values if _is_typed(name, context)}
    kept = asdict(known) | {"allow": [AllowedWeb(name) for name in known.allow]}
    recalled = {
        name: value
        for name, value in kept.items()
        if value and name not in typed and RIVALS.get(name) not in typed
    }
    return RunConnection(**values | recalled)


def _is_typed(name: str, context: typer.Context) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
