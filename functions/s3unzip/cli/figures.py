"""Figures and names as people read them."""

from __future__ import annotations


def show_bytes(count: float) -> str:
    """Return a size as people read it: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def show_seconds(seconds: float) -> str:
    """Return a duration as people read it: ``1:02:03``, ``2:03``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
