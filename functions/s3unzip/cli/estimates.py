"""Estimates on a terminal; what an estimate says is decided in `estimate`.

Rich is imported here, so import this module where it is used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from s3unzip.cli.figures import show_bytes, show_seconds
from s3unzip.estimate import show_dollars

if TYPE_CHECKING:
    from rich.console import Console

    from s3unzip.estimate import Bin, Estimate, Range

PIPE_COLUMNS = 200
BAR = 28  # characters of the longest bar
MAX_BINS = 14
NUMBERS = frozenset({"below", "from", "members", "of all", "time"})  # columns


def make_console() -> Console:
    """Return the console of standard output; where that is no terminal, lines are not wrapped."""
    from rich.console import Console as NewConsole

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    return NewConsole(highlight=False, width=wide)


def print_estimate(made: Estimate, console: Console) -> None:
    """Print the estimate for a person."""
    console.print(_head(made))
    for warning in made.warnings:
        console.print(Text(f"Warning: {warning}", style="yellow"))
    for table in (_work(made), _sizes(made.sizes), _path(made), _bounds(made)):
        if table.row_count:
            console.print(table)
    console.print(_cost(made))


def _range_text(span: Range) -> str:
    return f"{show_seconds(span.low)} to {show_seconds(span.high)}"


def _head(made: Estimate) -> Text:
    text = Text(f"{made.title} on {made.platform}\n", style="bold")
    text.append(f"{show_seconds(made.duration.expected)}", style="bold green")
    text.append(f" ({_range_text(made.duration)}), ", style="not bold")
    text.append(f"first object after {show_seconds(made.first_object)}, ", "not bold")
    text.append(f"{_speed(made)}, ", style="not bold")
    text.append(show_dollars(made.cost.total), style="bold green")
    return text


def _speed(made: Estimate) -> str:
    seconds = made.duration.expected
    if made.members >= seconds:
        return f"{made.members / seconds:,.0f} members/s"
    return f"{show_bytes(made.bytes_out / seconds)}/s"


def _table(title: str, *columns: str) -> Table:
    """Return a table with `columns`; those of `NUMBERS` are not wrapped."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_number = name in NUMBERS
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
    return table


def _work(made: Estimate) -> Table:
    table = _table("Work", "kind", "members")
    for kind, members in made.kinds.items():
        table.add_row(kind, f"{members:,}")
    table.add_section()
    table.add_row("tasks", f"{made.tasks:,}")
    table.add_row("at once", f"{made.at_once:,}")
    table.add_row("read", show_bytes(made.bytes_in))
    table.add_row("written", show_bytes(made.bytes_out))
    for kind in ("get", "put", "create", "part", "copy", "complete", "list"):
        count = getattr(made.requests, kind)
        if count:
            table.add_row(f"requests: {kind}", f"{count:,}")
    return table


def _sizes(bins: tuple[Bin, ...]) -> Table:
    table = _table("Member sizes", "from", "below", "members", "")
    peak = max((one.members for one in bins), default=1)
    shown = bins[-MAX_BINS:]
    left = sum(one.members for one in bins[:-MAX_BINS])
    if left:
        table.add_row("0 B", show_bytes(shown[0].start), f"{left:,}", _bar(left, max(peak, left)))
    for one in shown:
        below = show_bytes(one.stop)
        table.add_row(show_bytes(one.start), below, f"{one.members:,}", _bar(one.members, peak))
    return table


def _bar(count: int, peak: int) -> str:
    return "█" * max(1, round(BAR * count / peak))


def _path(made: Estimate) -> Table:
    table = _table("Steps", "step", "time", "of all", "")
    whole = made.duration.expected or 1.0
    for step in made.steps:
        if step.seconds >= 0.05:
            share = f"{step.seconds / whole:.0%}"
            table.add_row(step.name, show_seconds(step.seconds), share, step.detail)
    return table


def _bounds(made: Estimate) -> Table:
    table = _table("The tasks take at least", "bound", "time", "")
    for bound in made.bounds:
        if bound.seconds >= 0.05:
            table.add_row(bound.name, show_seconds(bound.seconds), bound.detail)
    return table


def _cost(made: Estimate) -> Table:
    cost = made.cost
    table = _table("Cost")
    table.show_footer = True
    table.add_column("service", overflow="fold", footer="total")
    table.add_column("", overflow="fold", footer="")
    table.add_column("quantity", justify="right", no_wrap=True, footer="")
    table.add_column("dollars", justify="right", no_wrap=True, footer=show_dollars(cost.total))
    table.caption = (
        f"{show_dollars(made.dollars.low)} to {show_dollars(made.dollars.high)}; "
        f"{cost.unavoidable_share:.1%} is one PUT a member, which no tool avoids"
        if cost.lines
        else "nothing that is paid for by use"
    )
    for line in cost.lines:
        if not line.quantity:
            continue
        quantity = f"{line.quantity:,.0f} {line.unit}" + (
            "" if line.unit == "GB-s" or line.quantity == 1 else "s"
        )
        table.add_row(line.service, line.item, quantity, show_dollars(line.dollars))
    return table
