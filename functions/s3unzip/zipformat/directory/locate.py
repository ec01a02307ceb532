"""Find the central directory from an archive's last bytes, or refuse the archive.

Reads the end record, the ZIP64 records and the few bytes that decide between
two readings. The directory's headers are not read here but in `directory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from msgspec import Struct

from s3unzip.finding import Finding
from s3unzip.zipformat.directory.records import (
    CENTRAL_LENGTH,
    CENTRAL_SIGNATURE,
    EOCD,
    EOCD_LENGTH,
    EOCD_SIGNATURE,
    LOCAL_SIGNATURE,
    MAX_COMMENT,
    SENTINEL_16,
    SENTINEL_32,
    ZIP64_EOCD,
    ZIP64_EOCD_LENGTH,
    ZIP64_EOCD_SIGNATURE,
    ZIP64_LOCATOR,
    ZIP64_LOCATOR_LENGTH,
    ZIP64_LOCATOR_SIGNATURE,
    Eocd,
    Zip64Eocd,
    Zip64Locator,
)
from s3unzip.zipformat.errors import RejectedError
from s3unzip.zipformat.foreign import FOREIGN_HEAD, describe_foreign
from s3unzip.zipformat.ranges import ByteRange, Reads

if TYPE_CHECKING:
    from collections.abc import Generator

    from s3unzip.zipformat.policy import Policy

# The last bytes that can hold the end record, its longest comment, and the ZIP64 records.
TAIL_LENGTH = MAX_COMMENT + EOCD_LENGTH + ZIP64_LOCATOR_LENGTH + ZIP64_EOCD_LENGTH


class DirectoryLocation(Struct, frozen=True):
    """Where the central directory is, in absolute offsets of an archive of `size` bytes.

    `prefix` is what to add to every offset that the archive states. `entries`
    is the declared count: to be compared, never to allocate by. `held` is the
    end of the directory that the tail already holds: read only from `start` to
    ``stop - len(held)``, then feed `held`.
    """

    start: int
    stop: int
    entries: int
    prefix: int
    size: int
    is_zip64: bool
    held: bytes
    warnings: tuple[Finding, ...] = ()

    @property
    def missing(self) -> ByteRange:
        """The part of the directory that is still to be read; may be empty."""
        return ByteRange(self.start, self.stop - len(self.held))


class _End(NamedTuple):
    """What the end records say together; `bound` is where the first of them begins."""

    bound: int
    entries: int
    directory_size: int
    directory_offset: int
    zip64_shift: int | None


def _reject(code: str, message: str, offset: int | None = None) -> NoReturn:
    raise RejectedError(Finding(code, message, offset))


class Tail:
    """The archive's last bytes by absolute offset; it asks for what lies before them."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data = data
        self.size = size
        self.start = size - len(data)

    def read(self, start: int, stop: int) -> Reads[bytes]:
        """Return bytes [start, stop) of the archive.

        Raises:
            RejectedError: the archive gives fewer.
        """
        if start >= self.start:
            return self.data[start - self.start : stop - self.start]
        outside = ByteRange(start, min(stop, self.start))
        answer = yield outside
        if len(answer) != outside.length:
            message = f"wanted {outside.length} bytes at {start}, got {len(answer)}"
            _reject("no-eocd", message, start)
        return answer + self.data[: max(0, stop - self.start)]


def locate_directory(tail: bytes, size: int, policy: Policy) -> Reads[DirectoryLocation]:
    """Read where the central directory is; `tail` is the last bytes of `size`.

    A tail of `TAIL_LENGTH` or more is enough but for a few bytes far away.

    Raises:
        RejectedError: the archive has no index, a broken one, or two.
    """
    if len(tail) > size:
        raise ValueError(f"a tail of {len(tail)} bytes for an archive of {size}")
    view = Tail(tail, size)
    window_start = max(0, size - EOCD_LENGTH - MAX_COMMENT)
    window = yield from view.read(window_start, size)
    if EOCD_SIGNATURE not in window:
        head = yield from view.read(0, min(size, FOREIGN_HEAD))
        _reject("no-eocd", describe_foreign(head, size, len(window)))
    warnings: list[Finding] = []
    at = _find_eocd(window, window_start, policy, warnings)
    eocd = Eocd._make(EOCD.unpack_from(window, at - window_start))
    end = yield from _read_zip64(view, eocd, at, policy, warnings)
    _check_limits(end, policy)
    start, prefix = yield from _place_directory(view, end, warnings)
    if prefix and (yield from view.read(0, 4)) == LOCAL_SIGNATURE:
        _reject("stacked-archive", f"the {prefix} bytes before it start a ZIP of their own", 0)
    return DirectoryLocation(
        start=start,
        stop=end.bound,
        entries=end.entries,
        prefix=prefix,
        size=size,
        is_zip64=end.zip64_shift is not None,
        held=view.data[max(0, start - view.start) : max(0, end.bound - view.start)],
        warnings=tuple(warnings),
    )


