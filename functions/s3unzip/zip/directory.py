"""Find the central directory of an archive, and check the bytes before the first member.

Offsets do not always include the bytes before the archive, such as the program of a self-extractor
or the first line of a script. Offsets can also be truncated to their lower 32 bits (see `wrapped`).
An archive that can be read in two ways is refused. An archive that follows another complete archive
is also refused, because other readers might read the first archive.
"""

import re

from msgspec import Struct

from s3unzip.zip import records
from s3unzip.zip.checks import MIB, Policy
from s3unzip.zip.eocd import (
    EOCD_ROOM,
    ZIP64_LEAD,
    ArchiveBytes,
    DirectoryEnd,
    find_eocd_stop,
    find_header_stop,
    read_end,
    read_eocd,
)
from s3unzip.zip.local import is_local_header, read_local_header
from s3unzip.zip.values import ONE_DISK, WRAP, Disks, Reads, reject

# The number of bytes at the beginning of a prefix to search for a whole archive.
MAX_SEARCHED = 64 * MIB
_SEARCH_CHUNK = 4 * MIB

# Matches the start of an end record whose members are on one disk and whose directory is smaller
# than 16 MiB. The expression tests these values together with the signature, because a search that
# stops at each signature in 64 MiB could take many seconds.
_END_RECORD = re.compile(rb"PK\x05\x06(?=(..)\1(?!\0\0)(..)\2...\0)", re.DOTALL)

# The first bytes of a split archive (8.5.3), and of a split archive with a single part (8.5.4).
SPANNING_SIGNATURES = (records.DESCRIPTOR_SIGNATURE, b"PK00")

# Bytes with larger values are assumed not to be a local header.
_MAX_METHOD = 99
_MAX_NAME = 4096


class DirectoryLocation(Struct, frozen=True):
    """The location of the central directory: bytes [start, stop) of the archive.

    Add `prefix` to every offset that the archive declares. `entries` is the declared number of
    headers; use it only for comparison, and never to allocate memory. Without ZIP64 records,
    `entries` can be the number of headers modulo 65,536, because several writers use 16-bit counts
    for any number of members. If the archive `is_wrapped`, offsets are modulo 2^32 (see `wrapped`).
    """

    start: int
    stop: int
    entries: int
    prefix: int
    warnings: tuple[str, ...] = ()
    disks: Disks = ONE_DISK
    is_zip64: bool = False
    is_wrapped: bool = False


def locate_directory(
    size: int, policy: Policy, disks: Disks = ONE_DISK
) -> Reads[DirectoryLocation]:
    """Find the central directory of an archive of `size` bytes.

    Nearly all bytes that the function reads are among the last `TAIL_LENGTH` bytes of the archive.
    `disks` are the files of a split archive. If the end record is on disk 0, the archive was
    written as a whole, and then cut into these files.

    Raises:
        RejectedError: the archive has no directory, a broken directory, or two directories.
    """
    archive = ArchiveBytes(size, policy)
    end = yield from read_end(archive, disks)
    _check_limits(end, policy)
    if not end.record.entries and not end.record.directory_size:
        yield from _check_empty(archive, end.stop)
    prefix = yield from _find_prefix(archive, end)
    start = end.record.directory_offset + prefix
    is_zip64 = end.locator_shift is not None  # only a ZIP64 archive contains a locator
    is_wrapped = False
    if prefix:
        is_wrapped = yield from _check_prefix(archive, prefix, end)
    if is_wrapped:  # no bytes precede the archive: the offsets only lack their upper bits
        prefix = 0
    return DirectoryLocation(
        start=start,
        stop=end.stop,
        entries=end.record.entries,
        prefix=prefix,
        warnings=tuple(archive.warnings),
        disks=end.disks,
        is_zip64=is_zip64,
        is_wrapped=is_wrapped,
    )


