"""Sizes as people write them: 500m, 1.5g."""

from __future__ import annotations

from s3unzip.errors import UsageError

UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_number(text: str) -> int | float:
    """Return the number that `text` is, with a unit of 1,024 or without.

    Raises:
        ValueError: it is none.
    """
    factor = UNITS.get(text[-1:].lower(), 1)
    plain = text[:-1] if factor > 1 else text
    return float(plain) * factor if "." in plain else int(plain) * factor


def parse_size(text: str, option: str) -> int:
    """Return the bytes that the value of `option` stands for.

    Raises:
        UsageError: it is no number above zero.
    """
    try:
        size = int(parse_number(text))
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise UsageError(f"{option} {text}: not a size; they look like 500m or 20g")
    return size
