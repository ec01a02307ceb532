"""Commands on runs that were: ``runs``, ``show``, ``redrive``, ``retry``, ``abort``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli import options as o
from s3unzip.cli.commands.run import (
    PasswordFile,
    Puts,
    Workers,
    available_cores,
    local_tuning,
    open_worker,
)
from s3unzip.cli.output import print_report, printable
from s3unzip.cli.progress import show_seconds
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.local.clock import LocalClock
from s3unzip.local.pool import WorkerPool
from s3unzip.local.runner import work_off
from s3unzip.pipeline.model import PlanSummary, Report, Run, decode, encode
from s3unzip.pipeline.report import abort_uploads, read_report

if TYPE_CHECKING:
    from s3unzip.pipeline.context import Context

RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning, or latest.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("runs")(list_runs)
    app.command("show")(show_run)
    app.command("redrive")(redrive_run)
    app.command("retry")(retry_members)
    app.command("abort")(abort_run)