def _check_limits(end: DirectoryEnd, policy: Policy) -> None:
    """Refuse a directory that is out of bounds, above a limit, or too short for its headers."""
    limits = policy.limits
    entries = end.record.entries
    size = end.record.directory_size
    start = end.record.directory_offset
    if start + size > end.stop:
        reject(
            "cd-out-of-bounds",
            f"the directory ends at {start + size}, but the end record begins at {end.stop}",
            end.stop,
        )
    if size > limits.directory_size:
        reject("cd-too-large", f"{size} bytes; the limit is {limits.directory_size}", start)
    if entries > limits.members:
        reject("too-many-entries", f"{entries} declared; the limit is {limits.members}")
    if entries * records.CENTRAL_LENGTH > size:
        reject("cd-size", f"{entries} members declared in {size} bytes", start)


def _check_empty(archive: ArchiveBytes, stop: int) -> Reads[None]:
    """Refuse an empty directory if headers or a ZIP64 end record precede its end record.

    The end record begins at `stop`. Readers that search for signatures would use these headers or
    this ZIP64 end record.
    """
    start = max(0, stop - EOCD_ROOM)
    data = yield from archive.read(start, stop)
    for at in records.find_all(data, records.CENTRAL_SIGNATURE):
        if _has_central_header(data, at):
            reject(
                "cd-ambiguous",
                f"no members are declared, but a directory header is at {start + at}",
                start + at,
            )
    for at in records.find_all(data, records.ZIP64_EOCD_SIGNATURE):
        size = int.from_bytes(data[at + 4 : at + ZIP64_LEAD], "little")
        # The record is at least as long as a plain record, and does not extend past `stop`.
        if records.ZIP64_EOCD_LENGTH - ZIP64_LEAD <= size <= len(data) - at - ZIP64_LEAD:
            reject(
                "zip64-ambiguous",
                f"the end record declares no members, but a ZIP64 end record is at {start + at}",
                start + at,
            )


def _find_prefix(archive: ArchiveBytes, end: DirectoryEnd) -> Reads[int]:
    """Return the number of bytes to add to the offsets in the archive.

    Either all offsets are absolute, or all offsets exclude the bytes before the archive, such as
    the program of a self-extractor. Refuses an archive if both cases are possible, or if both are
    impossible.
    """
    declared = end.record.directory_offset
    size = end.record.directory_size
    shift = end.locator_shift
    # Bytes between the declared end of the directory and its end record; `_check_limits` has
    # refused a negative number.
    gap = end.stop - size - declared
    if shift is not None and shift != gap:
        reject(
            "zip64-locator-mismatch",
            f"the offset of the record is too low by {shift}, the offset of the directory by {gap}",
            end.stop,
        )
    if gap == 0:
        return 0
    can_have_prefix = not end.disks.is_split  # nothing precedes the parts of a split archive
    # The gap is the length of a prefix if the directory is directly before its end record. If the
    # directory is at its declared offset, the gap is an error.
    declared_signature = yield from archive.read(declared, min(declared + 4, end.stop))
    adjusted_signature = b""
    if can_have_prefix and size >= records.CENTRAL_LENGTH:
        adjusted_signature = yield from archive.read(declared + gap, declared + gap + 4)
        if declared_signature == records.CENTRAL_SIGNATURE == adjusted_signature:
            reject("cd-ambiguous", f"directories at {declared} and {declared + gap}", declared)
    # An empty directory has no signature that shows its position. A header at the declared offset
    # contradicts a size of 0.
    is_empty = size == 0 and declared_signature != records.CENTRAL_SIGNATURE
    precedes_end = is_empty or adjusted_signature == records.CENTRAL_SIGNATURE
    if not can_have_prefix or not precedes_end:
        reject(
            "gap-before-eocd",
            f"{gap} bytes between the directory and its end record",
            declared + size,
        )
    return gap  # the offsets exclude a prefix of this length


