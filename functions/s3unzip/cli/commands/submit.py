"""``submit``: queue archives that are already there."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.commands.backlog import EVERY, Every, find_one, follow_backlog, show_backlog
from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.options.messages import OptionGroup
from s3unzip.cli.terminal.figures import show_count
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.errors import InterruptedRunError, S3UnzipError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.operate.backlog.values import Backlog, Submission
    from s3unzip.operate.runs import DeployedRuns

SAMPLE = 20  # archives

Words = Annotated[
    list[str],
    typer.Argument(
        default_factory=list,
        metavar="SRC...",
        show_default=False,
        help="s3://bucket/prefix/, a glob, an archive, or manifest.json of an S3 Inventory (CSV).",
    ),
]


@dataclass(frozen=True)
class Submitting(OptionGroup):
    """What is queued, and whether somebody agrees."""

    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", min=0.0, help="Queue nothing if all together cost more dollars."
        ),
    ] = None
    sample: Annotated[
        int,
        typer.Option("--sample", min=0, metavar="N", help="Read N directories for the forecast."),
    ] = SAMPLE
    skip_outside: Annotated[
        bool,
        typer.Option("--skip-outside", help="Leave out archives that the environment ignores."),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the forecast; queue nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before queueing.")] = False
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="BACKLOG", help="Queue the rest of a backlog."),
    ] = None

    def check(self, words: Sequence[str]) -> None:
        """Check that the options fit each other, and that somebody agrees or can be asked.

        Raises:
            UsageError: they do not, or nobody can.
        """
        if self.resume is not None:
            if words or self.dry_run or self.max_cost is not None:
                raise UsageError(
                    "--resume: give no archives, no --max-cost and no --dry-run with it"
                )
        elif not (self.yes or self.dry_run or sys.stdin.isatty()):
            raise UsageError(
                "submit: standard input is no terminal, so nobody can be asked; look with "
                "--dry-run first, then add --yes"
            )


def submit_command(
    sources: Words,
    connection: Connection,
    env: o.RequiredEnv,
    options: Submitting,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait for the end; then as s3unzip backlog.")
    ] = False,
    every: Every = EVERY,
    json: o.Json = False,
) -> int:
    """Queue archives that are already there: one forecast, one budget.

    Archives whose runs have ended are left out, so the same command can be given again.

    Exit code: 0 queued or nothing left to queue, 1 the answer was no, 2 wrong request or above
    --max-cost; with --watch that of s3unzip backlog.
    """
    from s3unzip.cli.runs import open_deployed

    options.check(sources)
    runs = open_deployed(env, connection.config())
    if options.resume is not None:
        backlog = _resume(options.resume, runs, json=json)
    else:
        submission = _Submission(runs, sources, options, json=json)
        queued = submission.submit()
        if queued is None:
            return submission.exit_code
        backlog = queued
    if watch:
        return show_backlog(follow_backlog(backlog, runs, every, json=json), runs, json=json)
    sys.stderr.write(f"s3unzip backlog {backlog.id}{runs.found_by} --watch\n")
    return 0


class _Submission:
    """Finds archives, asks, queues them."""

    def __init__(
        self, runs: DeployedRuns, words: Sequence[str], options: Submitting, *, json: bool
    ) -> None:
        self.exit_code = 0  # if nothing is queued
        self._runs = runs
        self._words = words
        self._options = options
        self._json = json

    def submit(self) -> Backlog | None:
        """Queue what is found; return None if nothing is queued.

        Raises:
            BudgetError: the forecast of all together is above the limit.
        """
        from msgspec.structs import replace

        from s3unzip.cli.terminal.backlog_output import Counter
        from s3unzip.operate.backlog import submitting

        with submitting.open_spool() as spool:
            submission = submitting.find_archives(
                self._words,
                self._runs,
                spool,
                sample=self._options.sample,
                skip_outside=self._options.skip_outside,
                told=Counter("looked at"),
            )
            if not self._agrees(submission):
                return None
            backlog = submitting.write_backlog(
                submission, spool, self._words, self._runs, time.time(), self._options.max_cost
            )
        queued = _queue(backlog, self._runs)
        if self._json:
            print_json(replace(submission, backlog=backlog.id, queued=queued))
        return backlog

    def _agrees(self, submission: Submission) -> bool:
        """Show what was found; say whether it is to be queued."""
        from s3unzip.cli.terminal.backlog_output import confirm, print_submission
        from s3unzip.operate.backlog.submitting import check_whole_budget

        forecast, options = submission.forecast, self._options
        if not self._json:
            print_submission(submission)
        if forecast is not None:
            check_whole_budget(forecast, options.max_cost)
            if not options.dry_run and (options.yes or confirm(submission.archives)):
                return True
            self.exit_code = int(not options.dry_run)
        if self._json:
            print_json(submission)
        sys.stderr.write("nothing is queued\n")
        return False


def _resume(name: str, runs: DeployedRuns, *, json: bool) -> Backlog:
    from s3unzip.operate.backlog.values import Submission

    backlog = find_one(name, runs)
    queued = _queue(backlog, runs)
    if json:
        print_json(
            Submission(
                environment=backlog.environment,
                backlog=backlog.id,
                archives=backlog.archives,
                size=backlog.size,
                queued=queued,
                ended={},
                gone=0,
                outside=0,
                forecast=backlog.forecast,
            )
        )
    return backlog


def _queue(backlog: Backlog, runs: DeployedRuns) -> int:
    """Queue a backlog; whatever ends that early, say how to go on."""
    from s3unzip.cli.terminal.backlog_output import Counter
    from s3unzip.operate.backlog.submitting import queue_backlog

    advice = f"continue with: s3unzip submit --resume {backlog.id}{runs.found_by}"
    try:
        queued = queue_backlog(backlog, runs, Counter("queued"))
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped; {advice}") from None
    except S3UnzipError as error:
        raise type(error)(f"{error}; {advice}") from None
    sys.stderr.write(f"{backlog.id}: queued {show_count(queued, 'archive')}\n")
    return queued
