"""The disks of a split archive (APPNOTE 8): files that are read one after the other.

The records of a split archive have the number of a disk and an offset on it. `Disks` converts them
to an absolute offset. An archive that was written whole and then cut into files is one disk: its
records do not count the files.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from s3unzip.zip.values import Member


class Disks:
    """The absolute offsets at which disks of these sizes begin and end.

    If there is only one disk, offsets are not compared with its size: other checks do that.
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
        """Return the absolute offset of a byte of `disk`; `offset` if the disk is missing."""
        if disk > self.last:
            return offset
        return self.starts[disk] + offset

    def describe_missing(self, disk: int, offset: int) -> str | None:
        """Return which disk or which byte of it is missing; None if both exist."""
        if disk > self.last:
            return f"disk {disk}"
        if self.is_split and offset >= (length := self._stops[disk] - self.starts[disk]):
            return f"disk {disk} at byte {offset:,}, which has only {length:,}"
        return None

    def disk_of(self, offset: int) -> int:
        """Return the number of the disk that has the byte at the absolute `offset`."""
        # The last disk that begins at or before the byte.
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
        # The first member from `start` may begin on a later disk, or not exist.
        if number < len(members) and disks.disk_of(members[number].offset) == disk:
            previous = None
            if number:
                previous = members[number - 1]
            yield Boundary(disk, members[number], previous)
