r"""Make text from archives, keys and servers safe to show: it may contain terminal sequences.

Each character that is not printable becomes Python's escape: U+001B is ``\x1b``, U+202E is
``\u202e``.
"""

import re

_IN_LINES = re.compile(r"[^\n\t]+")


def printable(text: str) -> str:
    """Return one line of text that is safe in a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def printable_name(name: str) -> str:
    r"""Return a name that is safe in a terminal, and that differs from every other name.

    A backslash is doubled. Otherwise the six characters ``\u202e`` would look like U+202E.
    """
    return printable(name.replace("\\", "\\\\"))


def printable_lines(text: str) -> str:
    """Return lines of text that are safe in a terminal; tabs stay."""
    if text[:-1].isprintable() and text[-1:] in {"\n", ""}:  # a usual line: nothing to escape
        return text
    return _IN_LINES.sub(lambda match: printable(match[0]), text)


def printable_json(text: str) -> str:
    """Return JSON of the same value whose texts are safe in a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape_in_json(c) for c in text)


def _escape_in_json(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
