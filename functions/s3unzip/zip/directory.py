"""Find the central directory from an archive's last bytes, or refuse the archive.

The end record (APPNOTE 4.3.16) is joined with its ZIP64 records (4.3.14, 4.3.15). Then the few
bytes are read that decide between two meanings. `inspect_prefix` checks the bytes before the first
member: self-extractors put a program there, scripts their first line. If a whole archive is there,
other readers may read it instead of this one. `index` reads the directory's headers.

The records of a split archive (APPNOTE 8) name a place by the number of a disk and an offset on it.
Here the parts follow each other, so that such a place is one absolute offset. A file that was only
cut into pieces is one disk: its records know nothing of the cuts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from s3unzip.zip import records
from s3unzip.zip.checks import MIB, Policy
from s3unzip.zip.values import WRAP, ByteRange, Member, Reads, reject

# The last bytes that can hold the end record, its longest comment, and the ZIP64 records.
TAIL_LENGTH = records.MAX_COMMENT + records.EOCD_LENGTH
TAIL_LENGTH += records.ZIP64_LOCATOR_LENGTH + records.ZIP64_EOCD_LENGTH

# Bytes to search at each end of a prefix: an archive begins with a local header near the first
# byte, or ends with its end record and a comment near the last byte.
LOOKED = records.MAX_COMMENT + records.EOCD_LENGTH
# Bytes of a prefix that are searched for a whole archive.
MAX_SEARCHED = 64 * MIB
_SEARCH_PIECE = 4 * MIB

# 8.5.3, 8.5.4: what a split archive begins with, and one that needed no second part after all.
SPANNING_SIGNATURES = (records.DESCRIPTOR_SIGNATURE, b"PK00")

# What may follow an archive: some transfers end in a line break, others fill a block with NULs.
_LINE_BREAKS = (b"\r\n", b"\n")
MAX_PADDING = MIB  # NULs that the end record is looked for behind

_ZIP64_LEAD = 12  # bytes of a ZIP64 end record that its length does not count (4.3.14.1)

_MAX_METHOD = 99
_MAX_NAME = 4096

FOREIGN_HEAD = 264  # bytes that tell the formats below; tar's mark is at 257
_TAR_MARK = 257

# First bytes of what people take for a ZIP archive, text in lower case and after spaces:
# https://www.garykessler.net/library/file_sigs.html and each format's specification.
_SIGNATURES = (
    (records.LOCAL_SIGNATURE, "a ZIP archive"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"%PDF-", "PDF"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"\x89PNG", "PNG"),
    (b"PAR1", "Parquet"),
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<?xml", "XML"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)


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

    def place(self, disk: int, offset: int) -> int:
        """Return the absolute offset of byte `offset` of `disk`; of no known disk, `offset`."""
        return offset + self.starts[disk] if disk <= self.last else offset

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


class DirectoryLocation(Struct, frozen=True):
    """Where the central directory is, in absolute offsets of an archive of `size` bytes.

    Add `prefix` to every offset in the archive. `entries` is the declared count: compare it, never
    allocate by it. `held` is the end of the directory that the tail already contains: read only
    from `start` to ``stop - len(held)``, then feed `held`. `entries_here` is how many headers begin
    on the last of the `disks` that has some of the directory. Without ZIP64 records the counts are
    modulo 65,536: several writers count with 16 bits whatever they hold. If it `is_wrapped`, so are
    offsets, modulo 2^32 (see `wrapped`).
    """

    start: int
    stop: int
    entries: int
    prefix: int
    size: int
    held: bytes
    warnings: tuple[str, ...] = ()
    disks: Disks = ONE_DISK
    entries_here: int = 0
    is_zip64: bool = False
    is_wrapped: bool = False

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
    view = _ArchiveEnd(tail, size, policy)
    window = yield from _read_end(view, size)
    window_start = size - len(window)
    at = _find_eocd(view, window, window_start)
    eocd = records.read_eocd(window, at - window_start)
    if eocd.disk:
        view.disks = disks
    end, stop, shift = yield from _read_zip64(view, eocd, at)
    _check_limits(end, stop, policy)
    if not end.entries and not end.directory_size:
        yield from _check_empty(view, stop)
    prefix = yield from _find_prefix(view, end, stop, shift)
    start = end.directory_offset + prefix
    can_wrap = prefix % WRAP == 0 and shift is None and not view.disks.is_split
    is_wrapped = prefix > 0 and can_wrap and (yield from _is_wrapped(view, start, prefix))
    if is_wrapped:
        view.warnings.append("offsets-wrapped")
        prefix = 0
    elif prefix:
        view.warnings.append("prefix-unadjusted")
        yield from _check_prefix(view, prefix, "unproven" if can_wrap else "ambiguous")
    return DirectoryLocation(
        start=start,
        stop=stop,
        entries=end.entries,
        prefix=prefix,
        size=size,
        held=tail[max(0, start - view.start) : max(0, stop - view.start)],
        warnings=tuple(view.warnings),
        disks=view.disks,
        entries_here=end.disk_entries,
        is_zip64=shift is not None,
        is_wrapped=is_wrapped,
    )


class _ArchiveEnd:
    """The archive's last bytes by absolute offset; reads of earlier bytes are requested."""

    def __init__(self, data: bytes, size: int, policy: Policy | None = None) -> None:
        self.data, self.start = data, size - len(data)
        self.policy = policy or Policy()
        self.disks = ONE_DISK
        self.warnings: list[str] = []

    def read(self, start: int, stop: int) -> Reads[bytes]:
        """Return bytes [start, stop) of the archive, none where there can be none.

        Refuses an archive that gives fewer.
        """
        if start < 0:
            return b""
        if start >= self.start:
            return self.data[start - self.start : stop - self.start]
        outside = ByteRange(start, min(stop, self.start))
        answer = yield outside
        if len(answer) != outside.length:
            message = f"wanted {outside.length} bytes at {start}, got {len(answer)}"
            reject("no-eocd", message, start)
        return answer + self.data[: max(0, stop - self.start)]

    def find(self, code: str, message: str, offset: int) -> None:
        """Reject the archive, or note a warning."""
        if not self.policy.tolerates(code):
            reject(code, message, offset)
        self.warnings.append(code)


