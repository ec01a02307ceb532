"""The records of a ZIP file (APPNOTE 4.3), extra fields (4.5) and MS-DOS times (4.4.6).

All numbers are little-endian. Other modules interpret the fields.
"""

import zlib
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from s3unzip.zip.values import Cipher

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
EOCD_SIGNATURE = b"PK\x05\x06"
ZIP64_EOCD_SIGNATURE = b"PK\x06\x06"
ZIP64_LOCATOR_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

SENTINEL_16 = 0xFFFF
SENTINEL_32 = 0xFFFF_FFFF

FLAG_ENCRYPTED = 1 << 0
FLAG_LZMA_EOS = 1 << 1
FLAG_DESCRIPTOR = 1 << 3
FLAG_PATCH = 1 << 5
FLAG_STRONG_ENCRYPTION = 1 << 6
FLAG_UTF8 = 1 << 11
FLAG_MASKED_HEADER = 1 << 13
ENCRYPTION_FLAGS = FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED_HEADER
# Not a flag of APPNOTE, which has 16: the external attributes have the bit of a reparse point.
FLAG_REPARSE = 1 << 16

METHOD_STORED = 0
METHOD_DEFLATE = 8
METHOD_DEFLATE64 = 9
METHOD_BZIP2 = 12
METHOD_LZMA = 14
METHOD_ZSTD = 93
METHOD_XZ = 95
METHOD_AES = 99
# The methods that are read, and the short names of their compression.
METHODS = {0: "Stored", 8: "Defl", 9: "Defl64", 12: "BZip2", 14: "LZMA", 93: "Zstd", 95: "Xz"}
_UNSUPPORTED_METHODS = {
    1: "shrink", 2: "reduce", 3: "reduce", 4: "reduce", 5: "reduce", 6: "implode",
    10: "IBM TERSE (old)", 16: "IBM CMPSC", 18: "IBM TERSE", 19: "IBM LZ77",
    94: "MP3", 96: "JPEG", 97: "WavPack", 98: "PPMd",
}  # fmt: skip

MAX_DEFLATE_RATIO = 1_032  # two bits stand for at most 258 bytes (RFC 1951)

UNIX_HOSTS = (3, 19)  # Unix and Darwin: their external attributes hold a mode (4.4.2)
DOS_HOSTS = (0, 6, 10, 14)  # MS-DOS, OS/2, Windows NTFS, VFAT: they hold DOS attributes

# 4.4.3: the lower byte of "version needed to extract", ten times the version of APPNOTE.
MAX_VERSION = 63
# FILE_ATTRIBUTE_* of Windows, in the lower half of the external attributes (4.4.15):
# https://learn.microsoft.com/windows/win32/fileio/file-attribute-constants
ATTRIBUTE_DIRECTORY = 0x10
ATTRIBUTE_REPARSE_POINT = 0x400

# 4.3.7. Modification time and date are skipped.
LOCAL = Struct("<4sxxHHxxxxIIIHH")
# 4.3.16 and 4.3.14, from the number of the disk to the offset of the directory
_EOCD = Struct("<4xHHHHII")
_ZIP64_EOCD = Struct("<16xIIQQQQ")
# 7.3.4: of the record of an encrypted directory, its offset and the algorithm
ENCRYPTED_EOCD = Struct("<48xQ18xH")
ENCRYPTION_LENGTH = 28  # bytes that it has beyond the plain record, at least
ALGORITHMS = range(0x6601, 0x6802)  # 7.2.3.2
# 4.3.15: disk and offset of the ZIP64 end record, number of disks
ZIP64_LOCATOR = Struct("<4xIQI")

CENTRAL_LENGTH = 46
LOCAL_LENGTH = 30
EOCD_LENGTH = 22
ZIP64_EOCD_LENGTH = 56
ZIP64_LOCATOR_LENGTH = 20
MAX_COMMENT = 0xFFFF

ZIP64 = 0x0001
EXTENDED_TIMESTAMP = 0x5455
UNICODE_PATH = 0x7075
AES = 0x9901
_AES_PAYLOAD = 7  # version, "AE", strength, method


class EndRecord(NamedTuple):
    """What an end record says, the one of ZIP64 (4.3.14) or the other (4.3.16)."""

    disk: int
    directory_disk: int
    disk_entries: int
    entries: int
    directory_size: int
    directory_offset: int


def read_eocd(data: bytes, at: int) -> EndRecord:
    """Return the end record at `at`."""
    return EndRecord._make(_EOCD.unpack_from(data, at))


def read_zip64_eocd(data: bytes) -> EndRecord:
    """Return the ZIP64 end record that `data` begins with."""
    return EndRecord._make(_ZIP64_EOCD.unpack_from(data))


def find_eocd_stop(data: bytes, at: int) -> int:
    """Return where the end record at `at` ends, with its comment."""
    return at + EOCD_LENGTH + int.from_bytes(data[at + 20 : at + 22], "little")


def find_all(data: bytes, signature: bytes) -> Iterator[int]:
    """Yield the places of a signature."""
    at = data.find(signature)
    while at >= 0:
        yield at
        at = data.find(signature, at + 1)


