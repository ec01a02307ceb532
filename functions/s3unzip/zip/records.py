"""The records of a ZIP file (APPNOTE 4.3): signatures, flags, methods, times, extra fields (4.5).

All numbers are little-endian. The modules that read the records interpret the fields that this
module does not interpret.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.zip.values import Cipher

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
EOCD_SIGNATURE = b"PK\x05\x06"
ZIP64_EOCD_SIGNATURE = b"PK\x06\x06"
ZIP64_LOCATOR_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

# If a field contains one of these values, its actual value is in a ZIP64 record or field (4.4.1.4).
SENTINEL_16 = 0xFFFF
SENTINEL_32 = 0xFFFF_FFFF

FLAG_ENCRYPTED = 1 << 0  # bits 6 and 13 declare the kind of encryption (4.4.4)
FLAG_LZMA_EOS = 1 << 1
FLAG_DESCRIPTOR = 1 << 3
FLAG_PATCH = 1 << 5
FLAG_STRONG_ENCRYPTION = 1 << 6
FLAG_UTF8 = 1 << 11
FLAG_MASKED_HEADER = 1 << 13
ENCRYPTION_FLAGS = FLAG_ENCRYPTED | FLAG_STRONG_ENCRYPTION | FLAG_MASKED_HEADER
# A flag that APPNOTE does not define: the external attributes declare a reparse point.
FLAG_REPARSE = 1 << 16

METHOD_STORED = 0
METHOD_DEFLATE = 8
METHOD_DEFLATE64 = 9
METHOD_BZIP2 = 12
METHOD_LZMA = 14
METHOD_ZSTD = 93
METHOD_XZ = 95
METHOD_AES = 99
# The compression methods that s3unzip can decompress, with their short names.
METHODS = {0: "Stored", 8: "Defl", 9: "Defl64", 12: "BZip2", 14: "LZMA", 93: "Zstd", 95: "Xz"}
_UNSUPPORTED_METHODS = {
    1: "shrink", 2: "reduce", 3: "reduce", 4: "reduce", 5: "reduce", 6: "implode",
    10: "IBM TERSE (old)", 16: "IBM CMPSC", 18: "IBM TERSE", 19: "IBM LZ77",
    94: "MP3", 96: "JPEG", 97: "WavPack", 98: "PPMd",
}  # fmt: skip

MAX_DEFLATE_RATIO = 1_032  # two bits can represent at most 258 bytes (RFC 1951)

# The external attributes contain a mode for the hosts Unix and Darwin, and DOS attributes for the
# hosts MS-DOS, OS/2, Windows NTFS and VFAT (4.4.2).
UNIX_HOSTS = (3, 19)
DOS_HOSTS = (0, 6, 10, 14)

# The latest version of the format is 6.3. The lower byte of "version needed to extract" contains
# ten times the version (4.4.3).
MAX_VERSION = 63
# The Windows constants FILE_ATTRIBUTE_*, in the lower half of the external attributes (4.4.15):
# https://learn.microsoft.com/windows/win32/fileio/file-attribute-constants
ATTRIBUTE_DIRECTORY = 0x10
ATTRIBUTE_REPARSE_POINT = 0x400

CENTRAL_LENGTH = 46
LOCAL_LENGTH = 30
EOCD_LENGTH = 22
ZIP64_EOCD_LENGTH = 56
ZIP64_LOCATOR_LENGTH = 20
MAX_COMMENT = 0xFFFF

# The ids of extra fields.
ZIP64 = 0x0001
NTFS = 0x000A
EXTENDED_TIMESTAMP = 0x5455
UNIX_TIMES = 0x5855
UNICODE_PATH = 0x7075
AES = 0x9901

_FIELD_HEADER = 4  # length in bytes of the id and the length of a field
# The range of Unix times, from 1970 to 2106, in ticks of 100 ns since 1601.
_NTFS_TICKS = range(116_444_736_000_000_000, 159_394_408_960_000_000)
_AES_FIELD = struct.Struct("<H2sBH")  # version, "AE", strength, method


def find_all(data: bytes, signature: bytes) -> Iterator[int]:
    """Yield the position of each signature in `data`."""
    return (match.start() for match in re.finditer(re.escape(signature), data))


def describe_method(method: int) -> str:
    """Return the number and the name of an unsupported compression method, for use in a message."""
    return f"compression method {method} ({_UNSUPPORTED_METHODS.get(method, 'unknown')})"


@lru_cache(maxsize=1 << 16)
def read_dos_time(stamp: int) -> int | None:
    """Convert a DOS date (high 16 bits) and time (low 16 bits) in UTC to Unix seconds.

    Returns None if the date is invalid; many writers leave the date at zero.
    """
    # The date has 7 bits for the years since 1980, 4 for the month and 5 for the day. The time has
    # 5 bits for hours, 6 for minutes and 5 for units of two seconds (4.4.6).
    date = stamp >> 16
    time = stamp & 0xFFFF
    try:
        moment = datetime(
            year=1980 + (date >> 9),
            month=date >> 5 & 0xF,
            day=date & 0x1F,
            hour=time >> 11,
            minute=time >> 5 & 0x3F,
            second=2 * (time & 0x1F),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return int(moment.timestamp())


class Extras(NamedTuple):
    """The payloads of the fields in an extra block, by field id and in order.

    `overrun` is True if a field is longer than the rest of the block. `stray` is True if 1 to 3
    bytes follow the last field.
    """

    fields: dict[int, list[bytes]]
    overrun: bool = False
    stray: bool = False

    def of(self, field_id: int) -> list[bytes]:
        """Return the payloads of all fields with this id."""
        return self.fields.get(field_id, [])


NO_EXTRAS = Extras({})


def walk_extras(block: bytes) -> Extras:
    """Split an extra block into its fields; any bytes are accepted."""
    fields: dict[int, list[bytes]] = {}
    at = 0
    while len(block) - at >= _FIELD_HEADER:
        field_id = int.from_bytes(block[at : at + 2], "little")
        start = at + _FIELD_HEADER
        at = start + int.from_bytes(block[at + 2 : start], "little")
        if at > len(block):
            return Extras(fields, overrun=True)
        fields.setdefault(field_id, []).append(block[start:at])
    return Extras(fields, stray=at < len(block))


class Sizes(Struct, frozen=True, gc=False):
    """The values in a header that a ZIP64 field can replace (4.5.3).

    `lacks_value` is True if one of these values is a sentinel whose actual value is missing from
    the ZIP64 field.
    """

    size: int
    compressed: int
    offset: int = 0
    disk: int = 0
    lacks_value: bool = False


# The values in a ZIP64 field, in order, with their sentinels and their lengths in bytes.
_ZIP64_VALUES = (
    ("size", SENTINEL_32, 8),
    ("compressed", SENTINEL_32, 8),
    ("offset", SENTINEL_32, 8),
    ("disk", SENTINEL_16, 4),
)


def resolve_zip64(extras: Extras, declared: Sizes) -> Sizes:
    """Replace each sentinel with the value from the ZIP64 field.

    The field contains only those values whose regular fields hold the sentinel. Some writers append
    values that are not needed, so any bytes after the last needed value are ignored.
    """
    payload = next(iter(extras.of(ZIP64)), b"")
    wide_values: dict[str, Any] = {}
    for name, sentinel, length in _ZIP64_VALUES:
        if getattr(declared, name) != sentinel:
            continue
        if len(payload) < length:  # this value and later values are missing
            wide_values["lacks_value"] = True
            break
        wide_values[name] = int.from_bytes(payload[:length], "little")
        payload = payload[length:]
    return replace(declared, **wide_values)


def read_utc_time(extras: Extras) -> int | None:
    """Return the Unix seconds of the modification time in an extra field.

    Returns None if no field contains this time. The DOS time, in contrast, has no time zone.
    """
    for payload in extras.of(EXTENDED_TIMESTAMP):
        # One byte of flags, in which bit 0 announces the modification time, and 4 bytes of time.
        if len(payload) >= 5 and payload[0] & 1:
            return int.from_bytes(payload[1:5], "little", signed=True)
    for payload in extras.of(UNIX_TIMES):  # from old Info-ZIP and macOS; access time first
        if len(payload) >= 8:
            return int.from_bytes(payload[4:8], "little", signed=True)
    for payload in extras.of(NTFS):  # 4.5.5: from 7-Zip, WinZip and WinRAR
        ticks = int.from_bytes(payload[8:16], "little")
        # Tag 1 has 24 bytes: three timestamps, of which the first is the modification time.
        if payload[4:8] == b"\1\0\x18\0" and ticks in _NTFS_TICKS:
            return (ticks - _NTFS_TICKS.start) // 10_000_000  # the range begins in 1970
    return None


def read_aes(extras: Extras) -> tuple[int, Cipher] | None:
    """Return the compression method and the cipher of the AES field.

    Returns None unless there is exactly one AES field and the field is valid. A member with WinZip
    AES declares method 99, and its AES field contains the actual compression method.
    """
    payloads = extras.of(AES)
    if len(payloads) != 1 or len(payloads[0]) < _AES_FIELD.size:
        return None
    version, vendor, strength, method = _AES_FIELD.unpack_from(payloads[0])
    if vendor != b"AE" or version not in (1, 2) or strength not in (1, 2, 3):
        return None
    return method, Cipher(version, strength)


def read_unicode_path(payload: bytes, raw_name: bytes) -> tuple[bytes | None, str | None]:
    """Return the UTF-8 name of a Unicode path field (0x7075, 4.6.9), and the code of a finding.

    The name is None if the field is not valid, and the code is None if there is no finding. A
    valid field has version 1 and the CRC-32 of the raw name. The backslashes in the name become
    slashes if the result has as many slashes as the raw name.
    """
    checksum = int.from_bytes(payload[1:5], "little")
    # The version and the checksum occupy 5 bytes; the name follows.
    if len(payload) < 5 or payload[0] != 1 or checksum != zlib.crc32(raw_name):
        return None, "unicode-path-stale"
    name = payload[5:]
    if b"\\" in name and name.count(b"\\") + name.count(b"/") == raw_name.count(b"/"):
        return name.replace(b"\\", b"/"), "unicode-path-backslash"
    return name, None
