"""A source that reads the parts of an archive as one: each range from the part that has it."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from s3unzip.errors import UsageError
from s3unzip.stores.calls import count_request
from s3unzip.stores.parts.names import locate_part
from s3unzip.zipformat.ranges import ByteRange

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
        """Return a reader of exactly that version, of every part.

        Raises:
            UsageError: the pin has parts, but the name does not say where they are.
        """
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