def _check_prefix(archive: ArchiveBytes, prefix: int, end: DirectoryEnd) -> Reads[bool]:
    """Return whether no bytes precede the archive, because the offsets only lack their upper bits.

    The directory begins `prefix` bytes after its declared offset. If `prefix` bytes precede the
    archive, and begin with a local header, the archive is refused: such bytes are not the program
    of a self-extractor.
    """
    # The upper bits can be missing only if `prefix` is a multiple of 4 GiB, there is no ZIP64
    # locator, and the directory is not empty.
    can_wrap = prefix % WRAP == 0 and end.locator_shift is None and end.record.directory_size > 0
    start = end.record.directory_offset + prefix
    if can_wrap and (yield from _has_wrapped_offsets(archive, start, prefix)):
        archive.warnings.append("offsets-wrapped")
        return True
    archive.warnings.append("prefix-unadjusted")
    if (yield from archive.read(0, 4)) == records.LOCAL_SIGNATURE:
        # If these bytes contain a complete archive, this check gives a clearer message.
        yield from _refuse_stacked(archive, prefix)
        reject(
            # If `can_wrap`, offsets after the first offset might still be modulo 4 GiB.
            "offsets-unproven" if can_wrap else "offsets-ambiguous",
            f"the directory is {prefix} bytes after its declared offset, "
            "and the file begins with a local header",
            0,
        )
    return False


def _has_wrapped_offsets(archive: ArchiveBytes, start: int, prefix: int) -> Reads[bool]:
    """Return whether the local header of the first member is at its declared offset.

    The directory begins at `start`, which is `prefix` bytes after its declared offset. `prefix` is
    a multiple of 2^32. Either the offsets lack their upper bits, or `prefix` bytes precede the
    archive. In the second case, the first local header is `prefix` bytes after its declared offset.
    Refuses an archive that has such a header at both offsets, or at neither offset.
    """
    header = yield from archive.read(start, start + records.CENTRAL_LENGTH)
    # The length of the name, and the offset of the local header (4.3.12).
    name_length = int.from_bytes(header[28:30], "little")
    offset = int.from_bytes(header[42:46], "little")
    name_at = start + records.CENTRAL_LENGTH
    name = yield from archive.read(name_at, name_at + name_length)
    offsets: list[int] = []
    for at in (offset, offset + prefix):
        raw = yield from archive.read(at, min(at + records.LOCAL_LENGTH + name_length, start))
        if is_local_header(raw, name):
            offsets.append(at)
    if len(offsets) != 1:
        reject(
            "offsets-unproven",
            f"{len(offsets)} of the offsets {offset} and {offset + prefix} have a local header "
            "with the name of the first member",
            offset,
        )
    return offsets == [offset]


def inspect_prefix(location: DirectoryLocation, first: int) -> Reads[list[str]]:
    """Return the warnings about the bytes before offset `first`, which is `Index.first`.

    Among these bytes, the first and the last `EOCD_ROOM` bytes are searched for a record, and the
    first `MAX_SEARCHED` bytes are searched for a whole archive. `location.prefix` is the number of
    bytes that the offsets do not include. If `location.prefix` is 0, another archive, for example
    in the program of a self-extractor, causes only a warning: readers that search from the first
    byte would extract the other archive.

    Raises:
        RejectedError: the bytes contain another archive (`stacked-archive`) or a record
            (`offsets-ambiguous`), and `location.prefix` is not 0 or this archive has no members.
            Other readers might then read the other archive.
    """
    if first == 0:
        return []
    archive = ArchiveBytes(location.start)
    first_bytes = yield from archive.read(0, min(first, EOCD_ROOM))
    if first_bytes in SPANNING_SIGNATURES and not location.prefix:  # a split archive
        return []
    hidden_at = _find_record(first_bytes, 0, first)
    if hidden_at is None and first > EOCD_ROOM:
        start = max(EOCD_ROOM, first - EOCD_ROOM)
        last_bytes = yield from archive.read(start, first)
        hidden_at = _find_record(last_bytes, start, first)
    has_no_members = first == location.start
    if location.prefix or has_no_members:
        yield from _refuse_stacked(archive, first)
        if hidden_at is not None:
            reject(
                "offsets-ambiguous",
                f"a ZIP record at {hidden_at}, among the {first} bytes before the members",
                hidden_at,
            )
    elif hidden_at is None and first > 2 * EOCD_ROOM:  # search the bytes in the middle, too
        hidden_at = yield from _find_archive(archive, 0, min(first, MAX_SEARCHED))
    if location.prefix:  # `locate_directory` has already warned about the prefix
        return []
    warnings = ["prefix-adjusted"]
    if hidden_at is not None:
        warnings.append("hidden-local-header")
    return warnings


