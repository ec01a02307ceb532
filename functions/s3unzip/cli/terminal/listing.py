"""Runs as a table."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import printable, show_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.cli.runs import ListedRun

TITLES = ("STARTED (UTC)", "STATE", "TOOK", "MEMBERS", "FAILED", "RUN", "SOURCE -> DESTINATION")
RIGHT = {"TOOK", "MEMBERS", "FAILED"}


def print_runs(runs: Iterable[ListedRun]) -> None:
    """Print a header and a line for each run, columns aligned; the longest column is the last."""
    rows = [_cells(run) for run in runs]
    if not rows:
        sys.stderr.write("no runs yet: s3unzip run SRC DEST begins one\n")
        return
    rows.insert(0, TITLES)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if title in RIGHT else cell.ljust(width)
            for cell, width, title in zip(row, widths, TITLES, strict=True)
        )
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


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
