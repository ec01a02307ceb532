"""Figures, names, warnings and JSON lines as commands print them."""

import math
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TextIO


def show_bytes(count: float) -> str:
    """Return a size as people read it: ``1.5 MiB``, ``64 KiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    power = min(4, int(math.log(count, 1024)))
    return f"{count / 1024**power:,.1f}".removesuffix(".0") + f" {' KMGT'[power]}iB"


def show_seconds(seconds: float) -> str:
    """Return a duration as people read it: ``12.3 s``, ``4 min 05 s``, ``1 h 02 min``."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def show_time(seconds: float) -> str:
    """Return a time of day, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def show_count(count: int, thing: str) -> str:
    """Return a count and what is counted: ``1 member``, ``2,000 members``."""
    return f"{count:,} {thing if count == 1 else f'{thing}s'}"


def write_table(rows: Sequence[Sequence[str]], out: TextIO, right: Collection[str] = ()) -> None:
    """Write rows with aligned columns; the first row has the titles, the longest column is last.

    Columns whose titles are in `right` are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if title in right else cell.ljust(width)
            for cell, width, title in zip(row, widths, rows[0], strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")


def printable(text: str) -> str:
    r"""Return `text` fit for a terminal: an archive's names may hold control sequences.

    Each character that is not printable becomes an escape as Python writes it: U+001B
    is ``\x1b``, U+202E is ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def printable_name(name: str) -> str:
    r"""Return a name fit for a terminal, so that no other name looks the same.

    A backslash is written twice, or the characters ``\u202e`` could not be told from U+202E.
    """
    return printable(name.replace("\\", "\\\\"))


def warn(sentence: str) -> None:
    """Print a warning, one line."""
    sys.stderr.write(f"s3unzip: warning: {printable(sentence)}\n")


def print_json(value: object) -> None:
    """Print a value as one line of JSON on stdout."""
    from s3unzip.model import encode

    sys.stdout.write(encode(value).decode() + "\n")
