"""Split archives for tests (APPNOTE 8): the parts, with the disk numbers that belong to them.

A record (a header, an end record) lies on one disk, and data may lie on several, as 4.4 and 8.5
want it. `sizes` says how many bytes each part may have; the part after the last of them takes the
rest. A part becomes larger than that only where a single record is.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.support.zips import (
    EOCD,
    SENTINEL,
    ZIP64_LOCATOR,
    Entry,
    Fields,
    Shape,
    pack_record,
    pack_zip64,
)

MARKER = b"PK\x07\x08"
SENTINEL_16 = 0xFFFF


class Place(NamedTuple):
    """Where something is: the number of a disk, and the offset on it."""

    disk: int
    offset: int


@dataclass
class Parts:
    """The parts so far."""

    sizes: Sequence[int]
    parts: list[bytearray] = field(default_factory=lambda: [bytearray()])

    @property
    def _room(self) -> int:
        disk = len(self.parts) - 1
        limit = self.sizes[disk] if disk < len(self.sizes) else sys.maxsize
        return max(0, limit - len(self.parts[-1]))

    def add_record(self, record: bytes) -> Place:
        while len(record) > self._room and self.parts[-1]:
            self.parts.append(bytearray())
        place = Place(len(self.parts) - 1, len(self.parts[-1]))
        self.parts[-1] += record
        return place

    def add_data(self, data: bytes) -> None:
        while data:
            room = self._room
            self.parts[-1] += data[:room]
            data = data[room:]
            if data:
                self.parts.append(bytearray())

    def fill(self, place: Place, record: bytes) -> None:
        stop = place.offset + len(record)
        self.parts[place.disk][place.offset : stop] = record


def build_split(
    *entries: Entry, sizes: Sequence[int], shape: Shape | None = None, marker: bytes = MARKER
) -> list[bytes]:
    """Build the parts of a split archive, in order; the last one is the ``.zip``.

    Of `shape` the comment, `zip64`, and the overrides of the end records are used.
    """
    shape = shape or Shape()
    parts = Parts(sizes)
    parts.add_data(marker)
    places = [_add_member(parts, entry) for entry in entries]
    headers = []
    for entry, place in zip(entries, places, strict=True):
        listed = replace(entry, central={"disk": place.disk, **entry.central})
        headers.append((parts.add_record(listed.central_part(place.offset)), listed))
    size = sum(len(listed.central_part(0)) for _, listed in headers)
    lengths = [56, 20] if shape.zip64 else []
    lengths.append(22 + len(shape.comment))
    ends = [parts.add_record(bytes(length)) for length in lengths]
    start = headers[0][0] if headers else ends[0]
    directory: dict[str, int | bytes] = {"directory_disk": start.disk}
    directory["directory_offset"] = start.offset
    directory |= {"entries": len(entries), "directory_size": size}
    disks = [place.disk for place, _ in headers]
    if shape.zip64:
        _fill_zip64(parts, ends, directory, disks, shape)
        directory |= {"entries": SENTINEL_16, "directory_size": SENTINEL}
        directory |= {"directory_offset": SENTINEL}
    last = ends[-1].disk
    values = {**directory, "signature": b"PK\x05\x06", "disk": last}
    values |= {"disk_entries": SENTINEL_16 if shape.zip64 else disks.count(last)}
    values |= {"comment_length": len(shape.comment)}
    parts.fill(ends[-1], pack_record(EOCD, values, shape.eocd) + shape.comment)
    return [bytes(part) for part in parts.parts]


def _add_member(parts: Parts, entry: Entry) -> Place:
    place = parts.add_record(entry.local_header())
    parts.add_data(entry.stored_data)
    if descriptor := entry.local_part()[len(entry.local_header() + entry.stored_data) :]:
        parts.add_record(descriptor)
    return place


def _fill_zip64(
    parts: Parts, ends: Sequence[Place], directory: Fields, disks: list[int], shape: Shape
) -> None:
    record, locator, last = ends
    here = {"disk": record.disk, "disk_entries": disks.count(record.disk)}
    parts.fill(record, pack_zip64({**directory, **here}, shape))
    place = {"record_disk": record.disk, "record_offset": record.offset, "disks": last.disk + 1}
    signed: Fields = {"signature": b"PK\x06\x07", **place}
    parts.fill(locator, pack_record(ZIP64_LOCATOR, signed, shape.locator))


def part_names(stem: str, count: int) -> list[str]:
    """Return the names of the parts of a split archive, as Info-ZIP gives them."""
    return [f"{stem}.z{number:02}" for number in range(1, count)] + [f"{stem}.zip"]


def cut_pieces(raw: bytes, size: int) -> list[bytes]:
    """Cut an archive into pieces, as `split` and 7-Zip do."""
    return [raw[at : at + size] for at in range(0, len(raw), size)]
