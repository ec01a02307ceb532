"""The disks of a split archive (APPNOTE 8) in one address space.

The records of a split archive name a place by the number of a disk and an offset on it. Here the
parts follow each other, so that such a place is one absolute offset. A file that was only cut into
pieces is one disk: its records know nothing of the cuts.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


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