def _read_end(view: _ArchiveEnd, size: int) -> Reads[bytes]:
    """Return the last bytes of an archive, which have an end record; padding is looked behind."""
    window = yield from view.read(max(0, size - LOOKED), size)
    if not window.strip(b"\0"):
        window = yield from view.read(max(0, size - LOOKED - MAX_PADDING), size)
    if records.EOCD_SIGNATURE not in window:
        head = yield from view.read(0, min(size, FOREIGN_HEAD))
        reject("no-eocd", describe_foreign(head, size, len(window)))
    return window


def _check_empty(view: _ArchiveEnd, stop: int) -> Reads[None]:
    """Refuse an empty directory after what looks like another: readers that search would use it."""
    start = max(0, stop - LOOKED)
    before = yield from view.read(start, stop)
    for at in records.find_all(before, records.CENTRAL_SIGNATURE):
        if _is_central(before, at):
            message = f"no members declared, and a directory header at {start + at}"
            reject("cd-ambiguous", message, start + at)
    for at in records.find_all(before, records.ZIP64_EOCD_SIGNATURE):
        size = int.from_bytes(before[at + 4 : at + 12], "little")
        if records.ZIP64_EOCD_LENGTH - 12 <= size <= len(before) - at - 12:
            message = f"an end record without members, and a ZIP64 end record at {start + at}"
            reject("zip64-ambiguous", message, start + at)


