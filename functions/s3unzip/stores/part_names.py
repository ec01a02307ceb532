"""The names of the parts of an archive.

A split archive (APPNOTE 8.3.3) is named by its last part: ``a.z01``, ``a.z02``, ... ``a.z99``,
``a.z100``, ... and then ``a.zip``. A file that was cut into pieces is named by its first piece:
``a.zip.001``, ``a.zip.002``, ...
"""

import re

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import Location

_LAST = re.compile(r"\.zip\Z", re.IGNORECASE)
_EARLIER = re.compile(r"\.z[0-9]{2,5}\Z", re.IGNORECASE)
_PIECE = re.compile(r"\.zip\.([0-9]{3,})\Z", re.IGNORECASE)


def locate_part(location: Location, number: int, count: int) -> Location | None:
    """Return where part `number` of `count` is; the first part has number 1.

    Returns None if the name does not say how the other parts are named.
    """
    if not location.store.has_neighbours:
        return None
    path, question_mark, query = _divide(location)
    piece = _PIECE.search(path)
    if piece is not None and int(piece[1]) == 1:
        path = path[: piece.start(1)] + str(number).zfill(len(piece[1]))
    elif not _LAST.search(path):
        return None
    elif number < count:  # the last part has the name itself; ".ZIP" has ".Z01" beside it
        stem = path[: -len("ip")]
        path = f"{stem}{number:02}"
    return replace(location, key=path + question_mark + query)


def locate_parts(location: Location, count: int) -> list[Location]:
    """Return where all parts are, in order."""
    locations = [locate_part(location, number, count) for number in range(1, count + 1)]
    if None in locations:
        raise UsageError(f"{location}: the name does not say where the other parts are")
    return [part for part in locations if part is not None]


def is_first_piece(location: Location) -> bool:
    """Return whether the name is that of the first piece of a file that was cut."""
    piece = _PIECE.search(part_name(location))
    return piece is not None and int(piece[1]) == 1


def last_part_name(location: Location) -> str | None:
    """Return the name to give instead of an earlier part's; None if it is no earlier part."""
    name = part_name(location)
    ending = _EARLIER.search(name)
    if ending is None:
        return None
    stem = name[: ending.start() + len(".z")]
    if stem.endswith("Z"):
        return f"{stem}IP"
    return f"{stem}ip"


def first_piece_name(location: Location) -> str | None:
    """Return the name to give instead of a later piece's; None if it is no later piece."""
    name = part_name(location)
    piece = _PIECE.search(name)
    if piece is None or int(piece[1]) == 1:
        return None
    return name[: piece.start(1)] + "1".zfill(len(piece[1]))


def part_name(location: Location) -> str:
    """Return the last name of a path, without the query."""
    return _divide(location)[0].rpartition("/")[2]


def _divide(location: Location) -> tuple[str, str, str]:
    """Return the path, the question mark and the query; only a URL has the latter two."""
    if not location.store.is_url:
        return location.key, "", ""
    return location.key.partition("?")
