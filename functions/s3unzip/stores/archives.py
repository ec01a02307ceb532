"""Archives as their readers see them: one address space, whatever parts the store has.

A source opens each part of an archive as an `ObjectReader`. `ArchiveView` joins the readers, and
the end of the archive where somebody has read it before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.part_names import locate_parts
from s3unzip.stores.ports import Buffer, ObjectReader, Tail
from s3unzip.zip import ByteRange

TAIL_SECONDS = 60.0  # after which the end of an archive must not come too slowly
UNBOUNDED = sys.maxsize  # the store refuses what lies behind the end of an archive


class ArchiveSource:
    """How all sources read archives; one that can change archives overrides the refusals."""

    def stat(self, location: Location) -> Tail:
        """Return what is there now, as a tail without bytes, with one request."""
        raise NotImplementedError

    def head(self, location: Location) -> Pin:
        """Return the version that is there now, with one request."""
        return self.stat(location).pin

    def open(self, location: Location, pin: Pin) -> ObjectReader:
        """Return a reader of that version of the one object at `location`."""
        raise NotImplementedError

    def tail_by_size(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin: the size is requested first, then a range."""
        count_request("head")
        current = self.stat(location)
        size = current.pin.size
        end = ByteRange(max(0, size - length), size)
        data = read_until_fault(self.open(location, current.pin).stream(end), TAIL_SECONDS)
        return current._replace(data=data, missing=end.length - len(data))

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> ArchiveView:
        """Return a reader of exactly that version, of every part."""
        if not pin.parts:
            return ArchiveView([self.open(location, pin)], [pin.size], end)
        locations = locate_parts(location, len(pin.parts))
        readers = [self.open(*part) for part in zip(locations, pin.parts, strict=True)]
        return ArchiveView(readers, [part.size for part in pin.parts], end)

    def delete(self, location: Location, pin: Pin) -> None:  # noqa: ARG002 - of the port
        """Refuse."""
        raise UsageError(f"{location.public}: only s3:// objects and files can be changed")

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - of the port
        """Refuse."""
        self.delete(location, pin)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:  # noqa: ARG002 - of the port
        """Return none: only objects of S3 have tags."""
        return {}


class _Extent(NamedTuple):
    """The bytes of an archive that one reader has: offsets of the archive."""

    reader: ObjectReader
    start: int
    stop: int


class ArchiveView:
    """One version of an archive: each part begins where the part before it ends.

    Reading sends one request for each part that has some of the bytes, and none for bytes in
    memory.

    Args:
        readers: of the parts, in order.
        sizes: of the parts, in bytes.
        end: the last bytes of the archive, which are in memory.
    """

    def __init__(
        self, readers: Sequence[ObjectReader], sizes: Sequence[int], end: bytes = b""
    ) -> None:
        *starts, size = accumulate(sizes, initial=0)
        self._memory_start = UNBOUNDED
        if end:
            self._memory_start = size - len(end)
        stops = [*starts[1:], UNBOUNDED]
        self._extents = [
            _Extent(reader, start, min(stop, self._memory_start))
            for reader, start, stop in zip(readers, starts, stops, strict=True)
        ]
        if end:
            self._extents.append(_Extent(_BytesReader(end), self._memory_start, UNBOUNDED))

    def holds(self, want: ByteRange) -> bool:
        """Return whether all of `want` is in memory."""
        return want.start >= self._memory_start

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces."""
        for reader, span in self._divide(want):
            yield from reader.stream(span)

    def _divide(self, want: ByteRange) -> Iterator[tuple[ObjectReader, ByteRange]]:
        """Yield the readers that have bytes of `want`, each with its own range.

        `Calls` counts the first request; each reader after the first one is one more.
        """
        for extent in self._extents:
            start = max(want.start, extent.start)
            stop = min(want.stop, extent.stop)
            if start >= stop:
                continue
            if want.start < start < self._memory_start:
                count_request("get")
            yield extent.reader, ByteRange(start - extent.start, stop - extent.start)


class _BytesReader:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want`, without a copy."""
        yield memoryview(self._data)[want.start : want.stop]
