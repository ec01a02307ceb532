"""Where the parts of an archive are: beside the one that the user names.

A split archive (APPNOTE 8.3.3) is named by its last part: ``a.z01``, ``a.z02``, ... ``a.z99``,
``a.z100``, ... and then ``a.zip``. A file that was cut into pieces is named by its first one:
``a.zip.001``, ``a.zip.002``, ...
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from s3unzip.model import Location

NAMED_SCHEMES = frozenset({"s3", "file", "http", "https", "mem"})
_LAST = re.compile(r"\.zip\Z", re.IGNORECASE)
_EARLIER = re.compile(r"\.z([0-9]{2,5})\Z", re.IGNORECASE)
_FIRST_PIECE = re.compile(r"\.zip\.0{2,}1\Z", re.IGNORECASE)
_PIECE = re.compile(r"\.zip\.[0-9]{3,}\Z", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+\Z")


def locate_part(location: Location, number: int, count: int) -> Location | None:
    """Return where part `number` of `count` is; the first one has number 1.

    Returns None if the name does not say how the other parts are named.
    """
    path, mark, query = _divide(location)
    if _FIRST_PIECE.search(path):
        digits = len(_digits(path))
        path = f"{path[:-digits]}{number:0{digits}}"
    elif _LAST.search(path):
        if number < count:  # ".ZIP" has ".Z01" beside it
            path = f"{path[:-2]}{number:02}"
    else:
        return None
    return replace(location, key=path + mark + query)


def is_first_piece(location: Location) -> bool:
    """Return whether the name is that of the first piece of a file that was cut."""
    return _FIRST_PIECE.search(_divide(location)[0]) is not None


def last_part_name(location: Location) -> str | None:
    """Return the name to give instead of an earlier part's; None if it is no earlier part."""
    path = _divide(location)[0]
    found = _EARLIER.search(path)
    if found is None:
        return None
    ending = "IP" if path[found.start() + 1] == "Z" else "ip"
    return f"{part_name(replace(location, key=path[: found.start() + 2]))}{ending}"


def first_piece_name(location: Location) -> str | None:
    """Return the name to give instead of a later piece's; None if it is no later piece."""
    path = _divide(location)[0]
    if _PIECE.search(path) is None or _FIRST_PIECE.search(path):
        return None
    digits = len(_digits(path))
    return part_name(replace(location, key=f"{path[:-digits]}{1:0{digits}}"))


def part_name(location: Location) -> str:
    """Return the last part of a path, without the query."""
    return _divide(location)[0].rpartition("/")[2]


def _divide(location: Location) -> tuple[str, str, str]:
    if location.scheme not in {"http", "https"}:
        return location.key, "", ""
    return location.key.partition("?")


def _digits(path: str) -> str:
    found = _DIGITS.search(path)
    return found[0] if found else ""
