"""Tables, names, warnings and JSON lines as commands print them."""

import sys
from collections.abc import Collection, Sequence
from typing import TextIO


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
