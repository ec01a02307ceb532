"""Runs as a table."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import printable, printable_name, show_seconds, write_table
from s3unzip.cli.terminal.json_lines import print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.cli.runs import ListedRun
    from s3unzip.local.dry_run import Decision

TITLES = ("STARTED (UTC)", "STATE", "TOOK", "MEMBERS", "FAILED", "RUN", "SOURCE -> DESTINATION")
RIGHT = {"TOOK", "MEMBERS", "FAILED"}


def print_runs(runs: Iterable[ListedRun]) -> None:
    """Print a header and a line for each run, columns aligned; the longest column is the last."""
    rows = [_cells(run) for run in runs]
    if not rows:
        sys.stderr.write("no runs yet: s3unzip run SRC DEST begins one\n")
        return
    write_table([TITLES, *rows], sys.stdout, RIGHT)


def print_decisions(decisions: Iterable[Decision], *, json: bool) -> int:
    """Print what a run would do; return 1 if it could not do all of it."""
    counts: Counter[str] = Counter()
    for one in decisions:
        counts[one.action] += 1
        if json:
            print_json(one)
            continue
        why = f"  {printable(one.message or '')} ({one.reason})" if one.message else ""
        sys.stdout.write(f"{one.action:9}  {one.size:12,}  {printable_name(one.key)}{why}\n")
    shown = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {shown or 'no members'}\n")
    return 1 if counts["fail"] or counts["refuse"] else 0


def _cells(run: ListedRun) -> tuple[str, ...]:
    when = datetime.fromtimestamp(run.started, UTC)
    ends = f"{run.source} -> {run.destination}" if run.source else ""
    done = run.seconds is not None
    return (
        f"{when:%Y-%m-%d %H:%M}",
        run.state,
        show_seconds(run.seconds) if run.seconds is not None else "",
        f"{run.members:,}" if done else "",
        f"{run.failed:,}" if done else "",
        run.run,
        printable(ends),
    )