def _find_eocd(window: bytes, base: int, policy: Policy, warnings: list[Finding]) -> int:
    """Return the absolute offset of the one end record (4.3.16) in `window`."""
    exact: list[int] = []
    last_short = last = None
    at = window.find(EOCD_SIGNATURE)
    while at >= 0:
        if at + EOCD_LENGTH <= len(window):
            stop = at + EOCD_LENGTH + int.from_bytes(window[at + 20 : at + 22], "little")
            last = at
            if stop == len(window):
                exact.append(at)
            elif stop < len(window):
                last_short = at
        at = window.find(EOCD_SIGNATURE, at + 1)
    if len(exact) > 1:
        message = f"end records at {base + exact[0]} and {base + exact[-1]} both end the archive"
        _reject("multiple-eocd", message, base + exact[0])
    if exact:
        inner = window.find(EOCD_SIGNATURE, exact[0] + 1)
        if inner >= 0:
            message = f"an end record inside the comment of the one at {base + exact[0]}"
            _reject("eocd-signature-in-comment", message, base + inner)
        return base + exact[0]
    return base + _resolve_inexact(window, base, (last_short, last), policy, warnings)


def _resolve_inexact(
    window: bytes,
    base: int,
    found: tuple[int | None, int | None],
    policy: Policy,
    warnings: list[Finding],
) -> int:
    """Choose among end records of which none ends with the archive."""
    last_short, last = found
    if last is None:
        _reject("no-eocd", f"no end record in the last {len(window)} bytes")
    if last_short is None or (last != last_short and not policy.lenient):
        _reject("eocd-comment-truncated", "the comment runs past the end", base + last)
    length = int.from_bytes(window[last_short + 20 : last_short + 22], "little")
    stop = last_short + EOCD_LENGTH + length
    message = f"{len(window) - stop} bytes after the end of the archive"
    finding = Finding("trailing-data", message, base + stop)
    if not policy.tolerates("trailing-data"):
        raise RejectedError(finding)
    warnings.append(finding)
    return last_short


def _read_zip64(
    view: Tail, eocd: Eocd, at: int, policy: Policy, warnings: list[Finding]
) -> Reads[_End]:
    """Join the end record with its ZIP64 records, if there are any (4.3.14, 4.3.15)."""
    needs = (
        SENTINEL_32 in (eocd.directory_size, eocd.directory_offset)
        or SENTINEL_16 in (eocd.disk, eocd.directory_disk)
        or SENTINEL_16 in (eocd.entries, eocd.disk_entries)
    )
    locator_at = at - ZIP64_LOCATOR_LENGTH
    raw = b""
    if locator_at >= 0:
        raw = yield from view.read(locator_at, at)
    if not raw.startswith(ZIP64_LOCATOR_SIGNATURE):
        if needs:
            yield from _explain_no_locator(view, eocd, at)
        return _end_without_zip64(eocd, at)
    locator = Zip64Locator._make(ZIP64_LOCATOR.unpack(raw))
    if not needs and eocd.directory_offset + eocd.directory_size > locator_at:
        yield from _refuse_ambiguous(view, locator, locator_at)
        return _end_without_zip64(eocd, at)
    record_at = yield from _find_zip64_record(view, locator, locator_at, policy, warnings)
    fixed = yield from view.read(record_at, record_at + ZIP64_EOCD_LENGTH)
    record = Zip64Eocd._make(ZIP64_EOCD.unpack(fixed))
    _compare_zip64(eocd, record, at)
    if locator.record_disk or locator.disks > 1:
        _reject("multi-disk", f"the locator speaks of {locator.disks} disks", locator_at)
    _check_disks(record.disk, record.directory_disk, record.disk_entries, record.entries, record_at)
    shift = record_at - locator.record_offset
    return _End(record_at, record.entries, record.directory_size, record.directory_offset, shift)


