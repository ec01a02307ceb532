"""Commands on a deployed environment: ``submit``, ``reconcile``, ``doctor``."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

import click

from s3unzip.cli.figures import print_json, printable, show_bytes, show_count
from s3unzip.cli.options import Connection, argument, environment, json, max_cost, option
from s3unzip.cli.runs import open_deployed
from s3unzip.errors import BudgetError, InterruptedRunError, UsageError
from s3unzip.estimate import price_archives, show_dollars
from s3unzip.operate import reconcile as reconciling
from s3unzip.operate.canary import try_canary
from s3unzip.operate.doctor import (
    CHECKS,
    CheckResult,
    CheckStatus,
    Deployment,
    Diagnosis,
    run_check,
)
from s3unzip.operate.submit import Submission, find_archives, queue_archives

if TYPE_CHECKING:
    from s3unzip.operate.reconcile import Unsettled
    from s3unzip.operate.runs import DeployedRuns

DAY = 86_400.0
INDENT = " " * 9  # the width of the status of a check
TOLD_EVERY = 10_000  # archives


@dataclass(frozen=True)
class Submit(Connection):
    """Queue archives that are already there.

    The same command can be given again: archives whose runs have begun or ended start nothing.

    Exit code: 0 queued, 1 the answer was no, 2 wrong request or above --max-cost.
    """

    src: tuple[str, ...] = argument(
        "SRC...", nargs=-1, required=True, help="s3://bucket/prefix/, a glob, or an archive."
    )
    env: str = environment(required=True)
    max_cost: float | None = max_cost()
    dry_run: bool = option("--dry-run", default=False, help="Print what was found; queue nothing.")
    yes: bool = option("-y", "--yes", default=False, help="Do not ask before queueing.")
    json: bool = json()

    def act(self) -> int:
        """Find archives, ask, queue them; return the exit code."""
        if not (self.yes or self.dry_run or sys.stdin.isatty()):
            raise UsageError(
                "submit: standard input is no terminal, so nobody can be asked; look with "
                "--dry-run first, then add --yes"
            )
        runs = open_deployed(self.env, self.config())
        found = find_archives(self.src, runs)
        count, limit = len(found.keys), self.max_cost
        dollars = price_archives(count, found.size)
        made = Submission(self.env, count, found.size, found.outside, dollars)
        if not self.json:
            _print_found(made)
        if limit is not None and made.dollars > limit:
            raise BudgetError(
                f"the estimate is {show_dollars(made.dollars, limit)} for {count:,} archives, "
                f"above the limit of {show_dollars(limit, made.dollars)}. Nothing is queued: raise "
                "--max-cost, or name fewer archives"
            )
        agreed = not self.dry_run and bool(count) and (self.yes or _confirm(count))
        if agreed:
            made.queued = _queue(runs, found.keys)
        else:
            sys.stderr.write("nothing is queued\n")
        if self.json:
            print_json(made)
        return 0 if agreed or self.dry_run or not count else 1


def _print_found(made: Submission) -> None:
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


@dataclass(frozen=True)
class Reconcile(Connection):
    """Find archives whose event or verdict never came.

    Compares the ingest bucket with the runs. Also finds archives that were to be deleted or tagged
    after their runs (``[after_success]``), and were not.

    Exit code: 0 every archive has its verdict or is being extracted, 1 some have not, or are left.
    """

    env: str = environment(required=True)
    days: float = option(
        "--days",
        type=click.FloatRange(min=0.0),
        default=7.0,
        help="Check archives that were put in the last so many days.",
    )
    start_again: bool = option(
        "--start",
        default=False,
        help="Queue the archives without a run again, and resume the runs of the others.",
    )
    json: bool = json()

    def act(self) -> int:
        """Print the archives; return the exit code."""
        runs = open_deployed(self.env, self.config())
        found = reconciling.reconcile(runs, time.time() - self.days * DAY)
        left = sum(one.state == "archive left" for one in found.unsettled)
        if self.json:
            print_json(found)
        else:
            sys.stdout.writelines(_unsettled_line(one, runs.found_by) for one in found.unsettled)
            sys.stdout.write(
                f"{found.archives:,} archives: {found.running:,} running, "
                f"{len(found.unsettled) - left:,} without a verdict"
                + (f", {left:,} left after success\n" if left else "\n")
            )
        if self.start_again and found.unsettled:
            count = reconciling.start(runs, found.unsettled)
            sys.stderr.write(f"{count:,} started: s3unzip runs{runs.found_by}\n")
        return 1 if found.unsettled else 0


def _unsettled_line(one: Unsettled, found_by: str) -> str:
    when = datetime.fromtimestamp(one.put, UTC)
    mend = "" if one.state == "no run" else f"  s3unzip resume {one.run}{found_by}"
    size = show_bytes(one.size)
    line = f"{when:%Y-%m-%d %H:%M}  {one.state:12}  {size:>9}  {printable(str(one.source))}"
    return line + mend + "\n"


@dataclass(frozen=True)
class Doctor(Connection):
    """Check a deployed environment, and say what to do.

    Exit code: 0 all is well or there are only warnings, 1 a check failed.
    """

    env: str = environment(required=True)
    no_canary: bool = option(
        "--no-canary",
        default=False,
        help="Do not extract, verify and remove an archive of five small members.",
    )
    wait: float = option(
        "--wait",
        type=click.FloatRange(min=1.0),
        default=180.0,
        help="Seconds to wait for the canary's run.",
    )
    json: bool = json()

    def act(self) -> int:
        """Print each check as it ends; return the exit code."""
        deployment = Deployment(open_deployed(self.env, self.config()))
        found: list[CheckResult] = []
        checks = (run_check(name, deployment) for name in CHECKS)
        canary = () if self.no_canary else try_canary(deployment, self.wait)
        for result in chain(checks, canary):
            found.append(result)
            if not self.json:
                sys.stdout.write(_check_lines(result))
                sys.stdout.flush()
        diagnosis = Diagnosis(self.env, tuple(found))
        if self.json:
            print_json(diagnosis)
        else:
            sys.stdout.write(_total(diagnosis))
        return diagnosis.exit_code


def _check_lines(result: CheckResult) -> str:
    advice = f"{INDENT}-> {printable(result.advice)}\n" if result.advice else ""
    return f"{result.status:8} {result.name:19} {printable(result.message)}\n{advice}"


def _total(diagnosis: Diagnosis) -> str:
    ok, warnings, failures = (diagnosis.count(status) for status in CheckStatus)
    return f"{ok} ok, {show_count(warnings, 'warning')}, {show_count(failures, 'failure')}\n"
