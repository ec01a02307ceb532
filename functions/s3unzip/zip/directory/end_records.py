"""The end of an archive: its end record joined with its ZIP64 records (APPNOTE 4.3.14-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from s3unzip.finding import Finding
from s3unzip.zip.directory import records
from s3unzip.zip.disks import ONE_DISK, Disks
from s3unzip.zip.errors import RejectedError
from s3unzip.zip.ranges import ByteRange, Reads

if TYPE_CHECKING:
    from collections.abc import Generator

    from s3unzip.zip.policy import Policy


class EndRecords(NamedTuple):
    """The values of the end records together; `bound` is where the first record begins.

    `directory_offset` is absolute. `entries_here` is how many headers begin on the disk that has
    the record.
    """

    bound: int
    entries: int
    entries_here: int
    directory_size: int
    directory_offset: int
    zip64_shift: int | None


def reject(code: str, message: str, offset: int | None = None) -> NoReturn:
    """Refuse the archive.

    Raises:
        RejectedError: always.
    """
    raise RejectedError(Finding(code, message, offset))


class Tail:
    """The archive's last bytes by absolute offset; reads of earlier bytes are requested."""

    def __init__(self, data: bytes, size: int, disks: Disks = ONE_DISK) -> None:
        self.data = data
        self.size = size
        self.start = size - len(data)
        self.disks = disks

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
            reject("no-eocd", message, start)
        return answer + self.data[: max(0, stop - self.start)]


def find_eocd(window: bytes, base: int, policy: Policy, warnings: list[Finding]) -> int:
    """Return the absolute offset of the one end record (4.3.16) in `window`."""
    exact: list[int] = []
    last_short = last = None
    at = window.find(records.EOCD_SIGNATURE)
    while at >= 0:
        if at + records.EOCD_LENGTH <= len(window):
            stop = at + records.EOCD_LENGTH + int.from_bytes(window[at + 20 : at + 22], "little")
            last = at
            if stop == len(window):
                exact.append(at)
            elif stop < len(window):
                last_short = at
        at = window.find(records.EOCD_SIGNATURE, at + 1)
    if len(exact) > 1:
        message = f"end records at {base + exact[0]} and {base + exact[-1]} both end the archive"
        reject("multiple-eocd", message, base + exact[0])
    if exact:
        inner = window.find(records.EOCD_SIGNATURE, exact[0] + 1)
        if inner >= 0:
            message = f"an end record inside the comment of the one at {base + exact[0]}"
            reject("eocd-signature-in-comment", message, base + inner)
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
        reject("no-eocd", f"no end record in the last {len(window)} bytes")
    if last_short is None or (last != last_short and not policy.lenient):
        reject("eocd-comment-truncated", "the comment runs past the end", base + last)
    length = int.from_bytes(window[last_short + 20 : last_short + 22], "little")
    stop = last_short + records.EOCD_LENGTH + length
    message = f"{len(window) - stop} bytes after the end of the archive"
    finding = Finding("trailing-data", message, base + stop)
    if not policy.tolerates("trailing-data"):
        raise RejectedError(finding)
    warnings.append(finding)
    return last_short


def read_zip64(
    view: Tail, eocd: records.Eocd, at: int, policy: Policy, warnings: list[Finding]
) -> Reads[EndRecords]:
    """Join the end record with its ZIP64 records, if there are any (4.3.14, 4.3.15)."""
    needs = (
        records.SENTINEL_32 in (eocd.directory_size, eocd.directory_offset)
        or records.SENTINEL_16 in (eocd.disk, eocd.directory_disk)
        or records.SENTINEL_16 in (eocd.entries, eocd.disk_entries)
    )
    locator_at = at - records.ZIP64_LOCATOR_LENGTH
    raw = b""
    if locator_at >= 0:
        raw = yield from view.read(locator_at, at)
    if not raw.startswith(records.ZIP64_LOCATOR_SIGNATURE):
        if needs:
            yield from _explain_no_locator(view, eocd, at)
        return _join_values(view.disks, eocd, at, None)
    locator = records.Zip64Locator._make(records.ZIP64_LOCATOR.unpack(raw))
    declared = view.disks.place(locator.record_disk, locator.record_offset)
    directory = view.disks.place(eocd.directory_disk, eocd.directory_offset)
    if not needs and directory + eocd.directory_size > locator_at:
        yield from _refuse_ambiguous(view, declared, locator_at)
        return _join_values(view.disks, eocd, at, None)
    record_at = yield from _find_zip64_record(view, declared, locator_at, policy, warnings)
    fixed = yield from view.read(record_at, record_at + records.ZIP64_EOCD_LENGTH)
    record = records.Zip64Eocd._make(records.ZIP64_EOCD.unpack(fixed))
    _compare_zip64(view.disks, eocd, record, at)
    if locator.record_disk > view.disks.last or max(1, locator.disks) != len(view.disks.starts):
        reject("multi-disk", f"the locator speaks of {locator.disks} disks", locator_at)
    return _join_values(view.disks, record, record_at, record_at - declared)


def _join_values(
    disks: Disks, record: records.Eocd | records.Zip64Eocd, at: int, zip64_shift: int | None
) -> EndRecords:
    """Return the values of the record at `at`, once its disk numbers are checked."""
    _check_disks(disks, record, at)
    disk, offset = record.directory_disk, record.directory_offset
    if lack := disks.find_lack(disk, offset):
        reject("multi-disk", f"the directory begins on {lack}", at)
    start = disks.place(disk, offset)
    return EndRecords(
        at, record.entries, record.disk_entries, record.directory_size, start, zip64_shift
    )


