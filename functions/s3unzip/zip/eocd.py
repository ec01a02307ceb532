"""The end record of an archive (APPNOTE 4.3.16), joined with its ZIP64 records (4.3.14, 4.3.15).

Exactly one end record must be at the end of the archive. If the values in the ZIP64 record and in
the end record differ, the archive can be read in two ways and is refused.
"""

from struct import Struct
from typing import NamedTuple

from s3unzip.zip.checks import MIB, Policy
from s3unzip.zip.records import (
    CENTRAL_LENGTH,
    CENTRAL_SIGNATURE,
    EOCD_LENGTH,
    EOCD_SIGNATURE,
    LOCAL_SIGNATURE,
    MAX_COMMENT,
    SENTINEL_16,
    SENTINEL_32,
    ZIP64_EOCD_LENGTH,
    ZIP64_EOCD_SIGNATURE,
    ZIP64_LOCATOR_LENGTH,
    ZIP64_LOCATOR_SIGNATURE,
    find_all,
)
from s3unzip.zip.values import ONE_DISK, WRAP, ByteRange, Disks, Reads, reject

# The maximum size of an end record, including its comment.
EOCD_ROOM = MAX_COMMENT + EOCD_LENGTH
# The maximum length of an end record and its ZIP64 records, without extensible data.
TAIL_LENGTH = EOCD_ROOM + ZIP64_LOCATOR_LENGTH + ZIP64_EOCD_LENGTH

# The fields from the number of the disk to the offset of the directory (4.3.16 and 4.3.14).
_EOCD = Struct("<4xHHHHII")
_ZIP64_EOCD = Struct("<16xIIQQQQ")
# The disk and the offset of the ZIP64 end record, and the number of disks (4.3.15).
_ZIP64_LOCATOR = Struct("<4xIQI")
# Number of bytes at the beginning of a ZIP64 end record that are not included in the length that
# the record declares (4.3.14.1).
ZIP64_LEAD = 12
# The ZIP64 end record of an encrypted directory contains the offset of the directory and, in its
# extensible data, the encryption algorithm (7.3.4).
_ENCRYPTED_EOCD = Struct("<48xQ18xH")
_MIN_ENCRYPTION_LENGTH = 28  # minimum length of the extensible data in such a record, in bytes
_ALGORITHMS = range(0x6601, 0x6802)  # ids of encryption algorithms (7.2.3.2)

_MAX_PADDING = MIB  # maximum number of trailing NULs to skip when searching for an end record
_LOCATOR_SEARCH = 4_096  # number of bytes before the end record to search for a misplaced locator

_OLE = "an old or encrypted Office document (OLE)"
_FORMAT_LENGTH = 264  # number of leading bytes that are enough to identify a format