def _check_limits(end: records.EndRecord, stop: int, policy: Policy) -> None:
    _, _, _, entries, size, start = end
    limits = policy.limits
    if start + size > stop:
        message = f"the directory ends at {start + size}, the end record begins at {stop}"
        reject("cd-out-of-bounds", message, stop)
    if size > limits.directory_size:
        reject("cd-too-large", f"{size} bytes, the limit is {limits.directory_size}", start)
    if entries > limits.members:
        reject("too-many-entries", f"{entries} declared, the limit is {limits.members}")
    if entries * records.CENTRAL_LENGTH > size:
        reject("cd-size", f"{entries} members declared in {size} bytes", start)


def _find_prefix(
    view: _ArchiveEnd, end: records.EndRecord, stop: int, shift: int | None
) -> Reads[int]:
    """Return the bytes that offsets lack, if exactly one interpretation is valid.

    Either offsets are absolute, or all of them lack the bytes before the archive (the stub of a
    self-extractor), or the archive has two meanings.
    """
    declared, size = end.directory_offset, end.directory_size
    prefix = stop - size - declared
    if shift is not None and shift != prefix:
        message = f"the locator is off by {shift}, the directory by {prefix}"
        reject("zip64-locator-mismatch", message, stop)
    if prefix == 0:
        return 0
    at_declared = yield from view.read(declared, min(declared + 4, stop))
    is_empty = size == 0 and at_declared != records.CENTRAL_SIGNATURE
    at_adjusted = b""
    if size >= records.CENTRAL_LENGTH and not view.disks.is_split:
        at_adjusted = yield from view.read(declared + prefix, declared + prefix + 4)
        if at_declared == records.CENTRAL_SIGNATURE == at_adjusted:
            reject("cd-ambiguous", f"directories at {declared} and {declared + prefix}", declared)
    if view.disks.is_split or not (is_empty or at_adjusted == records.CENTRAL_SIGNATURE):
        message = f"{prefix} bytes between the directory and its end record"
        reject("gap-before-eocd", message, declared + size)
    return prefix


def _check_prefix(view: _ArchiveEnd, prefix: int, doubt: str) -> Reads[None]:
    """Refuse offsets that lack `prefix` bytes if these begin as an archive does."""
    begin = yield from view.read(0, 4)
    if begin == records.LOCAL_SIGNATURE:
        yield from _refuse_stacked(view, prefix)
        message = f"the directory is {prefix} bytes after its declared offset"
        reject(f"offsets-{doubt}", f"{message}, and the file begins with a local header", 0)


def _is_wrapped(view: _ArchiveEnd, start: int, prefix: int) -> Reads[bool]:
    """Return whether the offsets are modulo 2^32, and lack no prefix, by the first local header.

    `prefix` is a multiple of 2^32, the directory begins at `start`.
    """
    header = yield from view.read(start, start + records.CENTRAL_LENGTH)
    if len(header) < records.CENTRAL_LENGTH:
        return False
    name_length = int.from_bytes(header[28:30], "little")
    offset = int.from_bytes(header[42:46], "little")
    name_at = start + records.CENTRAL_LENGTH
    name = yield from view.read(name_at, name_at + name_length)
    places: list[int] = []
    for at in (offset, offset + prefix):
        raw = yield from view.read(at, min(at + records.LOCAL_LENGTH + name_length, start))
        if records.is_local_header(raw, name):
            places.append(at)
    if len(places) != 1:
        message = f"{len(places)} of 2 places have the first local header, {prefix} bytes apart"
        reject("offsets-unproven", message, offset)
    return places == [offset]


def _refuse_stacked(view: _ArchiveEnd, stop: int) -> Reads[None]:
    """Refuse a whole archive before offset `stop`; it ends there, or in the first bytes."""
    found = yield from _find_inside(view, max(0, stop - LOOKED), stop)
    if found is None:
        found = yield from _find_inside(view, 0, min(stop, MAX_SEARCHED))
    if found is not None:
        reject("stacked-archive", f"its end record is at {found}, after its directory", found)