def is_encrypted(flags: int) -> bool:
    """Return whether the flags say that the data is encrypted.

    Bits 6 and 13 say how (4.4.4); without bit 0 they say nothing of the data.
    """
    return bool(flags & FLAG_ENCRYPTED)


def is_local_header(raw: bytes, name: bytes) -> bool:
    """Return whether `raw` begins with a local header whose name begins with `name`."""
    return raw.startswith(LOCAL_SIGNATURE) and raw[LOCAL_LENGTH:].startswith(name)


def describe_method(method: int) -> str:
    """Return the number and the name of a method of compression that is not read."""
    return f"compression method {method} ({_UNSUPPORTED_METHODS.get(method, 'unknown')})"


class Extras(NamedTuple):
    """The payloads of one extra block by field id, in order.

    `overrun` says that a field is longer than the rest of the block, `stray` that 1 to 3 bytes are
    left over and no field.
    """

    fields: dict[int, list[bytes]]
    overrun: bool = False
    stray: bool = False

    def of(self, field_id: int) -> list[bytes]:
        """Return the payloads of every field with this id."""
        return self.fields.get(field_id, [])


NO_EXTRAS = Extras({})


def walk_extras(block: bytes) -> Extras:
    """Split an extra block into fields; never raises."""
    fields: dict[int, list[bytes]] = {}
    at, end = 0, len(block)
    while end - at >= 4:
        field_id = int.from_bytes(block[at : at + 2], "little")
        start = at + 4
        at = start + int.from_bytes(block[at + 2 : at + 4], "little")
        if at > end:
            return Extras(fields, overrun=True)
        fields.setdefault(field_id, []).append(block[start:at])
    return Extras(fields, stray=at < end)


def resolve_zip64(  # the four fields of 4.5.3, in the order that the field holds them
    extras: Extras, size: int, compressed_size: int, offset: int = 0, disk: int = 0
) -> tuple[int, int, int, int, bool]:
    """Replace each sentinel by its value from the ZIP64 extra field (4.5.3).

    Only fields that are sentinels have a value, in this fixed order. Some writers always write all
    three values, so bytes that are left over are ignored. The last value returned says that a
    sentinel had no value.
    """
    payload = next(iter(extras.of(ZIP64)), b"")
    at, missing = 0, False
    resolved: list[int] = []
    for value, sentinel, length in (
        (size, SENTINEL_32, 8),
        (compressed_size, SENTINEL_32, 8),
        (offset, SENTINEL_32, 8),
        (disk, SENTINEL_16, 4),
    ):
        if value != sentinel:
            resolved.append(value)
            continue
        found = payload[at : at + length]
        at += length
        missing |= len(found) < length
        resolved.append(int.from_bytes(found, "little") if len(found) == length else value)
    return resolved[0], resolved[1], resolved[2], resolved[3], missing


def read_extended_time(extras: Extras) -> int | None:
    """Return the modification time in Unix seconds of the extended timestamp (0x5455)."""
    for payload in extras.of(EXTENDED_TIMESTAMP):
        if len(payload) >= 5 and payload[0] & 1:
            return int.from_bytes(payload[1:5], "little", signed=True)
    return None


def read_aes(extras: Extras) -> tuple[int, Cipher] | None:
    """Return the method of compression and the encryption that the one valid AES field declares.

    WinZip AES declares method 99, and puts the method of the compression there.
    """
    found = extras.of(AES)
    if len(found) != 1 or len(found[0]) < _AES_PAYLOAD or found[0][2:4] != b"AE":
        return None
    version, strength = int.from_bytes(found[0][:2], "little"), found[0][4]
    if version not in (1, 2) or strength not in (1, 2, 3):
        return None
    return int.from_bytes(found[0][5:7], "little"), Cipher(version, strength)


def read_unicode_path(extras: Extras, raw_name: bytes) -> tuple[bytes | None, str | None]:
    """Return the UTF-8 name of the Unicode path field (0x7075, 4.6.9), and the code of its fault.

    Its version is 1, and the CRC-32 of the raw name must fit. Backslashes that stand for the raw
    name's slashes become slashes.
    """
    found = extras.of(UNICODE_PATH)
    if len(found) != 1:
        return None, "unicode-path-duplicate" if found else None
    payload = found[0]
    fits = (
        len(payload) >= 5
        and payload[0] == 1
        and int.from_bytes(payload[1:5], "little") == zlib.crc32(raw_name)
    )
    if not fits:
        return None, "unicode-path-stale"
    name = payload[5:]
    if b"\\" in name and name.count(b"\\") + name.count(b"/") == raw_name.count(b"/"):
        return name.replace(b"\\", b"/"), "unicode-path-backslash"
    return name, None


@lru_cache(maxsize=1 << 16)
def read_dos_time(stamp: int) -> int | None:
    """Return Unix seconds of a DOS date (high 16 bits) and time (low 16), taken as UTC.

    None for an invalid date: many writers leave zeros.
    """
    day, time = stamp >> 16, stamp & 0xFFFF
    hour, minute, second = time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = date(1980 + (day >> 9), day >> 5 & 0xF, day & 0x1F) - date(1970, 1, 1)
    except ValueError:
        return None
    return days.days * 86_400 + hour * 3600 + minute * 60 + second
