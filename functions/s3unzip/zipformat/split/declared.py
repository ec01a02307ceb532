"""What a split archive declares: how many disks there are, and where members begin."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

from s3unzip.zipformat.directory.records import (
    EOCD,
    EOCD_LENGTH,
    EOCD_SIGNATURE,
    MAX_COMMENT,
    SENTINEL_16,
    ZIP64_LOCATOR,
    ZIP64_LOCATOR_LENGTH,
    ZIP64_LOCATOR_SIGNATURE,
    Eocd,
    Zip64Locator,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.zipformat.member import Member
    from s3unzip.zipformat.split.disks import Disks


def count_disks(tail: bytes) -> int:
    """Return how many disks the end record in an archive's last bytes declares.

    Returns 1 if there is no end record: `locate_directory` explains it.
    """
    at = _find_last_end(tail)
    if at is None:
        return 1
    eocd = Eocd._make(EOCD.unpack_from(tail, at))
    if eocd.disk != SENTINEL_16:
        return eocd.disk + 1
    raw = tail[max(0, at - ZIP64_LOCATOR_LENGTH) : at]
    if len(raw) < ZIP64_LOCATOR_LENGTH or not raw.startswith(ZIP64_LOCATOR_SIGNATURE):
        return 1
    return max(1, Zip64Locator._make(ZIP64_LOCATOR.unpack(raw)).disks)


def _find_last_end(tail: bytes) -> int | None:
    """Return where the end record begins that ends with the archive, else the last one."""
    window = tail[-(EOCD_LENGTH + MAX_COMMENT) :]
    base = len(tail) - len(window)
    last = None
    at = window.rfind(EOCD_SIGNATURE)
    while at >= 0:
        if at + EOCD_LENGTH <= len(window):
            stop = at + EOCD_LENGTH + int.from_bytes(window[at + 20 : at + 22], "little")
            if stop == len(window):
                return base + at
            last = base + at if last is None else last
        at = window.rfind(EOCD_SIGNATURE, 0, at)
    return last


def first_members(members: Sequence[Member], disks: Disks) -> Iterator[tuple[int, Member]]:
    """Yield the number of each disk on which a member begins, and the first such member.

    `members` are in the order of their offsets.
    """
    known = -1
    for start in disks.starts:
        place = bisect_left(members, start, key=attrgetter("offset"))
        if place == len(members):
            return
        member = members[place]
        disk = disks.disk_of(member.offset)
        if disk != known:
            known = disk
            yield disk, member