def _end_without_zip64(eocd: Eocd, at: int) -> _End:
    _check_disks(eocd.disk, eocd.directory_disk, eocd.disk_entries, eocd.entries, at)
    return _End(at, eocd.entries, eocd.directory_size, eocd.directory_offset, None)


def _refuse_ambiguous(view: Tail, locator: Zip64Locator, locator_at: int) -> Reads[None]:
    """Refuse a locator inside a directory that needs none, if it leads to a record.

    If it does not, it is the end of a name or comment that looks like one.
    """
    for place in (locator.record_offset, locator_at - ZIP64_EOCD_LENGTH):
        if 0 <= place <= locator_at - ZIP64_EOCD_LENGTH:
            raw = yield from view.read(place, place + 4)
            if raw == ZIP64_EOCD_SIGNATURE:
                message = f"a directory before {locator_at}, and a ZIP64 record at {place}"
                _reject("zip64-ambiguous", message, place)


def _explain_no_locator(view: Tail, eocd: Eocd, at: int) -> Reads[None]:
    """Refuse sentinels without a locator, naming a locator that is near but not in place.

    A count of exactly 65,535 alone is no sentinel but a count: writers use
    ZIP64 only above it. The walk will check it.
    """
    near = yield from view.read(max(0, at - 4096), at)
    if ZIP64_LOCATOR_SIGNATURE in near:
        _reject("zip64-locator-gap", "the ZIP64 locator does not end at the end record", at)
    plain = SENTINEL_32 not in (eocd.directory_size, eocd.directory_offset)
    if not (plain and eocd.disk == 0 == eocd.directory_disk and eocd.entries == SENTINEL_16):
        _reject("zip64-locator-missing", "the end record needs ZIP64, no locator before it", at)


def _check_disks(disk: int, directory_disk: int, disk_entries: int, entries: int, at: int) -> None:
    if disk or directory_disk:
        _reject("multi-disk", f"disk {disk}, directory on disk {directory_disk}", at)
    if disk_entries != entries:
        _reject("multi-disk", f"{disk_entries} of {entries} members on this disk", at)


def _find_zip64_record(
    view: Tail, locator: Zip64Locator, locator_at: int, policy: Policy, warnings: list[Finding]
) -> Generator[ByteRange, bytes, int]:
    """Return where the ZIP64 end record is: it must end at the locator.

    The locator may be short by exactly the prefix, so the record is first
    looked for right before the locator, then where the locator says.
    """
    plain_at = locator_at - ZIP64_EOCD_LENGTH
    declared = locator.record_offset
    if plain_at >= 0:
        raw = yield from view.read(plain_at, plain_at + 12)
        if raw.startswith(ZIP64_EOCD_SIGNATURE):
            _check_record_size(raw, plain_at, locator_at)
            if declared < plain_at:
                yield from _refuse_second_record(view, declared, plain_at)
            elif declared > plain_at:
                message = f"points at {declared}, the record is at {plain_at}"
                _reject("zip64-locator-mismatch", message, locator_at)
            return plain_at
    if declared + ZIP64_EOCD_LENGTH > locator_at:
        _reject("zip64-locator-mismatch", f"points at {declared}, no record there", locator_at)
    raw = yield from view.read(declared, declared + 12)
    if not raw.startswith(ZIP64_EOCD_SIGNATURE):
        _reject("zip64-locator-mismatch", f"points at {declared}, no record there", locator_at)
    _check_record_size(raw, declared, locator_at)
    length = locator_at - declared - ZIP64_EOCD_LENGTH
    finding = Finding("zip64-extensible-data", f"{length} bytes of extensible data", declared)
    if not policy.tolerates("zip64-extensible-data"):
        raise RejectedError(finding)
    warnings.append(finding)
    return declared


