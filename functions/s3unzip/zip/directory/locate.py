"""Find the central directory from an archive's last bytes, or refuse the archive.

`end_records` reads the end record and the ZIP64 records. This module reads the few bytes that
decide between two meanings. `reader` reads the directory's headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.finding import Finding
from s3unzip.zip.directory import records
from s3unzip.zip.directory.end_records import (
    EndRecords,
    Tail,
    find_eocd,
    read_zip64,
    reject,
)
from s3unzip.zip.disks import ONE_DISK, Disks
from s3unzip.zip.foreign import FOREIGN_HEAD, describe_foreign
from s3unzip.zip.ranges import ByteRange, Reads

if TYPE_CHECKING:
    from collections.abc import Generator

    from s3unzip.zip.policy import Policy

# The last bytes that can hold the end record, its longest comment, and the ZIP64 records.
TAIL_LENGTH = (
    records.MAX_COMMENT
    + records.EOCD_LENGTH
    + records.ZIP64_LOCATOR_LENGTH
    + records.ZIP64_EOCD_LENGTH
)


class DirectoryLocation(Struct, frozen=True):
    """Where the central directory is, in absolute offsets of an archive of `size` bytes.

    Add `prefix` to every offset in the archive. `entries` is the declared count: compare it, never
    allocate by it. `held` is the end of the directory that the tail already contains: read only
    from `start` to ``stop - len(held)``, then feed `held`. `entries_here` is how many headers begin
    on the last of the `disks` that has some of the directory.
    """

    start: int
    stop: int
    entries: int
    prefix: int
    size: int
    is_zip64: bool
    held: bytes
    warnings: tuple[Finding, ...] = ()
    disks: Disks = ONE_DISK
    entries_here: int = 0

    @property
    def missing(self) -> ByteRange:
        """The part of the directory that is still to be read; may be empty."""
        return ByteRange(self.start, self.stop - len(self.held))


def locate_directory(
    tail: bytes, size: int, policy: Policy, disks: Disks = ONE_DISK
) -> Reads[DirectoryLocation]:
    """Read where the central directory is; `tail` is the last bytes of `size`.

    A tail of at least `TAIL_LENGTH` bytes contains all that is needed but for a few bytes
    elsewhere. `disks` are the files that `size` is the sum of, if there are several. An end record
    on disk 0 says that they are pieces of one disk.

    Raises:
        RejectedError: the archive has no index, a broken one, or two.
    """
    if len(tail) > size:
        raise ValueError(f"a tail of {len(tail)} bytes for an archive of {size}")
    view = Tail(tail, size)
    window_start = max(0, size - records.EOCD_LENGTH - records.MAX_COMMENT)
    window = yield from view.read(window_start, size)
    if records.EOCD_SIGNATURE not in window:
        head = yield from view.read(0, min(size, FOREIGN_HEAD))
        reject("no-eocd", describe_foreign(head, size, len(window)))
    warnings: list[Finding] = []
    at = find_eocd(window, window_start, policy, warnings)
    eocd = records.Eocd._make(records.EOCD.unpack_from(window, at - window_start))
    if eocd.disk:
        view.disks = disks
    end = yield from read_zip64(view, eocd, at, policy, warnings)
    _check_limits(end, policy)
    start, prefix = yield from _place_directory(view, end, warnings)
    if prefix and (yield from view.read(0, 4)) == records.LOCAL_SIGNATURE:
        reject("stacked-archive", f"the {prefix} bytes before it start a ZIP of their own", 0)
    return DirectoryLocation(
        start=start,
        stop=end.bound,
        entries=end.entries,
        prefix=prefix,
        size=size,
        is_zip64=end.zip64_shift is not None,
        held=view.data[max(0, start - view.start) : max(0, end.bound - view.start)],
        warnings=tuple(warnings),
        disks=view.disks,
        entries_here=end.entries_here,
    )


def _check_limits(end: EndRecords, policy: Policy) -> None:
    limits = policy.limits
    if end.directory_offset + end.directory_size > end.bound:
        message = (
            f"the directory ends at {end.directory_offset + end.directory_size},"
            f" the end record begins at {end.bound}"
        )
        reject("cd-out-of-bounds", message, end.bound)
    if end.directory_size > limits.directory_size:
        message = f"{end.directory_size} bytes, the limit is {limits.directory_size}"
        reject("cd-too-large", message, end.directory_offset)
    if end.entries > limits.members:
        reject("too-many-entries", f"{end.entries} declared, the limit is {limits.members}")
    if end.entries * records.CENTRAL_LENGTH > end.directory_size:
        message = f"{end.entries} members declared in {end.directory_size} bytes"
        reject("cd-size", message, end.directory_offset)


def _place_directory(
    view: Tail, end: EndRecords, warnings: list[Finding]
) -> Generator[ByteRange, bytes, tuple[int, int]]:
    """Return the directory's start and the prefix, if exactly one interpretation is valid.

    Either offsets are absolute, or all of them lack the bytes before the archive (the stub of a
    self-extractor), or the archive has two meanings.
    """
    declared = end.directory_offset
    prefix = end.bound - end.directory_size - declared
    shift = end.zip64_shift
    if shift is not None and shift != prefix:
        message = f"the locator is off by {shift}, the directory by {prefix}"
        reject("zip64-locator-mismatch", message, end.bound)
    if prefix == 0:
        return declared, 0
    if view.disks.is_split:
        message = f"{prefix} bytes between the directory and its end record"
        reject("gap-before-eocd", message, declared + end.directory_size)
    adjusted = declared + prefix
    at_declared = yield from view.read(declared, min(declared + 4, end.bound))
    if end.directory_size < records.CENTRAL_LENGTH:
        if end.directory_size == 0 and at_declared != records.CENTRAL_SIGNATURE:
            warnings.append(_warn_prefix(prefix))
            return adjusted, prefix
        reject("gap-before-eocd", f"{prefix} bytes between directory and end record", declared)
    at_adjusted = yield from view.read(adjusted, adjusted + 4)
    if at_declared == records.CENTRAL_SIGNATURE == at_adjusted:
        reject("cd-ambiguous", f"directories at {declared} and {adjusted}", declared)
    if at_adjusted != records.CENTRAL_SIGNATURE:
        message = f"{prefix} bytes between the directory and its end record"
        reject("gap-before-eocd", message, declared + end.directory_size)
    warnings.append(_warn_prefix(prefix))
    return adjusted, prefix


def _warn_prefix(prefix: int) -> Finding:
    message = f"{prefix} bytes before the archive that its offsets do not count"
    return Finding("prefix-unadjusted", message, 0)
