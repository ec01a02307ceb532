"""Archives of several parts: find the parts, pin each, and check that they fit together.

Rules:

* An archive has one name: that of its last part, or of its first piece (`archives`).
* Each part is pinned to its own version. The pin of the archive has the sizes added up, and ETag
  and version of the part that the location names.
* If a part is missing, or there are too many, the tail has a refusal. No error is raised, because
  the run needs an id and a report.
* A part of a wrong size shifts all parts behind it. `check_parts` and `blaming_parts` find such a
  part by the directory, and name it in their messages.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import NotFoundError, RejectedError
from s3unzip.finding import Finding
from s3unzip.model import Location, Pin
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.archives import (
    first_piece_name,
    is_first_piece,
    last_part_name,
    locate_part,
    part_name,
)
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Source, Tail
from s3unzip.zip import (
    Boundary,
    ByteRange,
    Disks,
    Member,
    count_disks,
    find_boundaries,
    find_data_stop,
)
from s3unzip.zip.records import EOCD_SIGNATURE, LOCAL_LENGTH, LOCAL_SIGNATURE

PARTS_AT_ONCE = 16
SHIFTED = frozenset({"overlap", "member-out-of-bounds"})  # codes that a part of a wrong size causes


def read_whole_tail(
    source: Source, location: Location, calls: Calls, *, length: int, max_parts: int
) -> Tail:
    """Return the last `length` bytes and the pin of an archive, of all its parts."""
    parts = _Parts(source, location, calls, max_parts)
    if is_first_piece(location):
        return parts.read_pieces(length)
    tail = calls.tail(source, location, length)
    count = count_disks(tail.data)
    if count > 1 and not tail.pin.parts and tail.refusal is None:
        return parts.join(tail, count)
    if EOCD_SIGNATURE in tail.data:
        return tail
    if last_name := last_part_name(location):
        return _refuse(tail, "multi-disk", f"give its last part as the archive: {last_name}")
    if first_name := first_piece_name(location):
        return _refuse(tail, "multi-disk", f"give its first piece as the archive: {first_name}")
    return tail


def _refuse(tail: Tail, code: str, message: str) -> Tail:
    return tail._replace(refusal=Finding(code, message))


class _Parts(Struct, frozen=True):
    """The parts of the archive at `location`."""

    source: Source
    location: Location
    calls: Calls
    max_parts: int

    def join(self, tail: Tail, count: int) -> Tail:
        """Return the tail of a split archive of `count` parts; `tail` is the last part's."""
        if count > self.max_parts:
            message = f"{count:,} parts, the limit is {self.max_parts:,}"
            return _refuse(tail, "too-many-parts", message)
        if locate_part(self.location, 1, count) is None:
            message = f"it has {count:,} parts; name it NAME.zip, beside NAME.z01 and the others"
            return _refuse(tail, "part-missing", message)
        earlier = range(1, count)  # `tail` is of part `count`
        parts = list(map_ahead(lambda number: self._stat(number, count), earlier, PARTS_AT_ONCE))
        missing = [number for number, part in zip(earlier, parts, strict=True) if part is None]
        if missing:
            first_name = _name_part(self.location, missing[0], count)
            message = f"{first_name}, part {missing[0]:,} of {count:,}"
            if len(missing) > 1:
                message += f", and {len(missing) - 1:,} more"
            return _refuse(tail, "part-missing", message)
        pins = [part.pin for part in parts if part is not None]
        return tail._replace(pin=_join_pins([*pins, tail.pin], tail.pin))

    def read_pieces(self, length: int) -> Tail:
        """Return the tail of an archive that was cut into pieces, of which the first is named."""
        pieces = list(self._find_pieces())
        pin = _join_pins([part.pin for part in pieces], pieces[0].pin)
        archive = self.source.pinned(self.location, pin)
        data = self.calls.read(archive, ByteRange(max(0, pin.size - length), pin.size))
        dates = [part.modified for part in pieces if part.modified is not None]
        tail = Tail(data, pin, max(dates, default=None))
        if len(pieces) > self.max_parts:
            message = f"more than {self.max_parts:,} parts, the limit"
            return _refuse(tail, "too-many-parts", message)
        signature = ByteRange(0, min(len(LOCAL_SIGNATURE), pin.size))
        begins_as_zip = self.calls.read(archive, signature) == LOCAL_SIGNATURE
        if begins_as_zip and EOCD_SIGNATURE not in data:
            next_name = _name_part(self.location, len(pieces) + 1, len(pieces) + 1)
            message = f"{next_name}, after {len(pieces):,} without the archive's end"
            return _refuse(tail, "part-missing", message)
        return tail

    def _find_pieces(self) -> Iterator[Tail]:
        """Yield the pieces up to the first that is missing, at most one more than the limit."""
        yield self.calls.run("head", lambda: self.source.stat(self.location))
        numbers = range(2, self.max_parts + 2)
        for part in map_ahead(lambda number: self._stat(number, number), numbers, PARTS_AT_ONCE):
            if part is None:
                return
            yield part

    def _stat(self, number: int, count: int) -> Tail | None:
        """Return part `number`, as a tail without bytes; None if it is missing."""
        part = locate_part(self.location, number, count)
        if part is None:
            return None
        try:
            return self.calls.run("head", lambda: self.source.stat(part))
        except NotFoundError:
            return None


def _join_pins(pins: Sequence[Pin], named: Pin) -> Pin:
    if len(pins) == 1:
        return named
    return replace(named, size=sum(pin.size for pin in pins), parts=tuple(pins))


def _name_part(location: Location, number: int, count: int) -> str:
    part = locate_part(location, number, count)
    if part is None:
        return ""
    return part_name(part)


@contextmanager
def blaming_parts(disks: Disks) -> Iterator[None]:
    """Turn the error of overlapping members into that of a part's size, if there are parts."""
    try:
        yield
    except RejectedError as refusal:
        finding = refusal.finding
        if not disks.is_split or finding.code not in SHIFTED:
            raise
        message = f"by the sizes of the parts, {finding.message}"
        raise RejectedError(replace(finding, code="part-wrong", message=message)) from None


def check_parts(
    members: Sequence[Member],
    disks: Disks,
    read: Callable[[ByteRange], bytes],
    location: Location,
) -> None:
    """Check each part: a member begins where the directory says that the part's first one does.

    The member before it must end at or before that offset. For each part in which a member begins,
    two local headers are read.
    """
    if not disks.is_split:
        return
    boundaries = list(find_boundaries(members, disks))
    faults = map_ahead(
        lambda boundary: _find_fault(boundary, disks, read), boundaries, PARTS_AT_ONCE
    )
    for boundary, fault in zip(boundaries, faults, strict=True):
        if fault is not None:
            name = _name_part(location, boundary.disk + 1, disks.last + 1)
            raise RejectedError(Finding("part-wrong", f"{name} {fault}"))


def _find_fault(boundary: Boundary, disks: Disks, read: Callable[[ByteRange], bytes]) -> str | None:
    """Return the fault of a part in words that follow its name, None if it has none."""
    offset = boundary.first.offset
    if read(ByteRange(offset, offset + len(LOCAL_SIGNATURE))) != LOCAL_SIGNATURE:
        return f"has no member at byte {offset - disks.starts[boundary.disk]:,}"
    previous = boundary.previous
    if previous is None or previous.stop - previous.offset < LOCAL_LENGTH:
        return None
    header = read(ByteRange(previous.offset, previous.offset + LOCAL_LENGTH))
    excess = find_data_stop(previous, header) - previous.stop
    if excess <= 0:
        return None
    return f"begins {excess:,} bytes before the end of the member before it"
