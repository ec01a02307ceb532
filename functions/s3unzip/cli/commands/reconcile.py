"""``reconcile``: find archives that never got a verdict, or that were to be deleted or moved."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.terminal.figures import printable, show_bytes
from s3unzip.cli.terminal.json_lines import print_json

if TYPE_CHECKING:
    from s3unzip.operate.reconcile import Unsettled

DAY = 86_400.0


def reconcile_command(
    connection: Connection,
    env: o.RequiredEnv,
    days: Annotated[
        float,
        typer.Option(
            "--days", min=0.0, help="Check archives that were put in the last so many days."
        ),
    ] = 7.0,
    start: Annotated[
        bool,
        typer.Option("--start", help="Queue the archives without a run, or left after it, again."),
    ] = False,
    json: o.Json = False,
) -> int:
    """Find archives whose event or verdict never came.

    Compares the ingest bucket with the runs. Also finds archives that were to be deleted, moved
    or tagged after their runs (``[after_success]``), and were not.

    Exit code: 0 every archive has its verdict or is being extracted, 1 some have not, or are left.
    """
    from s3unzip.cli.runs import open_deployed
    from s3unzip.operate import reconcile as reconciling

    runs = open_deployed(env, connection.config())
    found = reconciling.reconcile(runs, time.time() - days * DAY)
    left = sum(one.state == "archive left" for one in found.unsettled)
    if json:
        print_json(found)
    else:
        sys.stdout.writelines(_line(one, runs.found_by) for one in found.unsettled)
        sys.stdout.write(
            f"{found.archives:,} archives: {found.running:,} running, "
            f"{len(found.unsettled) - left:,} without a verdict"
            + (f", {left:,} left after success\n" if left else "\n")
        )
    lost = [one for one in found.unsettled if one.state in ("no run", "archive left")]
    if start and lost:
        count = reconciling.start(runs, lost)
        sys.stderr.write(f"{count:,} queued: s3unzip runs{runs.found_by}\n")
    return 1 if found.unsettled else 0


def _line(one: Unsettled, found_by: str) -> str:
    when = datetime.fromtimestamp(one.put, UTC)
    redrive = f"  s3unzip redrive {one.run}{found_by}"
    mend = {"not finished": redrive, "put back": "  s3unzip run"}
    size = show_bytes(one.size)
    line = f"{when:%Y-%m-%d %H:%M}  {one.state:12}  {size:>9}  {printable(str(one.source))}"
    return line + mend.get(one.state, "") + "\n"
