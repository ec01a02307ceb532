"""``doctor``: check a deployed environment."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.terminal.figures import printable, show_count
from s3unzip.cli.terminal.json_lines import print_json

if TYPE_CHECKING:  # boto3 is imported when the command is used
    from s3unzip.operate.doctor import CheckResult, Diagnosis

INDENT = " " * 9  # the width of the status


def doctor_command(
    connection: Connection,
    env: o.RequiredEnv,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary/--no-canary",
            help="Extract, verify and remove an archive of five small members.",
        ),
    ] = True,
    wait: Annotated[
        float, typer.Option("--wait", min=1.0, help="Seconds to wait for the canary's run.")
    ] = 180.0,
    json: o.Json = False,
) -> int:
    """Check a deployed environment, and say what to do.

    Exit code: 0 all is well or there are only warnings, 1 a check failed.
    """
    from s3unzip.cli.runs import open_deployed
    from s3unzip.operate.canary import try_canary
    from s3unzip.operate.doctor import CHECKS, Deployment, Diagnosis, run_check

    deployment = Deployment(open_deployed(env, connection.config()))
    found: list[CheckResult] = []
    checks = (run_check(name, deployment) for name in CHECKS)
    for result in chain(checks, try_canary(deployment, wait) if canary else ()):
        found.append(result)
        if not json:
            sys.stdout.write(_lines(result))
            sys.stdout.flush()
    diagnosis = Diagnosis(env, tuple(found))
    if json:
        print_json(diagnosis)
    else:
        sys.stdout.write(_total(diagnosis))
    return diagnosis.exit_code


def _lines(result: CheckResult) -> str:
    advice = f"{INDENT}-> {printable(result.advice)}\n" if result.advice else ""
    return f"{result.status:8} {result.name:19} {printable(result.message)}\n{advice}"


def _total(diagnosis: Diagnosis) -> str:
    from s3unzip.operate.doctor import CheckStatus

    ok, warnings, failures = (diagnosis.count(status) for status in CheckStatus)
    return f"{ok} ok, {show_count(warnings, 'warning')}, {show_count(failures, 'failure')}\n"