def _refuse_ambiguous(view: Tail, declared: int, locator_at: int) -> Reads[None]:
    """Refuse a locator inside a directory that needs none, if it leads to a record.

    Otherwise it is the end of a name or comment that looks like a locator.
    """
    for place in (declared, locator_at - records.ZIP64_EOCD_LENGTH):
        if 0 <= place <= locator_at - records.ZIP64_EOCD_LENGTH:
            raw = yield from view.read(place, place + 4)
            if raw == records.ZIP64_EOCD_SIGNATURE:
                message = f"a directory before {locator_at}, and a ZIP64 record at {place}"
                reject("zip64-ambiguous", message, place)


def _explain_no_locator(view: Tail, eocd: records.Eocd, at: int) -> Reads[None]:
    """Refuse sentinels without a locator; report a locator that is near but misplaced.

    A count of exactly 65,535 alone is a count and no sentinel, because writers use ZIP64 only above
    it. Reading the headers will check it.
    """
    near = yield from view.read(max(0, at - 4096), at)
    if records.ZIP64_LOCATOR_SIGNATURE in near:
        reject("zip64-locator-gap", "the ZIP64 locator does not end at the end record", at)
    plain = records.SENTINEL_32 not in (eocd.directory_size, eocd.directory_offset)
    numbered = max(eocd.disk, eocd.directory_disk) <= view.disks.last
    if not (plain and numbered and eocd.entries == records.SENTINEL_16):
        reject("zip64-locator-missing", "the end record needs ZIP64, no locator before it", at)


def _check_disks(disks: Disks, record: records.Eocd | records.Zip64Eocd, at: int) -> None:
    """Check that the record at `at` names its own disk, and one for the directory before it."""
    disk, directory_disk = record.disk, record.directory_disk
    if disk != disks.disk_of(at) or directory_disk > disk:
        reject("multi-disk", f"disk {disk}, directory on disk {directory_disk}", at)
    here, entries = record.disk_entries, record.entries
    if here > entries or (directory_disk == disk and here != entries):
        reject("multi-disk", f"{here} of {entries} members on this disk", at)


def _find_zip64_record(
    view: Tail, declared: int, locator_at: int, policy: Policy, warnings: list[Finding]
) -> Generator[ByteRange, bytes, int]:
    """Return where the ZIP64 end record is: it must end at the locator.

    The locator may be short by exactly the prefix, so the record is first
    looked for right before the locator, then where the locator says.
    """
    plain_at = locator_at - records.ZIP64_EOCD_LENGTH
    if plain_at >= 0:
        raw = yield from view.read(plain_at, plain_at + 12)
        if raw.startswith(records.ZIP64_EOCD_SIGNATURE):
            _check_record_size(raw, plain_at, locator_at)
            if declared < plain_at:
                yield from _refuse_second_record(view, declared, plain_at)
            elif declared > plain_at:
                message = f"points at {declared}, the record is at {plain_at}"
                reject("zip64-locator-mismatch", message, locator_at)
            return plain_at
    if declared + records.ZIP64_EOCD_LENGTH > locator_at:
        reject("zip64-locator-mismatch", f"points at {declared}, no record there", locator_at)
    raw = yield from view.read(declared, declared + 12)
    if not raw.startswith(records.ZIP64_EOCD_SIGNATURE):
        reject("zip64-locator-mismatch", f"points at {declared}, no record there", locator_at)
    _check_record_size(raw, declared, locator_at)
    length = locator_at - declared - records.ZIP64_EOCD_LENGTH
    finding = Finding("zip64-extensible-data", f"{length} bytes of extensible data", declared)
    if not policy.tolerates("zip64-extensible-data"):
        raise RejectedError(finding)
    warnings.append(finding)
    return declared


def _check_record_size(raw: bytes, record_at: int, locator_at: int) -> None:
    stop = record_at + 12 + int.from_bytes(raw[4:12], "little")
    if stop != locator_at:
        message = f"the record ends at {stop}, its locator begins at {locator_at}"
        reject("zip64-record-size", message, record_at)


def _refuse_second_record(view: Tail, declared: int, record_at: int) -> Reads[None]:
    raw = yield from view.read(declared, declared + 4)
    if raw == records.ZIP64_EOCD_SIGNATURE:
        reject("multiple-zip64-eocd", f"records at {declared} and {record_at}", declared)


def _compare_zip64(disks: Disks, eocd: records.Eocd, record: records.Zip64Eocd, at: int) -> None:
    """Refuse an end record whose fields are neither sentinels nor the ZIP64 record's.

    The ZIP64 record may be on another disk: then it has another number and another count.
    """
    is_apart = disks.is_split and disks.disk_of(at) != record.disk
    disk, entries_here = (disks.last, 0) if is_apart else (record.disk, record.disk_entries)
    for name, value, sentinel, wide in (
        ("disk", eocd.disk, records.SENTINEL_16, disk),
        ("directory disk", eocd.directory_disk, records.SENTINEL_16, record.directory_disk),
        ("members on this disk", eocd.disk_entries, records.SENTINEL_16, entries_here),
        ("members", eocd.entries, records.SENTINEL_16, record.entries),
        ("directory size", eocd.directory_size, records.SENTINEL_32, record.directory_size),
        ("directory offset", eocd.directory_offset, records.SENTINEL_32, record.directory_offset),
    ):
        if value not in (sentinel, wide):
            message = f"{name} is {value}, in the ZIP64 record {wide}"
            reject("zip64-eocd-mismatch", message, at)
