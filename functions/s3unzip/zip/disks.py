"""The disks of a split archive (APPNOTE 8) in one address space.

The records of a split archive name a place by the number of a disk and an offset on it. Here the
parts follow each other, so that such a place is one absolute offset. A file that was only cut into
pieces is one disk: its records know nothing of the cuts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from msgspec import Struct

from s3unzip.zip import records
from s3unzip.zip.values import Member


class Disks(Struct, frozen=True):
    """Where each disk begins, in absolute offsets; `size` is the bytes of all disks.

    The offsets of an archive of one disk are not checked here: other checks compare them.
    """

    starts: tuple[int, ...] = (0,)
    size: int = 0

    @property
    def last(self) -> int:
        """The number of the last disk."""
        return len(self.starts) - 1

    @property
    def is_split(self) -> bool:
        """Whether there is more than one disk."""
        return len(self.starts) > 1

    def place(self, disk: int, offset: int) -> int:
        """Return the absolute offset of byte `offset` of `disk`; of no known disk, `offset`."""
        return offset + self.starts[disk] if disk <= self.last else offset

    def find_lack(self, disk: int, offset: int) -> str | None:
        """Return what is missing: the disk, or the byte on it; None if both are there."""
        if disk > self.last:
            return f"disk {disk}"
        length = self.stop(disk) - self.starts[disk]
        if self.is_split and offset >= length:
            return f"disk {disk} at byte {offset:,}, which has only {length:,}"
        return None

    def stop(self, disk: int) -> int:
        """Return where `disk` ends."""
        return self.size if disk == self.last else self.starts[disk + 1]

    def disk_of(self, offset: int) -> int:
        """Return the number of the disk that has the byte at the absolute `offset`."""
        return bisect_right(self.starts, offset) - 1


ONE_DISK = Disks()


def join_disks(sizes: Sequence[int]) -> Disks:
    """Return the disks with these sizes, in bytes and in order."""
    return Disks((0, *accumulate(sizes[:-1])), sum(sizes))


def count_disks(tail: bytes) -> int:
    """Return how many disks the end record in an archive's last bytes declares.

    Returns 1 if there is no end record: `locate_directory` explains it.
    """
    at = _find_last_end(tail)
    if at is None:
        return 1
    eocd = records.read_eocd(tail, at)
    if eocd.disk != records.SENTINEL_16:
        return eocd.disk + 1
    raw = tail[max(0, at - records.ZIP64_LOCATOR.size) : at]
    if len(raw) < records.ZIP64_LOCATOR.size or raw[:4] != records.ZIP64_LOCATOR_SIGNATURE:
        return 1
    count: int = records.ZIP64_LOCATOR.unpack(raw)[2]
    return max(1, count)


def count_entries(tail: bytes) -> int | None:
    """Return how many entries, folders among them, an archive's last bytes declare.

    Returns None if `tail` has no end record, or the count is in a ZIP64 record before `tail`.
    """
    at = _find_last_end(tail)
    if at is None:
        return None
    eocd = records.read_eocd(tail, at)
    if eocd.entries != records.SENTINEL_16:
        return eocd.entries
    start = at - records.ZIP64_LOCATOR_LENGTH - records.ZIP64_EOCD_LENGTH
    raw = tail[max(0, start) : at - records.ZIP64_LOCATOR_LENGTH]
    if len(raw) < records.ZIP64_EOCD_LENGTH or not raw.startswith(records.ZIP64_EOCD_SIGNATURE):
        return None
    return records.read_zip64_eocd(raw).entries


def _find_last_end(tail: bytes) -> int | None:
    """Return where the end record begins that ends with the archive, else the last one."""
    window = tail[-(records.EOCD_LENGTH + records.MAX_COMMENT) :]
    found = [
        at
        for at in records.find_all(window, records.EOCD_SIGNATURE)
        if at + records.EOCD_LENGTH <= len(window)
    ]
    whole = [at for at in found if records.find_eocd_stop(window, at) == len(window)]
    return len(tail) - len(window) + (whole or found)[-1] if found else None


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