def _find_eocd(view: _ArchiveEnd, window: bytes, base: int) -> int:
    """Return the absolute offset of the one end record (4.3.16) in `window`, which is at `base`."""
    found = list(_find_ends(window))
    padding = _find_padding(window)
    end = max((stop for _, stop in found if padding <= stop <= len(window)), default=None)
    exact = [base + at for at, stop in found if stop == end]
    if len(exact) > 1:
        message = f"end records at {exact[0]} and {exact[-1]} both end the archive"
        reject("multiple-eocd", message, exact[0])
    if exact:
        inner = window.find(records.EOCD_SIGNATURE, exact[0] - base + 1)
        if inner >= 0:
            message = f"an end record inside the comment of the one at {exact[0]}"
            reject("eocd-signature-in-comment", message, base + inner)
        if end != len(window):
            view.warnings.append("trailing-padding")
        return exact[0]
    if not found:
        reject("no-eocd", f"no end record in the last {len(window)} bytes")
    short = [(at, stop) for at, stop in found if stop < len(window)]
    last, _ = found[-1]
    if not short or (last != short[-1][0] and not view.policy.lenient):
        reject("eocd-comment-truncated", "the comment runs past the end", base + last)
    at, stop = short[-1]
    message = f"{len(window) - stop} bytes after the end of the archive"
    view.find("trailing-data", message, base + stop)
    return base + at


def _find_padding(window: bytes) -> int:
    """Return where the NULs or the one line break begin that `window` ends in."""
    for line_break in _LINE_BREAKS:
        if window.endswith(line_break):
            return len(window) - len(line_break)
    return len(window.rstrip(b"\0"))


