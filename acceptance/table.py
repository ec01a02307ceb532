"""The table of a set: one row for each case, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Verdict = Literal["ok", "FAILED", "not applicable"]
HEAD = ("case", "expected", "got", "seconds", "forecast", "counted", "")
WIDTHS = (10, 46, 64, 8, 10, 10, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one case; dollars are None if no run has a report."""

    case: str
    expected: str
    got: str
    seconds: float
    forecast_dollars: float | None
    counted_dollars: float | None
    verdict: Verdict


def head_line() -> str:
    """Return the line above the rows."""
    return _line(HEAD)


def row_line(row: Row) -> str:
    """Return the line of one case."""
    forecast, counted = _dollars(row.forecast_dollars), _dollars(row.counted_dollars)
    seconds = f"{row.seconds:.1f}"
    return _line((row.case, row.expected, row.got, seconds, forecast, counted, row.verdict))


def sum_line(rows: Sequence[Row]) -> str:
    """Return the last line: number of cases, seconds, dollars."""
    count = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("ok", "FAILED")}
    seconds = sum(row.seconds for row in rows)
    forecast = sum(row.forecast_dollars or 0.0 for row in rows)
    counted = sum(row.counted_dollars or 0.0 for row in rows)
    rest = len(rows) - count["ok"] - count["FAILED"]
    return (
        f"{count['ok']} ok, {count['FAILED']} failed, {rest} not applicable; {seconds:.1f} s, "
        f"{_dollars(forecast)} forecast, {_dollars(counted)} counted"
    )


def as_json(environment: str, scale: str, rows: Sequence[Row]) -> str:
    """Return the table for programs."""
    values = {"environment": environment, "scale": scale, "cases": [asdict(row) for row in rows]}
    return json.dumps(values, indent=2) + "\n"


def _dollars(amount: float | None) -> str:
    return "-" if amount is None else f"${amount:.4f}"


def _line(cells: Sequence[str]) -> str:
    """Return cells in columns; a long cell moves the others and is never cut."""
    padded = [
        cell.rjust(width) if 3 <= place <= 5 else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    ]
    return "  ".join(padded).rstrip()
