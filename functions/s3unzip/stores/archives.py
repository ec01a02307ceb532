"""Archives as their readers see them: one address space, whatever parts the store has.

A source opens each part of an archive as an `ObjectReader`. `ArchiveView` joins the readers, and
the end of the archive if its bytes are in memory.

The parts have these names. A split archive (APPNOTE 8.3.3) is named by its last part: ``a.z01``,
``a.z02``, ... ``a.z99``, ``a.z100``, ... and then ``a.zip``. A file that was cut into pieces is
named by its first piece: ``a.zip.001``, ``a.zip.002``, ...
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.ports import Buffer, ObjectReader, Tail
from s3unzip.zip import ByteRange

# The last reader is asked for bytes behind the end of the archive, too: the store refuses them.
UNBOUNDED = sys.maxsize
_LAST_PART = re.compile(r"\.zip\Z", re.IGNORECASE)
_EARLIER_PART = re.compile(r"\.z[0-9]{2,5}\Z", re.IGNORECASE)
_PIECE = re.compile(r"\.zip\.([0-9]{3,})\Z", re.IGNORECASE)


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
        spans = map(ByteRange, starts, [*starts[1:], UNBOUNDED])
        self._parts = list(zip(readers, spans, strict=True))
        self._end = end
        self._end_start = UNBOUNDED
        if end:
            self._end_start = size - len(end)

    def holds(self, want: ByteRange) -> bool:
        """Return whether all of `want` is in memory."""
        return want.start >= self._end_start

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces.

        `Calls` counts the first request. Each further part takes one more, which is counted here.
        """
        for reader, span in self._parts:
            start = max(want.start, span.start)
            stop = min(want.stop, span.stop, self._end_start)
            if start >= stop:
                continue
            if start > want.start:
                count_request("get")
            yield from reader.stream(ByteRange(start - span.start, stop - span.start))
        start = max(want.start, self._end_start)
        if start < want.stop:
            yield memoryview(self._end)[start - self._end_start : want.stop - self._end_start]


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

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin; request the size first, then the range."""
        count_request("head")
        current = self.stat(location)
        size = current.pin.size
        end = ByteRange(max(0, size - length), size)
        data = read_until_fault(self.open(location, current.pin).stream(end))
        return current._replace(data=data, missing=end.length - len(data))

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> ArchiveView:
        """Return a reader of exactly that version, of every part."""
        if not pin.parts:
            return ArchiveView([self.open(location, pin)], [pin.size], end)
        readers = []
        for number, part_pin in enumerate(pin.parts, 1):
            part = locate_part(location, number, len(pin.parts))
            if part is None:
                raise UsageError(f"{location}: the name does not say where the other parts are")
            readers.append(self.open(part, part_pin))
        return ArchiveView(readers, [part_pin.size for part_pin in pin.parts], end)

    def delete(self, location: Location, pin: Pin) -> None:  # noqa: ARG002 - of the port
        """Refuse: this store cannot change archives."""
        raise UsageError(f"{location.public}: only s3:// objects and files can be changed")

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - of the port
        """Refuse, with the same message as `delete`."""
        self.delete(location, pin)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:  # noqa: ARG002 - of the port
        """Return no tags: only objects of S3 have some."""
        return {}


def locate_part(location: Location, number: int, count: int) -> Location | None:
    """Return where part `number` of `count` is; the first part has number 1.

    Returns None if the name does not say how the other parts are named.
    """
    if not location.store.has_neighbours:
        return None
    path, question_mark, query = _split_query(location)
    piece = _PIECE.search(path)
    if piece is not None and int(piece[1]) == 1:
        path = path[: piece.start(1)] + str(number).zfill(len(piece[1]))
    elif not _LAST_PART.search(path):
        return None
    elif number < count:  # the last part has the name itself; ".ZIP" has ".Z01" beside it
        path = f"{path[: -len('ip')]}{number:02}"
    return replace(location, key=path + question_mark + query)


def is_first_piece(location: Location) -> bool:
    """Return whether the name is that of the first piece of a file that was cut."""
    return first_piece_name(location) == part_name(location)


def last_part_name(location: Location) -> str | None:
    """Return the last part's name if `location` names an earlier part, else None."""
    name = part_name(location)
    ending = _EARLIER_PART.search(name)
    if ending is None:
        return None
    stem = name[: ending.start() + len(".z")]
    if stem.endswith("Z"):
        return f"{stem}IP"
    return f"{stem}ip"


def first_piece_name(location: Location) -> str | None:
    """Return the first piece's name if `location` names a piece, else None."""
    name = part_name(location)
    piece = _PIECE.search(name)
    if piece is None:
        return None
    return name[: piece.start(1)] + "1".zfill(len(piece[1]))


def part_name(location: Location) -> str:
    """Return the last name of a path, without the query."""
    return _split_query(location)[0].rpartition("/")[2]


def _split_query(location: Location) -> tuple[str, str, str]:
    """Return the path, the question mark and the query; only a URL has the latter two."""
    if not location.store.is_url:
        return location.key, "", ""
    return location.key.partition("?")