def _check_record_size(raw: bytes, record_at: int, locator_at: int) -> None:
    stop = record_at + 12 + int.from_bytes(raw[4:12], "little")
    if stop != locator_at:
        message = f"the record ends at {stop}, its locator begins at {locator_at}"
        _reject("zip64-record-size", message, record_at)


def _refuse_second_record(view: Tail, declared: int, record_at: int) -> Reads[None]:
    raw = yield from view.read(declared, declared + 4)
    if raw == ZIP64_EOCD_SIGNATURE:
        _reject("multiple-zip64-eocd", f"records at {declared} and {record_at}", declared)


def _compare_zip64(eocd: Eocd, record: Zip64Eocd, at: int) -> None:
    """Refuse an end record whose fields are neither sentinels nor the ZIP64 record's."""
    for name, value, sentinel, wide in (
        ("disk", eocd.disk, SENTINEL_16, record.disk),
        ("directory disk", eocd.directory_disk, SENTINEL_16, record.directory_disk),
        ("members on this disk", eocd.disk_entries, SENTINEL_16, record.disk_entries),
        ("members", eocd.entries, SENTINEL_16, record.entries),
        ("directory size", eocd.directory_size, SENTINEL_32, record.directory_size),
        ("directory offset", eocd.directory_offset, SENTINEL_32, record.directory_offset),
    ):
        if value not in (sentinel, wide):
            message = f"{name} is {value}, in the ZIP64 record {wide}"
            _reject("zip64-eocd-mismatch", message, at)


def _check_limits(end: _End, policy: Policy) -> None:
    limits = policy.limits
    if end.directory_offset + end.directory_size > end.bound:
        message = (
            f"the directory ends at {end.directory_offset + end.directory_size},"
            f" the end record begins at {end.bound}"
        )
        _reject("cd-out-of-bounds", message, end.bound)
    if end.directory_size > limits.directory_size:
        message = f"{end.directory_size} bytes, the limit is {limits.directory_size}"
        _reject("cd-too-large", message, end.directory_offset)
    if end.entries > limits.members:
        _reject("too-many-entries", f"{end.entries} declared, the limit is {limits.members}")
    if end.entries * CENTRAL_LENGTH > end.directory_size:
        message = f"{end.entries} members declared in {end.directory_size} bytes"
        _reject("cd-size", message, end.directory_offset)


def _place_directory(
    view: Tail, end: _End, warnings: list[Finding]
) -> Generator[ByteRange, bytes, tuple[int, int]]:
    """Return the directory's start and the prefix: the one reading that holds.

    Either offsets are absolute, or all are short by the bytes put before the
    archive (a self-extractor's stub), or the archive has two meanings.
    """
    declared = end.directory_offset
    prefix = end.bound - end.directory_size - declared
    shift = end.zip64_shift
    if shift is not None and shift != prefix:
        message = f"the locator is off by {shift}, the directory by {prefix}"
        _reject("zip64-locator-mismatch", message, end.bound)
    if prefix == 0:
        return declared, 0
    adjusted = declared + prefix
    at_declared = yield from view.read(declared, min(declared + 4, end.bound))
    if end.directory_size < CENTRAL_LENGTH:
        if end.directory_size == 0 and at_declared != CENTRAL_SIGNATURE:
            warnings.append(_warn_prefix(prefix))
            return adjusted, prefix
        _reject("gap-before-eocd", f"{prefix} bytes between directory and end record", declared)
    at_adjusted = yield from view.read(adjusted, adjusted + 4)
    if at_declared == CENTRAL_SIGNATURE == at_adjusted:
        _reject("cd-ambiguous", f"directories at {declared} and {adjusted}", declared)
    if at_adjusted != CENTRAL_SIGNATURE:
        message = f"{prefix} bytes between the directory and its end record"
        _reject("gap-before-eocd", message, declared + end.directory_size)
    warnings.append(_warn_prefix(prefix))
    return adjusted, prefix


def _warn_prefix(prefix: int) -> Finding:
    message = f"{prefix} bytes before the archive that its offsets do not count"
    return Finding("prefix-unadjusted", message, 0)