def _refuse_stacked(archive: ArchiveBytes, stop: int) -> Reads[None]:
    """Refuse the file if another archive ends near `stop`, or in the first `MAX_SEARCHED` bytes."""
    end_at = yield from _find_archive(archive, max(0, stop - EOCD_ROOM), stop)
    if end_at is None:
        end_at = yield from _find_archive(archive, 0, min(stop, MAX_SEARCHED))
    if end_at is not None:
        reject("stacked-archive", f"the end record of another archive is at {end_at}", end_at)


def _find_archive(archive: ArchiveBytes, start: int, stop: int) -> Reads[int | None]:
    """Return the offset of the first end record that directly follows a directory, or None."""
    overlap = b""
    while start < stop:
        chunk = yield from archive.read(start, min(stop, start + _SEARCH_CHUNK))
        data = overlap + chunk
        # An end record can begin near the end of the previous chunk, and end in this chunk.
        for match in _END_RECORD.finditer(data, max(0, len(overlap) - EOCD_ROOM)):
            if _has_directory(data, match.start()):
                return start - len(overlap) + match.start()
        # A directory can be at the end of this chunk, and its end record in the next chunk.
        overlap = data[-_SEARCH_CHUNK:]
        start += len(chunk)
    return None


def _has_directory(data: bytes, at: int) -> bool:
    """Return whether the `_END_RECORD` at `at` is complete, and directly follows its directory."""
    # The size of the directory is in bytes 12 to 15, which exist: `_END_RECORD` has matched them.
    directory_at = at - int.from_bytes(data[at + 12 : at + 16], "little")
    return (
        directory_at >= 0
        and data.startswith(records.CENTRAL_SIGNATURE, directory_at)
        and _has_end_record(data, at, len(data))
        and _has_central_header(data, directory_at)
    )


def _find_record(data: bytes, base: int, stop: int) -> int | None:
    """Return the offset of the first local header in `data`, or else of the first end record.

    Returns None if `data` contains no record. `data` begins at offset `base` of a prefix that ends
    at `stop`. A signature alone is not enough, because programs that read ZIP files contain the
    signatures as constants.
    """
    for signature, has_record in (
        (records.LOCAL_SIGNATURE, _has_local_header),
        (records.EOCD_SIGNATURE, _has_end_record),
    ):
        for at in records.find_all(data, signature):
            if has_record(data, at, stop - base):
                return base + at
    return None


def _has_local_header(data: bytes, at: int, stop: int) -> bool:
    """Return whether a plausible local header begins at `at` and ends at or before `stop`."""
    if at + records.LOCAL_LENGTH > len(data):
        return False
    header = read_local_header(data, at)
    name_at = at + records.LOCAL_LENGTH
    return (
        data[at + 4] <= records.MAX_VERSION  # version needed to extract
        and header.method <= _MAX_METHOD
        and 0 < header.name_length <= _MAX_NAME
        and at + header.length <= stop
        and b"\0" not in data[name_at : name_at + header.name_length]
    )


def _has_central_header(data: bytes, at: int) -> bool:
    """Return whether there is a complete directory header at `at`."""
    return data.startswith(records.CENTRAL_SIGNATURE, at) and len(data) >= find_header_stop(
        data, at
    )


def _has_end_record(data: bytes, at: int, stop: int) -> bool:
    """Return whether a plausible end record begins at `at` and ends at or before `stop`."""
    if at + records.EOCD_LENGTH > len(data):
        return False
    end = read_eocd(data, at)
    return (
        end.disk == end.directory_disk
        and end.disk_entries == end.entries
        and find_eocd_stop(data, at) <= stop
        and end.directory_size >= end.entries * records.CENTRAL_LENGTH
        and (end.entries > 0 or end.directory_size == 0)
    )
