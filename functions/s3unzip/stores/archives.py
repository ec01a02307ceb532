"""Archives of one object or of several, and what all sources have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import count_request
from s3unzip.stores.locations import locate_part
from s3unzip.stores.ports import Buffer, PinnedArchive, Tail
from s3unzip.zip import ByteRange


class ArchiveSource:
    """What sources have in common: archives of several parts, and a refusal to change any."""

    def stat(self, location: Location) -> Tail:
        """Return what is there now, as a tail without bytes, with one request."""
        raise NotImplementedError

    def head(self, location: Location) -> Pin:
        """Return the version that is there now, with one request."""
        return self.stat(location).pin

    def open(self, location: Location, pin: Pin) -> PinnedArchive:
        """Return a reader of that version of the one object at `location`."""
        raise NotImplementedError

    def tail_by_size(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin: the size is asked first, then a range."""
        count_request("head")
        current = self.stat(location)
        size = current.pin.size
        want = ByteRange(max(0, size - length), size)
        return current._replace(data=self.open(location, current.pin).read(want))

    def pinned(self, location: Location, pin: Pin) -> PinnedArchive:
        """Return a reader of exactly that version, of every part."""
        if not pin.parts:
            return self.open(location, pin)
        archives = []
        for number, part in enumerate(pin.parts, 1):
            where = locate_part(location, number, len(pin.parts))
            if where is None:
                raise UsageError(f"{location}: the name does not say where the other parts are")
            archives.append(self.open(where, part))
        return JoinedArchive(archives, [part.size for part in pin.parts])

    def delete(self, location: Location, pin: Pin) -> None:  # noqa: ARG002 - of the port
        """Refuse."""
        raise UsageError(f"{location.public}: only s3:// objects and files can be changed")

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - likewise
        """Refuse."""
        self.delete(location, pin)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:  # noqa: ARG002 - of the port
        """Return none: only objects of S3 have tags."""
        return {}


class JoinedArchive:
    """Several archives in one address space: each begins where the one before it ends."""

    def __init__(self, archives: Sequence[PinnedArchive], sizes: Sequence[int]) -> None:
        self._archives = archives
        self._starts = [0, *accumulate(sizes)]

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request for each part that has some."""
        return b"".join(archive.read(own) for archive, own in self._owners(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request for each part that has some."""
        for archive, own in self._owners(want):
            yield from archive.stream(own)

    def _owners(self, want: ByteRange) -> Iterator[tuple[PinnedArchive, ByteRange]]:
        """Yield the parts that have bytes of `want`, and the range in each of them."""
        for archive, (begin, end) in zip(self._archives, pairwise(self._starts), strict=True):
            start, stop = max(want.start, begin), min(want.stop, end)
            if start < stop:
                if start > want.start:
                    count_request("get")
                yield archive, ByteRange(start - begin, stop - begin)
