"""Estimates as text; what an estimate says is decided in `estimate`."""

from __future__ import annotations

from typing import TextIO

from s3unzip.cli.figures import printable, show_bytes, show_count, show_seconds, write_table
from s3unzip.estimate import Estimate, show_dollars

BAR = 28  # characters of the longest bar
MAX_BINS = 14
REQUESTS = ("get", "put", "create", "part", "copy", "complete", "list")
RIGHT = frozenset({"from", "below", "members", "time", "of all", "quantity", "dollars"})


def print_estimate(made: Estimate, out: TextIO) -> None:
    """Print the estimate for a person."""
    span, seconds = made.duration, made.duration.expected
    speed = f"{show_bytes(made.bytes_out / seconds)}/s"
    if made.members >= seconds:
        speed = f"{made.members / seconds:,.0f} members/s"
    out.write(
        f"{printable(made.title)} on {made.platform}\n"
        f"{show_seconds(seconds)} ({show_seconds(span.low)} to {show_seconds(span.high)}), "
        f"first object after {show_seconds(made.first_object)}, {speed}, "
        f"{show_dollars(made.cost.total)}\n"
    )
    out.writelines(f"Warning: {printable(warning)}\n" for warning in made.warnings)
    kinds = ", ".join(f"{members:,} by {kind}" for kind, members in made.kinds.items())
    counts = ((kind, getattr(made.requests, kind)) for kind in REQUESTS)
    requests = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
    out.write(
        f"\nmembers: {kinds or 0}; in {show_count(made.tasks, 'task')}, {made.at_once:,} at once\n"
        f"read {show_bytes(made.bytes_in)}, written {show_bytes(made.bytes_out)}\n"
        f"requests: {requests}\n"
    )
    whole = seconds or 1.0
    steps = [one for one in made.steps if one.seconds >= 0.05]
    bounds = [one for one in made.bounds if one.seconds >= 0.05]
    _write(out, _sizes(made), ("from", "below", "members", ""))
    _write(
        out,
        [(s.name, show_seconds(s.seconds), f"{s.seconds / whole:.0%}", s.detail) for s in steps],
        ("step", "time", "of all", ""),
    )
    _write(
        out,
        [(one.name, show_seconds(one.seconds), one.detail) for one in bounds],
        ("the tasks take at least", "time", ""),
    )
    _write_cost(made, out)


def _write(out: TextIO, rows: list[tuple[str, ...]], titles: tuple[str, ...]) -> None:
    if rows:
        out.write("\n")
        write_table([titles, *rows], out, RIGHT)


def _sizes(made: Estimate) -> list[tuple[str, ...]]:
    """Return a histogram of the members' sizes; the smallest ones share its first row."""
    shown, small = made.sizes[-MAX_BINS:], sum(one.members for one in made.sizes[:-MAX_BINS])
    spans = [(one.start, one.stop, one.members) for one in shown]
    if small:
        spans.insert(0, (0, shown[0].start, small))
    peak = max((members for _, _, members in spans), default=1)
    return [
        (show_bytes(a), show_bytes(b), f"{members:,}", "█" * max(1, round(BAR * members / peak)))
        for a, b, members in spans
    ]


def _write_cost(made: Estimate, out: TextIO) -> None:
    cost = made.cost
    if not cost.lines:
        out.write("\nnothing that is paid for by use\n")
        return
    rows = [
        (
            show_dollars(line.dollars),
            f"{line.quantity:,.0f} {line.unit}"
            + ("" if line.unit == "GB-s" or line.quantity == 1 else "s"),
            f"{line.service} {line.item}".rstrip(),
        )
        for line in cost.lines
        if line.quantity
    ]
    total = (show_dollars(cost.total), "", "total")
    _write(out, [*rows, total], ("dollars", "quantity", "service"))
    out.write(
        f"{show_dollars(made.dollars.low)} to {show_dollars(made.dollars.high)}; "
        f"{cost.unavoidable_share:.1%} is one PUT a member, which no tool avoids\n"
    )
