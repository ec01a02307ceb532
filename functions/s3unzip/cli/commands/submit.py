"""``submit``: queue archives that are already there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.terminal.figures import show_bytes, show_count
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.errors import BudgetError, InterruptedRunError, UsageError
from s3unzip.estimate import show_dollars

if TYPE_CHECKING:  # boto3 is imported when the command is used
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.operate.submit import Submission

TOLD_EVERY = 10_000  # archives

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="SRC...",
        show_default=False,
        help="s3://bucket/prefix/, a glob, or an archive.",
    ),
]


def submit_command(
    sources: Words,
    connection: Connection,
    env: o.RequiredEnv,
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", min=0.0, help="Queue nothing if all together cost more dollars."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what was found; queue nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before queueing.")] = False,
    json: o.Json = False,
) -> int:
    """Queue archives that are already there.

    The same command can be given again: archives whose runs have begun or ended start nothing.

    Exit code: 0 queued, 1 the answer was no, 2 wrong request or above --max-cost.
    """
    from s3unzip.cli.runs import open_deployed
    from s3unzip.estimate import price_archives
    from s3unzip.operate.submit import Submission, find_archives

    if not (yes or dry_run or sys.stdin.isatty()):
        raise UsageError(
            "submit: standard input is no terminal, so nobody can be asked; look with "
            "--dry-run first, then add --yes"
        )
    runs = open_deployed(env, connection.config())
    found = find_archives(sources, runs)
    count = len(found.keys)
    dollars = price_archives(count, found.size)
    made = Submission(env, count, found.size, found.outside, dollars)
    if not json:
        _show(made)
    if max_cost is not None and made.dollars > max_cost:
        raise BudgetError(
            f"the estimate is {show_dollars(made.dollars, max_cost)} for {count:,} archives, above "
            f"the limit of {show_dollars(max_cost, made.dollars)}. Nothing is queued: raise "
            "--max-cost, or name fewer archives"
        )
    agreed = not dry_run and bool(count) and (yes or _confirm(count))
    if agreed:
        made.queued = _queue(runs, found.keys)
    else:
        sys.stderr.write("nothing is queued\n")
    if json:
        print_json(made)
    return 0 if agreed or dry_run or not count else 1


def _show(made: Submission) -> None:
    outside = f"; left out: {made.outside:,} that {made.environment} does not take"
    sys.stdout.write(
        f"{show_count(made.archives, 'archive')} to extract, {show_bytes(made.size)}, about "
        f"{show_dollars(made.dollars)} by their sizes{outside if made.outside else ''}\n"
    )


def _confirm(count: int) -> bool:
    sys.stderr.write(f"Queue {show_count(count, 'archive')}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _queue(runs: DeployedRuns, keys: list[str]) -> int:
    from s3unzip.operate.submit import queue_archives

    queued = 0

    def tell(count: int) -> None:
        nonlocal queued
        if count // TOLD_EVERY > queued // TOLD_EVERY:
            sys.stderr.write(f"queued {count:,} archives\n")
        queued = count

    try:
        queue_archives(runs, keys, tell)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped after {queued:,} of {len(keys):,} archives; the same command queues all, and "
            "none is extracted twice"
        ) from None
    sys.stderr.write(f"queued {show_count(queued, 'archive')}: s3unzip runs{runs.found_by}\n")
    return queued
