"""The records of a ZIP file (APPNOTE 4.3): signatures, lengths, flags, methods, times (4.4.6).

All numbers are little-endian. The module of each record interprets its fields.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
EOCD_SIGNATURE = b"PK\x05\x06"
ZIP64_EOCD_SIGNATURE = b"PK\x06\x06"
ZIP64_LOCATOR_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

# 4.4.1.4: the value is in a ZIP64 record or field.
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

CENTRAL_LENGTH = 46
LOCAL_LENGTH = 30
EOCD_LENGTH = 22
ZIP64_EOCD_LENGTH = 56
ZIP64_LOCATOR_LENGTH = 20
MAX_COMMENT = 0xFFFF


def find_all(data: bytes, signature: bytes) -> Iterator[int]:
    """Yield the position of each signature in `data`."""
    at = data.find(signature)
    while at >= 0:
        yield at
        at = data.find(signature, at + 1)


def is_encrypted(flags: int) -> bool:
    """Return whether the flags say that the data is encrypted.

    Bits 6 and 13 say how (4.4.4). Without bit 0 they do not count.
    """
    return bool(flags & FLAG_ENCRYPTED)


def describe_method(method: int) -> str:
    """Return the number and the name of a method of compression that is not read."""
    return f"compression method {method} ({_UNSUPPORTED_METHODS.get(method, 'unknown')})"


@lru_cache(maxsize=1 << 16)
def read_dos_time(stamp: int) -> int | None:
    """Return Unix seconds of a DOS date (high 16 bits) and time (low 16), taken as UTC.

    None for an invalid date: many writers leave zeros.
    """
    day = stamp >> 16
    time = stamp & 0xFFFF
    try:
        moment = datetime(
            year=1980 + (day >> 9),
            month=day >> 5 & 0xF,
            day=day & 0x1F,
            hour=time >> 11,
            minute=time >> 5 & 0x3F,
            second=2 * (time & 0x1F),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return int(moment.timestamp())