def _find_ends(window: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each end record begins, and where it ends with its comment."""
    for at in records.find_all(window, records.EOCD_SIGNATURE):
        if at + records.EOCD_LENGTH <= len(window):
            yield at, records.find_eocd_stop(window, at)


def _read_zip64(
    view: _ArchiveEnd, eocd: records.EndRecord, at: int
) -> Reads[tuple[records.EndRecord, int, int | None]]:
    """Join the end record at `at` with its ZIP64 records, if there are any (4.3.14, 4.3.15).

    Returns the record whose values count, its directory's offset absolute; where the directory must
    end; and how far the locator is off, None without one.
    """
    needs = records.SENTINEL_32 in (eocd.directory_size, eocd.directory_offset)
    needs |= records.SENTINEL_16 in eocd[:4]
    locator_at = at - records.ZIP64_LOCATOR_LENGTH
    raw = yield from view.read(locator_at, at)
    if not raw.startswith(records.ZIP64_LOCATOR_SIGNATURE):
        if needs:
            yield from _explain_no_locator(view, eocd, at)
        return _place_directory(view.disks, eocd, at), at, None
    locator_disk, locator_offset, count = records.ZIP64_LOCATOR.unpack(raw)
    declared = view.disks.place(locator_disk, locator_offset)
    directory = view.disks.place(eocd.directory_disk, eocd.directory_offset)
    if not needs and directory + eocd.directory_size > locator_at:
        yield from _refuse_ambiguous(view, declared, locator_at)
        return _place_directory(view.disks, eocd, at), at, None
    record_at = yield from _find_zip64_record(view, declared, locator_at)
    fixed = yield from view.read(record_at, record_at + records.ZIP64_EOCD_LENGTH)
    record = records.read_zip64_eocd(fixed)
    _compare_zip64(view.disks, eocd, record, at)
    if locator_disk > view.disks.last or max(1, count) != len(view.disks.starts):
        reject("multi-disk", f"the locator speaks of {count} disks", locator_at)
    return _place_directory(view.disks, record, record_at), record_at, record_at - declared


def _place_directory(disks: Disks, record: records.EndRecord, at: int) -> records.EndRecord:
    """Return the record at `at` with an absolute offset, once its disk numbers are checked.

    It must name its own disk, and one for the directory before it.
    """
    disk, directory_disk, here, entries, _, offset = record
    if disk != disks.disk_of(at) or directory_disk > disk:
        reject("multi-disk", f"disk {disk}, directory on disk {directory_disk}", at)
    if here > entries or (directory_disk == disk and here != entries):
        code = "multi-disk" if disk else "count-mismatch"
        reject(code, f"{here} of {entries} members on disk {disk}", at)
    if lack := disks.find_lack(directory_disk, offset):
        reject("multi-disk", f"the directory begins on {lack}", at)
    return record._replace(directory_offset=disks.place(directory_disk, offset))


def _refuse_ambiguous(view: _ArchiveEnd, declared: int, locator_at: int) -> Reads[None]:
    """Refuse a locator inside a directory that needs none, if it leads to a record.

    Otherwise it is the end of a name or comment that looks like a locator.
    """
    for place in (declared, locator_at - records.ZIP64_EOCD_LENGTH):
        if 0 <= place <= locator_at - records.ZIP64_EOCD_LENGTH:
            raw = yield from view.read(place, place + 4)
            if raw == records.ZIP64_EOCD_SIGNATURE:
                message = f"a directory before {locator_at}, and a ZIP64 record at {place}"
                reject("zip64-ambiguous", message, place)


def _explain_no_locator(view: _ArchiveEnd, eocd: records.EndRecord, at: int) -> Reads[None]:
    """Refuse sentinels without a locator; report a locator that is near but misplaced.

    A count of exactly 65,535 is a count and no sentinel, because writers use ZIP64 only above it:
    reading the headers will check it. So is the offset, if the directory can be there.
    """
    near = yield from view.read(max(0, at - 4096), at)
    if records.ZIP64_LOCATOR_SIGNATURE in near:
        reject("zip64-locator-gap", "the ZIP64 locator does not end at the end record", at)
    start = (at - eocd.directory_size) % WRAP
    lacks_offset = records.SENTINEL_32 == eocd.directory_offset != start
    lacks_disk = max(eocd.disk, eocd.directory_disk) > view.disks.last
    if lacks_offset or lacks_disk or eocd.directory_size == records.SENTINEL_32:
        reject("zip64-locator-missing", "the end record needs ZIP64, no locator before it", at)


def _find_zip64_record(view: _ArchiveEnd, declared: int, locator_at: int) -> Reads[int]:
    """Return where the ZIP64 end record is: it must end at the locator.

    The locator may be short by exactly the prefix, so the record is first
    looked for right before the locator, then where the locator says.
    """
    plain_at = record_at = locator_at - records.ZIP64_EOCD_LENGTH
    raw = yield from view.read(plain_at, plain_at + 12)
    if declared <= plain_at and not raw.startswith(records.ZIP64_EOCD_SIGNATURE):
        record_at = declared
        raw = yield from view.read(declared, declared + 12)
    if not raw.startswith(records.ZIP64_EOCD_SIGNATURE):
        reject("zip64-locator-mismatch", f"points at {declared}, no record there", locator_at)
    stop = record_at + 12 + int.from_bytes(raw[4:12], "little")
    if record_at == plain_at and stop == locator_at + _ZIP64_LEAD:  # libgsf
        view.warnings.append("zip64-record-length")
    elif stop != locator_at:
        message = f"the record ends at {stop}, its locator begins at {locator_at}"
        reject("zip64-record-size", message, record_at)
    if declared > plain_at:
        message = f"points at {declared}, the record is at {plain_at}"
        reject("zip64-locator-mismatch", message, locator_at)
    if record_at < plain_at:
        yield from _refuse_encrypted(view, record_at, plain_at)
        message = f"{plain_at - declared} bytes of extensible data"
        view.find("zip64-extensible-data", message, declared)
    elif declared < plain_at:
        raw = yield from view.read(declared, declared + 4)
        if raw == records.ZIP64_EOCD_SIGNATURE:
            message = f"records at {declared} and {plain_at}"
            reject("multiple-zip64-eocd", message, declared)
    return record_at


def _refuse_encrypted(view: _ArchiveEnd, record_at: int, plain_at: int) -> Reads[None]:
    """Refuse an encrypted central directory (7.3.4), of which nothing can be read.

    The extensible data of other records may look alike, so the directory must not begin as one.
    """
    if plain_at - record_at < records.ENCRYPTION_LENGTH:
        return
    raw = yield from view.read(record_at, record_at + records.ENCRYPTED_EOCD.size)
    offset, algorithm = records.ENCRYPTED_EOCD.unpack(raw)
    if algorithm not in records.ALGORITHMS or offset >= record_at:
        return
    begin = yield from view.read(offset, min(offset + 4, record_at))
    if begin != records.CENTRAL_SIGNATURE:
        reject("encrypted-directory", f"with algorithm 0x{algorithm:04X}", offset)


def _compare_zip64(
    disks: Disks, eocd: records.EndRecord, record: records.EndRecord, at: int
) -> None:
    """Refuse an end record whose fields are neither sentinels nor the ZIP64 record's.

    The ZIP64 record may be on another disk: then it has another number and another count.
    """
    if disks.is_split and disks.disk_of(at) != record.disk:
        record = record._replace(disk=disks.last, disk_entries=0)
    names = (
        "disk", "directory disk", "members on this disk", "members", "directory size",
        "directory offset",
    )  # fmt: skip
    sentinels = (records.SENTINEL_16,) * 4 + (records.SENTINEL_32,) * 2
    for name, value, sentinel, wide in zip(names, eocd, sentinels, record, strict=True):
        if value not in (sentinel, wide):
            message = f"{name} is {value}, in the ZIP64 record {wide}"
            reject("zip64-eocd-mismatch", message, at)


def inspect_prefix(tail: bytes, location: DirectoryLocation, first: int) -> Reads[list[str]]:
    """Return the warnings about the bytes before offset `first`, where the first listed item is.

    `tail` is the archive's last bytes. If there are such bytes, two ranges of `LOOKED` bytes are
    searched for a record, and the first `MAX_SEARCHED` bytes for a whole archive. Offsets that
    count the prefix have one meaning, so an archive in a self-extractor's program is only a
    warning: a reader that searches from the first byte extracts that one.

    Raises:
        RejectedError: `stacked-archive`: there is another archive, and this one's
            offsets do not count it, or this one has no members of its own.
    """
    if first == 0:
        return []
    view = _ArchiveEnd(tail, location.size)
    head = yield from view.read(0, min(first, LOOKED))
    if head in SPANNING_SIGNATURES and not location.prefix:
        return []
    found = _find_archive(head, 0, first)
    if found is None and first > LOOKED:
        start = max(LOOKED, first - LOOKED)
        foot = yield from view.read(start, first)
        found = _find_archive(foot, start, first)
    if location.prefix or first == location.start:
        yield from _refuse_stacked(view, first)
        if found is not None:
            message = f"of the {first} bytes before the members, those from {found} on"
            reject("offsets-ambiguous", message, found)
    elif found is None and first > 2 * LOOKED:
        found = yield from _find_inside(view, 0, min(first, MAX_SEARCHED))
    if location.prefix:
        return []  # said when the directory was found
    return ["prefix-adjusted"] if found is None else ["prefix-adjusted", "hidden-local-header"]


def _find_inside(view: _ArchiveEnd, start: int, stop: int) -> Reads[int | None]:
    """Return where an end record is whose directory lies right before it, None without one."""
    held = b""
    while start < stop:
        piece = yield from view.read(start, min(stop, start + _SEARCH_PIECE))
        data, base = held + piece, start - len(held)
        for at in records.find_all(data, records.EOCD_SIGNATURE):
            if _is_end(data, at, len(data)):
                end = records.read_eocd(data, at)
                directory = at - end.directory_size
                if end.entries and directory >= 0 and _is_central(data, directory):
                    return base + at
        held, start = data[-_SEARCH_PIECE:], start + len(piece)
    return None


def _find_archive(data: bytes, base: int, stop: int) -> int | None:
    """Return the offset of the first local header or end record in `data`, None without one.

    `data` begins at offset `base` of a prefix that ends at `stop`. A signature alone is not enough:
    programs that read ZIPs contain it as a constant.
    """
    for signature, is_record in (
        (records.LOCAL_SIGNATURE, _is_local),
        (records.EOCD_SIGNATURE, _is_end),
    ):
        for at in records.find_all(data, signature):
            if is_record(data, at, stop - base):
                return base + at
    return None


def _is_local(data: bytes, at: int, stop: int) -> bool:
    if at + records.LOCAL_LENGTH > len(data):
        return False
    _, _, method, *_, name_length, extra_length = records.LOCAL.unpack_from(data, at)
    name_at = at + records.LOCAL_LENGTH
    return (
        data[at + 4] <= records.MAX_VERSION
        and method <= _MAX_METHOD
        and 0 < name_length <= _MAX_NAME
        and name_at + name_length + extra_length <= stop
        and b"\0" not in data[name_at : name_at + name_length]
    )


def _is_central(data: bytes, at: int) -> bool:
    """Return whether a whole directory header lies at `at`."""
    lengths = (int.from_bytes(data[at + n : at + n + 2], "little") for n in (28, 30, 32))
    stop = at + records.CENTRAL_LENGTH + sum(lengths)
    return data.startswith(records.CENTRAL_SIGNATURE, at) and stop <= len(data)


def _is_end(data: bytes, at: int, stop: int) -> bool:
    if at + records.EOCD_LENGTH > len(data):
        return False
    end = records.read_eocd(data, at)
    return (
        end.disk == end.directory_disk
        and end.disk_entries == end.entries
        and records.find_eocd_stop(data, at) <= stop
        and end.directory_size >= end.entries * records.CENTRAL_LENGTH
        and (end.entries > 0 or end.directory_size == 0)
    )


def describe_foreign(head: bytes, size: int, searched: int) -> str:
    """Return in words why a file of `size` bytes is no whole ZIP archive.

    `head` is its first `FOREIGN_HEAD` bytes, or all of a smaller file; `searched` is how many bytes
    at its end hold no end record.
    """
    if size == 0:
        return "the file is empty"
    place = "it holds" if searched == size else f"its last {searched:,} bytes hold"
    text = head.lstrip()[:15].lower()
    known = (name for mark, name in _SIGNATURES if head.startswith(mark) or text.startswith(mark))
    other = "text" if min(head) >= ord("\t") else "no format that s3unzip knows"
    guess = "tar" if head[_TAR_MARK:].startswith(b"ustar") else next(known, other)
    return f"{place} no end record; the first bytes look like {guess}"


def count_disks(tail: bytes) -> int:
    """Return how many disks the end record in an archive's last bytes declares.

    Returns 1 if there is no end record: `locate_directory` explains it.
    """
    window = tail[-(records.EOCD_LENGTH + records.MAX_COMMENT) :]
    ends = list(_find_ends(window))
    if not ends:
        return 1
    exact = [end for end in ends if end[1] == len(window)]
    last, _ = max(exact or ends)  # the record that ends with the archive, else the last one
    eocd = records.read_eocd(window, last)
    if eocd.disk != records.SENTINEL_16:
        return eocd.disk + 1
    return _count_zip64_disks(tail[: len(tail) - len(window) + last])


def _count_zip64_disks(before: bytes) -> int:
    """Return how many disks the ZIP64 locator declares that `before` ends in; 1 without one."""
    locator = before[-records.ZIP64_LOCATOR_LENGTH :]
    if len(locator) < records.ZIP64_LOCATOR_LENGTH:
        return 1
    if not locator.startswith(records.ZIP64_LOCATOR_SIGNATURE):
        return 1
    count: int = records.ZIP64_LOCATOR.unpack(locator)[2]
    return max(1, count)


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
        place = bisect_left(members, start, key=attrgetter("offset"))
        if place < len(members) and disks.disk_of(members[place].offset) == disk:
            yield Boundary(disk, members[place], members[place - 1] if place else None)
