"""Check the bytes before the first listed member: they may be another archive.

Self-extractors put a program there, scripts their first line. If a whole archive is there, other
readers may read it instead of this one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from s3unzip.finding import Finding
from s3unzip.zip.directory import records
from s3unzip.zip.directory.end_records import Tail
from s3unzip.zip.errors import RejectedError

if TYPE_CHECKING:
    from s3unzip.zip.directory.locate import DirectoryLocation
    from s3unzip.zip.ranges import Reads

# Bytes to search at each end: an archive begins with a local header near the first byte, or ends
# with its end record and a comment near the last byte.
LOOKED = records.MAX_COMMENT + records.EOCD_LENGTH

# 8.5.3, 8.5.4: what a split archive begins with, and one that needed no second part after all.
SPANNING_SIGNATURES = (records.DESCRIPTOR_SIGNATURE, b"PK00")

_LOCAL = Struct("<4sHHHHHIIIHH")  # 4.3.7
_MAX_METHOD = 99
_MAX_NAME = 4096


def inspect_prefix(tail: bytes, location: DirectoryLocation, first: int) -> Reads[list[Finding]]:
    """Return the warnings about the bytes before offset `first`, where the first listed item is.

    `tail` is the archive's last bytes. If there are such bytes, two ranges of `LOOKED` bytes are
    searched; bytes between them are only counted.

    Raises:
        RejectedError: `stacked-archive`: there is another archive, and this one's
            offsets do not count it, or this one has no members of its own.
    """
    if first == 0:
        return []
    view = Tail(tail, location.size)
    head = yield from view.read(0, min(first, LOOKED))
    if head in SPANNING_SIGNATURES and not location.prefix:
        return []
    found = find_archive(head, 0, first)
    if found is None and first > LOOKED:
        start = max(LOOKED, first - LOOKED)
        foot = yield from view.read(start, first)
        found = find_archive(foot, start, first)
    if found is not None and (location.prefix or not location.entries):
        message = f"of the {first} bytes before it, those from {found} on are a ZIP of their own"
        raise RejectedError(Finding("stacked-archive", message, found))
    if location.prefix:
        return []  # said when the directory was found
    warnings = [Finding("prefix-adjusted", f"{first} bytes before the first member", 0)]
    if found is not None:
        message = f"an archive at {found} that the directory does not list"
        warnings.append(Finding("hidden-local-header", message, found))
    return warnings


def find_archive(data: bytes, base: int, stop: int) -> int | None:
    """Return the offset of the first local header or end record in `data`, None without one.

    `data` begins at offset `base` of a prefix that ends at `stop`. A signature alone is not enough:
    programs that read ZIPs contain it as a constant.
    """
    for signature, is_record in (
        (records.LOCAL_SIGNATURE, _is_local),
        (records.EOCD_SIGNATURE, _is_end),
    ):
        at = data.find(signature)
        while at >= 0:
            if is_record(data, at, stop - base):
                return base + at
            at = data.find(signature, at + 1)
    return None


def _is_local(data: bytes, at: int, stop: int) -> bool:
    if at + records.LOCAL_LENGTH > len(data):
        return False
    _, needed, _, method, _, _, _, _, _, name_length, extra_length = _LOCAL.unpack_from(data, at)
    name_at = at + records.LOCAL_LENGTH
    return (
        needed & 0xFF <= records.MAX_VERSION
        and method <= _MAX_METHOD
        and 0 < name_length <= _MAX_NAME
        and name_at + name_length + extra_length <= stop
        and b"\0" not in data[name_at : name_at + name_length]
    )


def _is_end(data: bytes, at: int, stop: int) -> bool:
    if at + records.EOCD_LENGTH > len(data):
        return False
    end = records.Eocd._make(records.EOCD.unpack_from(data, at))
    return (
        end.disk == end.directory_disk
        and end.disk_entries == end.entries
        and at + records.EOCD_LENGTH + end.comment_length <= stop
        and end.directory_size >= end.entries * records.CENTRAL_LENGTH
        and (end.entries > 0 or end.directory_size == 0)
    )
