"""Tables, names, warnings and JSON lines as commands print them."""

import sys
from collections.abc import Collection, Sequence
from typing import TextIO

from s3unzip.printable import printable, printable_json


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


def warn(sentence: str) -> None:
    """Print a warning, one line."""
    sys.stderr.write(f"s3unzip: warning: {printable(sentence)}\n")


def print_json(value: object) -> None:
    """Print a value as one line of JSON on stdout."""
    from s3unzip.model import encode

    sys.stdout.write(printable_json(encode(value).decode()) + "\n")
