"""The parts of an archive: where they are, and a source that reads them as one.

A split archive (APPNOTE 8.3.3) is named by its last part: ``a.z01``, ``a.z02``, ... ``a.z99``,
``a.z100``, ... and then ``a.zip``. A file that was cut into pieces is named by its first one:
``a.zip.001``, ``a.zip.002``, ...
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.stores.calls import count_request
from s3unzip.zip import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.model import Location, Pin
    from s3unzip.stores.ports import Archive, Buffer, Source, Tail


class PartsSource:
    """Reads what `adapter` reads, and several objects as one where the pin has parts."""

    def __init__(self, adapter: Source) -> None:
        self.adapter = adapter

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last bytes and the pin of the one object at `location`."""
        return self.adapter.tail(location, length)

    def head(self, location: Location) -> Pin:
        """Return the pin of the one object at `location`."""
        return self.adapter.head(location)

    def pinned(self, location: Location, pin: Pin) -> Archive:
        """Return a reader of exactly that version, of every part."""
        if not pin.parts:
            return self.adapter.pinned(location, pin)
        archives = []
        for number, part in enumerate(pin.parts, 1):
            where = locate_part(location, number, len(pin.parts))
            if where is None:
                raise UsageError(f"{location}: the name does not say where the other parts are")
            archives.append(self.adapter.pinned(where, part))
        return JoinedArchive(archives, [part.size for part in pin.parts])


class JoinedArchive:
    """Several archives in one address space: each begins where the one before it ends."""

    def __init__(self, archives: Sequence[Archive], sizes: Sequence[int]) -> None:
        self._archives = archives
        self._starts = [0, *accumulate(sizes)]

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request for each part that has some."""
        return b"".join(archive.read(own) for archive, own in self._owners(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request for each part that has some."""
        for archive, own in self._owners(want):
            yield from archive.stream(own)

    def _owners(self, want: ByteRange) -> Iterator[tuple[Archive, ByteRange]]:
        """Yield the parts that have bytes of `want`, and the range in each of them."""
        at, place = want.start, bisect_right(self._starts, want.start) - 1
        while at < want.stop:
            begin, end = self._starts[place], self._starts[place + 1]
            stop = min(want.stop, end)
            if stop > at:
                if at > want.start:
                    count_request("get")
                yield self._archives[place], ByteRange(at - begin, stop - begin)
            at, place = stop, place + 1


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
