"""Runs the set: the cases in order, one row for each, then the removal of everything."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from acceptance.checks import Done
from acceptance.dead_letters import drop_dead_letters
from acceptance.places import is_empty, remove_all, shown, take_inventory
from acceptance.site import Mismatch, NotApplicableError
from acceptance.table import Row, head_line, row_line, sum_line
from s3unzip.errors import S3UnzipError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.checks import Case
    from acceptance.site import Site
    from acceptance.table import Verdict
    from s3unzip.cli.terminal.signals import Stopping


def run_set(site: Site, cases: Sequence[Case], rows: list[Row], stopping: Stopping) -> bool:
    """Run the cases, add their rows, remove everything; return whether all succeeded.

    Ctrl-C and SIGTERM end the current case; KeyboardInterrupt propagates after everything is
    removed, and `stopping` knows which one it was.
    """
    say(f"before: {shown(take_inventory(site))}")
    try:
        say(head_line())
        with stopping.like_ctrl_c():
            for case in cases:
                rows.append(run_case(site, case))
                say(row_line(rows[-1]))
        say(sum_line(rows))
    finally:
        clean = remove(site)
    return clean and not any(row.verdict == "FAILED" for row in rows)


def run_case(site: Site, case: Case) -> Row:
    """Run one case; an error of AWS becomes its row."""
    started = time.monotonic()
    verdict: Verdict = "ok"
    done = Done("")
    try:
        done = case.act(site)
        got = done.got
    except NotApplicableError as reason:
        verdict, got = "not applicable", str(reason)
    except Mismatch as mismatch:
        verdict, got = "FAILED", str(mismatch)
    except (S3UnzipError, Boto3Error, BotoCoreError, ClientError) as error:
        verdict, got = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0]
    seconds = time.monotonic() - started
    forecasts = [one.forecast_cost for one in done.reports if one.forecast_cost is not None]
    costs = [one.cost for one in done.reports if one.cost is not None]
    return Row(
        case=case.name,
        expected=case.expected,
        got=got,
        seconds=round(seconds, 3),
        forecast_dollars=sum(forecasts) if forecasts else None,
        counted_dollars=sum(costs) if costs else None,
        verdict=verdict,
    )


def remove(site: Site) -> bool:
    """Remove all that the set left, print it, and return whether nothing remains."""
    say(f"after:  {shown(take_inventory(site))}; removing")
    left = remove_all(site)
    say(f"left:   {shown(left)}")
    letters = drop_dead_letters(site)
    if letters:
        say(f"{letters} dead letters of this set deleted")
    if is_empty(left):
        return True
    say(f"not all could be removed; again: python -m acceptance --clean {site.token}")
    return False


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
