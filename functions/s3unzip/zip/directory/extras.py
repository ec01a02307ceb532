"""Extra fields (APPNOTE 4.5), of which three are used, and MS-DOS times (APPNOTE 4.4.6)."""

from __future__ import annotations

import zlib
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from s3unzip.zip.directory.records import SENTINEL_16, SENTINEL_32

if TYPE_CHECKING:
    from collections.abc import Sequence

ZIP64 = 0x0001
EXTENDED_TIMESTAMP = 0x5455
UNICODE_PATH = 0x7075


class Extras(Struct, frozen=True):
    """The fields of one extra block, by id, in order.

    `overrun` says that a field is longer than the rest of the block. `stray` is the number of bytes
    (1 to 3) that are left over and no field.
    """

    fields: Sequence[tuple[int, bytes]]
    overrun: bool = False
    stray: int = 0

    def of(self, field_id: int) -> list[bytes]:
        """Return the payloads of every field with this id."""
        return [payload for found, payload in self.fields if found == field_id]


NO_EXTRAS = Extras(())


def walk_extras(block: bytes) -> Extras:
    """Split an extra block into fields; never raises."""
    fields: list[tuple[int, bytes]] = []
    at, end = 0, len(block)
    while end - at >= 4:
        field_id = int.from_bytes(block[at : at + 2], "little")
        start = at + 4
        at = start + int.from_bytes(block[at + 2 : at + 4], "little")
        if at > end:
            return Extras(fields, overrun=True)
        fields.append((field_id, block[start:at]))
    return Extras(fields, stray=end - at)


class Zip64Values(NamedTuple):
    """Sizes, offset and disk with sentinels replaced; `missing` if a sentinel had no value."""

    size: int
    compressed_size: int
    offset: int
    disk: int
    missing: bool


def resolve_zip64(  # the four fields of 4.5.3, in the order that the field holds them
    payload: bytes | None, size: int, compressed_size: int, offset: int, disk: int
) -> Zip64Values:
    """Replace each sentinel by its value from the ZIP64 extra field (4.5.3).

    Only fields that are sentinels have a value, in this fixed order. Some writers always write all
    three values, so bytes that are left over are ignored.
    """
    at, missing = 0, False
    resolved: list[int] = []
    for value, sentinel, length in (
        (size, SENTINEL_32, 8),
        (compressed_size, SENTINEL_32, 8),
        (offset, SENTINEL_32, 8),
        (disk, SENTINEL_16, 4),
    ):
        if value != sentinel:
            resolved.append(value)
            continue
        found = (payload or b"")[at : at + length]
        at += length
        missing |= len(found) < length
        resolved.append(int.from_bytes(found, "little") if len(found) == length else value)
    return Zip64Values(resolved[0], resolved[1], resolved[2], resolved[3], missing)


def read_extended_time(extras: Extras) -> int | None:
    """Return the modification time in Unix seconds of the extended timestamp (0x5455)."""
    for payload in extras.of(EXTENDED_TIMESTAMP):
        if len(payload) >= 5 and payload[0] & 1:
            return int.from_bytes(payload[1:5], "little", signed=True)
    return None


class UnicodePath(NamedTuple):
    """The Unicode path fields (0x7075, 4.6.9) of one block.

    `name` is the UTF-8 name of the one field that fits the raw name, if any.
    """

    name: bytes | None
    duplicate: bool
    stale: bool


def read_unicode_path(extras: Extras, raw_name: bytes) -> UnicodePath:
    """Read the Unicode path fields: version 1, and the CRC-32 of the raw name must fit."""
    found = extras.of(UNICODE_PATH)
    if len(found) != 1:
        return UnicodePath(None, duplicate=len(found) > 1, stale=False)
    payload = found[0]
    fits = (
        len(payload) >= 5
        and payload[0] == 1
        and int.from_bytes(payload[1:5], "little") == zlib.crc32(raw_name)
    )
    return UnicodePath(payload[5:] if fits else None, duplicate=False, stale=not fits)


_EPOCH = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400


def read_dos_time(stamp: int) -> int | None:
    """Return Unix seconds of a DOS date (high 16 bits) and time (low 16), taken as UTC.

    DOS times have no zone; taking them as UTC gives the same answer on every
    machine. Return None for an invalid date: many writers leave zeros.
    """
    day, time = stamp >> 16, stamp & 0xFFFF
    hour, minute, second = time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2
    if hour > 23 or minute > 59 or second > 59:
        return None
    midnight = _read_day(day)
    return None if midnight is None else midnight + hour * 3600 + minute * 60 + second


@lru_cache(maxsize=4096)
def _read_day(day: int) -> int | None:
    try:
        ordinal = date(1980 + (day >> 9), day >> 5 & 0xF, day & 0x1F).toordinal()
    except ValueError:
        return None
    return (ordinal - _EPOCH) * _DAY_SECONDS
