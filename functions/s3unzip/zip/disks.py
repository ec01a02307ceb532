"""The disks of a split archive (APPNOTE 8), which are files that follow each other here.

The records of a split archive give the number of a disk and an offset on it. Here both make one
absolute offset. A file that was only cut into pieces is one disk: its records do not know the cuts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from s3unzip.zip.values import Member


class Disks:
    """Where each disk begins and ends, in absolute offsets, of disks with these sizes.

    The offsets of an archive of one disk are not checked here: other checks compare them.
    """

    def __init__(self, sizes: Sequence[int] = ()) -> None:
        self._stops = tuple(accumulate(sizes))
        self.starts = (0, *self._stops[:-1])

    @property
    def last(self) -> int:
        """The number of the last disk."""
        return len(self.starts) - 1

    @property
    def is_split(self) -> bool:
        """Whether there is more than one disk."""
        return len(self.starts) > 1

    def absolute(self, disk: int, offset: int) -> int:
        """Return the absolute offset of a byte of `disk`; `offset` if there is no such disk."""
        if disk > self.last:
            return offset
        return self.starts[disk] + offset

    def find_lack(self, disk: int, offset: int) -> str | None:
        """Return what is missing: the disk, or the byte on it; None if both are there."""
        if disk > self.last:
            return f"disk {disk}"
        if self.is_split and offset >= (length := self._stops[disk] - self.starts[disk]):
            return f"disk {disk} at byte {offset:,}, which has only {length:,}"
        return None

    def disk_of(self, offset: int) -> int:
        """Return the number of the disk that has the byte at the absolute `offset`."""
        return bisect_right(self.starts, offset) - 1


ONE_DISK = Disks()


class Boundary(NamedTuple):
    """The first member that begins on a disk, and the member before it."""

    disk: int
    first: Member
    previous: Member | None


def find_boundaries(members: Sequence[Member], disks: Disks) -> Iterator[Boundary]:
    """Yield the boundary of each disk on which a member begins.

    `members` are in the order of their offsets.
    """
    for disk, start in enumerate(disks.starts):
        number = bisect_left(members, start, key=attrgetter("offset"))
        if number < len(members) and disks.disk_of(members[number].offset) == disk:
            previous = None
            if number:
                previous = members[number - 1]
            yield Boundary(disk, members[number], previous)