# The first bytes of files that people mistake for ZIP archives. Text is compared in lower case and
# without leading whitespace. Sources: https://www.garykessler.net/library/file_sigs.html and the
# specification of each format.
_SIGNATURES = (
    (LOCAL_SIGNATURE, "a ZIP archive"),
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
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<?xml", "XML"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)
# The formats of files that can contain a ZIP archive as one of many parts.
_CONTAINERS = ("tar", "gzip", "bzip2", "xz", "zstd", "7-Zip", "RAR", "Parquet", _OLE)


class EndRecord(NamedTuple):
    """The values in an end record (4.3.16) or in a ZIP64 end record (4.3.14)."""

    disk: int
    directory_disk: int
    disk_entries: int
    entries: int
    directory_size: int
    directory_offset: int


_SENTINELS = EndRecord(
    disk=SENTINEL_16,
    directory_disk=SENTINEL_16,
    disk_entries=SENTINEL_16,
    entries=SENTINEL_16,
    directory_size=SENTINEL_32,
    directory_offset=SENTINEL_32,
)
# The names of the fields of an end record, as used in messages.
_FIELD_NAMES = (
    "disk", "directory disk", "members on this disk", "members", "directory size",
    "directory offset",
)  # fmt: skip


def read_eocd(data: bytes, at: int) -> EndRecord:
    """Return the end record at `at`."""
    return EndRecord._make(_EOCD.unpack_from(data, at))


def find_eocd_stop(data: bytes, at: int) -> int:
    """Return the position at which the comment of the end record at `at` ends."""
    return at + EOCD_LENGTH + int.from_bytes(data[at + 20 : at + 22], "little")


def find_header_stop(data: bytes, at: int) -> int:
    """Return the position at which the directory header at `at` ends."""
    # The lengths of the name, the extra field and the comment (4.3.12).
    fields = (data[at + start : at + start + 2] for start in (28, 30, 32))
    return at + CENTRAL_LENGTH + sum(int.from_bytes(field, "little") for field in fields)


class DirectoryEnd(NamedTuple):
    """The end record or the ZIP64 end record of an archive; its directory must end at `stop`.

    The offset of the directory is absolute. `locator_shift` is the number of bytes by which the
    offset in the ZIP64 locator is too low, or None if there is no locator.
    """

    record: EndRecord
    stop: int
    disks: Disks
    locator_shift: int | None = None


class ArchiveBytes:
    """Reads an archive of `size` bytes by absolute offsets."""

    def __init__(self, size: int, policy: Policy | None = None) -> None:
        self.size = size
        self.policy = policy or Policy()
        self.warnings: list[str] = []

    def read(self, start: int, stop: int) -> Reads[bytes]:
        """Return the bytes of [start, stop) within the archive, or b"" if `start` is negative.

        Refuses the archive if fewer bytes than requested are received.
        """
        want = ByteRange(start, min(stop, self.size))
        if start < 0 or want.length <= 0:
            return b""
        answer = yield want
        if len(answer) != want.length:
            reject("no-eocd", f"received {len(answer)} of {want.length} bytes at {start}", start)
        return answer

    def warn_or_refuse(self, code: str, message: str, offset: int) -> None:
        """Add a warning, or refuse the archive."""
        if not self.policy.tolerates(code):
            reject(code, message, offset)
        self.warnings.append(code)


def read_end(archive: ArchiveBytes, disks: Disks) -> Reads[DirectoryEnd]:
    """Find the end record and its ZIP64 records.

    If the end record is on disk 0, the archive was written as a whole, and then cut into `disks`.

    Raises:
        RejectedError: there is no end record, there are several, or the records disagree.
    """
    window = yield from _read_window(archive)
    at = yield from _find_eocd(archive, window)
    eocd = read_eocd(window, at)
    if not eocd.disk:
        disks = ONE_DISK
    return (yield from _join_zip64(archive, disks, eocd, archive.size - len(window) + at))


def _read_window(archive: ArchiveBytes) -> Reads[bytes]:
    """Return the last `EOCD_ROOM` bytes of an archive; refuse an archive without an end record.

    If all of these bytes are NULs, `_MAX_PADDING` more bytes are returned.
    """
    size = archive.size
    window = yield from archive.read(max(0, size - EOCD_ROOM), size)
    if not window.strip(b"\0"):
        window = yield from archive.read(max(0, size - EOCD_ROOM - _MAX_PADDING), size)
    if EOCD_SIGNATURE not in window:
        if not size:
            reject("no-eocd", "the file is empty")
        name = yield from _guess_format(archive)
        searched = f"its last {len(window):,} bytes hold"
        if len(window) == size:
            searched = "it holds"
        reject(
            "no-eocd",
            f"{searched} no end record; the first bytes look like {name}",
        )
    return window


def _find_eocd(archive: ArchiveBytes, window: bytes) -> Reads[int]:
    """Return the position of the only end record in `window`, the last bytes of the archive."""
    base = archive.size - len(window)
    stops = _find_stops(window)  # by position of the record
    padding_at = _find_padding(window)
    # The stops of the end records that end with the archive, or that only padding follows.
    final_stops = [stop for stop in stops.values() if padding_at <= stop <= len(window)]
    if not final_stops:
        return (yield from _find_complete_eocd(archive, window, stops))
    # Use the record that ends last. A second record that ends at the same byte, and a record in the
    # comment, are refused below. A record that begins and ends earlier is ignored.
    last_stop = max(final_stops)
    positions = [at for at, stop in stops.items() if stop == last_stop]
    offset = base + positions[0]
    if len(positions) > 1:
        reject(
            "multiple-eocd",
            f"end records at {offset} and {base + positions[-1]} both end the archive",
            offset,
        )
    # The comment extends to the end or to the padding, so any later signature is in the comment.
    inner_at = window.find(EOCD_SIGNATURE, positions[0] + 1)
    if inner_at >= 0:
        reject(
            "eocd-signature-in-comment",
            f"an end record inside the comment of the end record at {offset}",
            base + inner_at,
        )
    if last_stop != len(window):
        yield from _check_padding(archive, base + last_stop)
    return positions[0]


def _check_padding(archive: ArchiveBytes, offset: int) -> Reads[None]:
    container = yield from _describe_container(archive)
    if container:  # for example a tar file, which ends with NULs
        archive.warn_or_refuse("trailing-data", f"padding{container}", offset)
    archive.warnings.append("trailing-padding")


def _find_complete_eocd(archive: ArchiveBytes, window: bytes, stops: dict[int, int]) -> Reads[int]:
    """Return the position in `window` of the last complete end record, which other bytes follow.

    `stops` maps the position of each end record, in ascending order, to the end of its comment. If
    an incomplete end record follows, the archive is refused, unless the policy is lenient.
    """
    base = archive.size - len(window)
    if not stops:
        reject("no-eocd", f"no end record in the last {len(window)} bytes")
    last = max(stops)
    # The caller has already handled end records whose last byte is the last byte of the window.
    complete = [at for at, stop in stops.items() if stop < len(window)]
    if not complete or (last not in complete and not archive.policy.lenient):
        reject("eocd-comment-truncated", "the comment extends past the end", base + last)
    stop = stops[complete[-1]]
    message = f"{len(window) - stop} bytes after the end of the archive"
    message += yield from _describe_container(archive)
    archive.warn_or_refuse("trailing-data", message, base + stop)
    return complete[-1]


def _describe_container(archive: ArchiveBytes) -> Reads[str]:
    """Return the end of a message about a file that contains a ZIP archive, such as a tar file.

    Returns "" if the format of the file is not one of `_CONTAINERS`.
    """
    name = yield from _guess_format(archive)
    return f"; the first bytes look like {name}" if name in _CONTAINERS else ""


def _find_padding(window: bytes) -> int:
    """Return the start of the NULs, or of the single line break, at the end of `window`.

    Some file transfers add a line break to a file, and others fill its last block with NULs.
    """
    for line_break in (b"\r\n", b"\n"):
        if window.endswith(line_break):
            return len(window) - len(line_break)
    return len(window.rstrip(b"\0"))


def _find_stops(window: bytes) -> dict[int, int]:
    """Return the position at which each end record ends, by the position at which it begins."""
    return {
        at: find_eocd_stop(window, at)
        for at in find_all(window, EOCD_SIGNATURE)
        if at + EOCD_LENGTH <= len(window)
    }


def _join_zip64(
    archive: ArchiveBytes, disks: Disks, eocd: EndRecord, at: int
) -> Reads[DirectoryEnd]:
    """Join the end record at `at` with its ZIP64 records, if there are any (4.3.14, 4.3.15).

    If there is no locator, or if bytes only look like a locator, only the end record is used.
    """
    # A sentinel means that the actual value is in the ZIP64 record.
    needs_zip64 = SENTINEL_32 in (eocd.directory_size, eocd.directory_offset)
    needs_zip64 |= SENTINEL_16 in eocd[:4]  # the disks and the counts
    locator_at = at - ZIP64_LOCATOR_LENGTH
    raw = yield from archive.read(locator_at, at)
    if not raw.startswith(ZIP64_LOCATOR_SIGNATURE):
        if needs_zip64:
            yield from _check_without_zip64(archive, disks, eocd, at)
        return DirectoryEnd(_place_directory(disks, eocd, at), at, disks)
    locator_disk, locator_offset, disk_count = _ZIP64_LOCATOR.unpack(raw)
    declared_at = disks.absolute(locator_disk, locator_offset)  # offset of the ZIP64 end record
    directory_start = disks.absolute(eocd.directory_disk, eocd.directory_offset)
    # If the directory needs no ZIP64 record and overlaps the locator, some bytes of the directory
    # only look like a locator. If there is a ZIP64 record nevertheless, the archive is refused.
    if not needs_zip64 and directory_start + eocd.directory_size > locator_at:
        yield from _refuse_ambiguous_zip64(archive, declared_at, locator_at)
        return DirectoryEnd(_place_directory(disks, eocd, at), at, disks)
    record_at = yield from _find_zip64_record(archive, declared_at, locator_at)
    fixed = yield from archive.read(record_at, record_at + ZIP64_EOCD_LENGTH)
    zip64 = EndRecord._make(_ZIP64_EOCD.unpack(fixed))
    _compare_zip64(disks, eocd, zip64, at)
    # A count of 0 disks is treated as 1.
    if locator_disk > disks.last or max(1, disk_count) != len(disks.starts):
        reject("multi-disk", f"the locator declares {disk_count} disks", locator_at)
    record = _place_directory(disks, zip64, record_at)
    return DirectoryEnd(record, record_at, disks, locator_shift=record_at - declared_at)


def _place_directory(disks: Disks, record: EndRecord, at: int) -> EndRecord:
    """Check the disk numbers in the record at `at`; make the offset of its directory absolute.

    The record must declare the disk on which it is stored. The directory must not be on a later
    disk.
    """
    disk = record.disk
    if disk != disks.disk_of(at) or record.directory_disk > disk:
        reject("multi-disk", f"disk {disk}, directory on disk {record.directory_disk}", at)
    # Check only disk 0. On a later disk, zip4j declares the number of members that begin on the
    # disk, instead of the number of headers.
    if disk == 0 and record.disk_entries != record.entries:
        reject("count-mismatch", f"{record.disk_entries} of {record.entries} members on disk 0", at)
    if missing := disks.describe_missing(record.directory_disk, record.directory_offset):
        reject("multi-disk", f"the directory begins on {missing}", at)
    return record._replace(
        directory_offset=disks.absolute(record.directory_disk, record.directory_offset)
    )


def _refuse_ambiguous_zip64(
    archive: ArchiveBytes, declared_at: int, locator_at: int
) -> Reads[None]:
    """Refuse an archive whose directory contains a locator if there is also a ZIP64 end record.

    The directory needs no ZIP64 end record. This record can be at `declared_at`, the offset in the
    locator, or directly before the locator. Without this record, some bytes of a name or a comment
    only look like a locator.
    """
    adjacent_at = locator_at - ZIP64_EOCD_LENGTH  # of a record directly before the locator
    for record_at in (declared_at, adjacent_at):
        if 0 <= record_at <= adjacent_at:
            raw = yield from archive.read(record_at, record_at + 4)
            if raw == ZIP64_EOCD_SIGNATURE:
                reject(
                    "zip64-ambiguous",
                    f"the locator at {locator_at} is inside the directory, "
                    f"but a ZIP64 end record is at {record_at}",
                    record_at,
                )


def _check_without_zip64(
    archive: ArchiveBytes, disks: Disks, eocd: EndRecord, at: int
) -> Reads[None]:
    """Refuse the end record at `at` if its values need ZIP64; there is no locator before it.

    Also refuses a misplaced locator. A sentinel that can be an actual value is accepted. A count of
    65,535 is accepted, because writers use ZIP64 only for higher counts; `central` checks the count
    after reading the headers. An offset of 4 GiB - 1 is accepted if the directory begins at this
    offset, modulo 2^32 (see `wrapped`).
    """
    bytes_before = yield from archive.read(max(0, at - _LOCATOR_SEARCH), at)
    if ZIP64_LOCATOR_SIGNATURE in bytes_before:
        reject("zip64-locator-gap", "the ZIP64 locator does not end at the end record", at)
    computed_offset = (at - eocd.directory_size) % WRAP
    needs_offset = eocd.directory_offset == SENTINEL_32 and computed_offset != SENTINEL_32
    needs_size = eocd.directory_size == SENTINEL_32
    # The number of a disk that does not exist, such as the sentinel 65,535.
    needs_disk = max(eocd.disk, eocd.directory_disk) > disks.last
    if needs_offset or needs_size or needs_disk:
        reject("zip64-locator-missing", "no locator precedes the end record", at)


def _find_zip64_record(archive: ArchiveBytes, declared_at: int, locator_at: int) -> Reads[int]:
    """Return the offset of the ZIP64 end record, which must end at the locator.

    If offsets do not include the bytes before the archive, the offset in the locator is too low by
    the number of these bytes. Therefore the function looks first for the record directly before
    the locator, and then at the declared offset. An offset that is too high is refused.
    """
    plain_at = locator_at - ZIP64_EOCD_LENGTH  # offset of a record without extensible data
    record_at = plain_at
    raw = yield from archive.read(plain_at, plain_at + ZIP64_LEAD)
    # A record with extensible data begins before `plain_at`, at the declared offset.
    if declared_at < plain_at and not raw.startswith(ZIP64_EOCD_SIGNATURE):
        record_at = declared_at
        raw = yield from archive.read(declared_at, declared_at + ZIP64_LEAD)
    # A record at an offset above `plain_at` would not end at the locator.
    if declared_at > plain_at or not raw.startswith(ZIP64_EOCD_SIGNATURE):
        reject(
            "zip64-locator-mismatch",
            f"the ZIP64 end record must be at {declared_at} and end at {locator_at}",
            locator_at,
        )
    _check_zip64_length(archive, raw, record_at, locator_at)
    extensible_length = plain_at - record_at
    if extensible_length:
        yield from _refuse_encrypted(archive, record_at, extensible_length)
        archive.warn_or_refuse(
            "zip64-extensible-data", f"{extensible_length} bytes of extensible data", record_at
        )
    elif declared_at < plain_at:  # the record is at `plain_at`; another may be at `declared_at`
        raw = yield from archive.read(declared_at, declared_at + 4)
        if raw == ZIP64_EOCD_SIGNATURE:
            reject("multiple-zip64-eocd", f"records at {declared_at} and {plain_at}", declared_at)
    return record_at


def _check_zip64_length(archive: ArchiveBytes, raw: bytes, record_at: int, locator_at: int) -> None:
    """Refuse a ZIP64 end record that does not end at its locator; `raw` contains its first bytes.

    libgsf includes the first `ZIP64_LEAD` bytes in the length of the record, which causes only a
    warning.
    """
    stop = record_at + ZIP64_LEAD + int.from_bytes(raw[4:ZIP64_LEAD], "little")
    is_plain = record_at == locator_at - ZIP64_EOCD_LENGTH
    if is_plain and stop == locator_at + ZIP64_LEAD:
        archive.warnings.append("zip64-record-length")
    elif stop != locator_at:
        reject(
            "zip64-record-size",
            f"the record ends at {stop}, but its locator begins at {locator_at}",
            record_at,
        )


def _refuse_encrypted(archive: ArchiveBytes, record_at: int, extensible_length: int) -> Reads[None]:
    """Refuse an encrypted central directory (7.3.4), because no part of it can be read.

    The extensible data can look like an encryption algorithm by chance. Therefore a directory that
    begins with the signature of a header is treated as not encrypted.

    Args:
        archive: the archive.
        record_at: offset of the ZIP64 end record.
        extensible_length: length in bytes of the record's extensible data.
    """
    if extensible_length < _MIN_ENCRYPTION_LENGTH:
        return
    raw = yield from archive.read(record_at, record_at + _ENCRYPTED_EOCD.size)
    offset, algorithm = _ENCRYPTED_EOCD.unpack(raw)
    if algorithm not in _ALGORITHMS or offset >= record_at:
        return
    if (yield from archive.read(offset, min(offset + 4, record_at))) != CENTRAL_SIGNATURE:
        reject("encrypted-directory", f"with algorithm 0x{algorithm:04X}", offset)


def _compare_zip64(disks: Disks, eocd: EndRecord, expected: EndRecord, at: int) -> None:
    """Refuse an end record with a value that differs from the ZIP64 record and is not a sentinel.

    `expected` is the ZIP64 record, which declares its own disk and the number of headers on this
    disk. If the end record at `at` is on a later disk, the end record declares the last disk and 0
    headers, because the directory ends before the ZIP64 record.
    """
    if disks.is_split and disks.disk_of(at) != expected.disk:
        expected = expected._replace(disk=disks.last, disk_entries=0)
    for name, value, sentinel, wide in zip(_FIELD_NAMES, eocd, _SENTINELS, expected, strict=True):
        if value not in (sentinel, wide):
            reject("zip64-eocd-mismatch", f"{name} is {value}, but {wide} in the ZIP64 record", at)


def _guess_format(archive: ArchiveBytes) -> Reads[str]:
    """Return the name of a file's format, according to its first bytes; the file is not empty."""
    first_bytes = yield from archive.read(0, _FORMAT_LENGTH)
    # The magic number of tar is in the middle of its header. A ZIP archive can contain these bytes
    # by chance.
    if first_bytes[257:].startswith(b"ustar") and not first_bytes.startswith(LOCAL_SIGNATURE):
        return "tar"
    text = first_bytes.lstrip()[:15].lower()  # the longest signature of a text format has 15 bytes
    for signature, name in _SIGNATURES:
        if first_bytes.startswith(signature) or text.startswith(signature):
            return name
    if min(first_bytes) >= ord("\t"):  # binary data nearly always contains lower bytes
        return "text"
    return "no format that s3unzip knows"


def _follows_directory(window: bytes, at: int) -> bool:
    """Return whether a directory header, or a ZIP64 locator, ends at `at`."""
    header_at = window.rfind(CENTRAL_SIGNATURE, 0, at)
    return (header_at >= 0 and find_header_stop(window, header_at) == at) or (
        window.startswith(ZIP64_LOCATOR_SIGNATURE, max(0, at - ZIP64_LOCATOR_LENGTH), at)
    )


def count_disks(tail: bytes) -> int:
    """Return the number of disks of an archive, according to the end record in its last bytes.

    If there are several end records, the function uses the end record whose comment ends last. If
    other bytes follow an end record, it counts only if a directory directly precedes it: elsewhere,
    the signature can be a constant in the code of an archiving program. If there is no complete end
    record, the function returns 1, and `locate_directory` refuses the archive.
    """
    window = tail[-EOCD_ROOM:]
    stops = {
        at: stop
        for at, stop in _find_stops(window).items()
        if stop == len(window) or (stop < len(window) and _follows_directory(window, at))
    }
    if not stops:
        return 1
    at = max(stops, key=lambda at: (stops[at], at))
    last_disk = read_eocd(window, at).disk
    if last_disk != SENTINEL_16:
        return last_disk + 1
    # A locator ends where the end record begins. The locator can begin before `window`.
    bytes_before = tail[: len(tail) - len(window) + at]
    locator = bytes_before[-ZIP64_LOCATOR_LENGTH:]
    if len(locator) < ZIP64_LOCATOR_LENGTH or not locator.startswith(ZIP64_LOCATOR_SIGNATURE):
        return 1
    return max(1, int(_ZIP64_LOCATOR.unpack(locator)[2]))  # the last field is the number of disks
