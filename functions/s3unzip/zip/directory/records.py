"""The fixed parts of ZIP records: layouts, signatures and sentinels (APPNOTE 4.3).

All numbers are little-endian. Other modules interpret the fields.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

LOCAL_SIGNATURE = b"PK\x03\x04"
CENTRAL_SIGNATURE = b"PK\x01\x02"
EOCD_SIGNATURE = b"PK\x05\x06"
ZIP64_EOCD_SIGNATURE = b"PK\x06\x06"
ZIP64_LOCATOR_SIGNATURE = b"PK\x06\x07"
DESCRIPTOR_SIGNATURE = b"PK\x07\x08"

LOCAL_MAGIC = int.from_bytes(LOCAL_SIGNATURE, "little")

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

METHOD_STORED = 0
METHOD_DEFLATE = 8
METHOD_DEFLATE64 = 9
METHOD_BZIP2 = 12
METHOD_LZMA = 14
METHOD_ZSTD = 93
METHOD_XZ = 95
METHOD_AES = 99

UNIX_HOSTS = (3, 19)  # Unix and Darwin: their external attributes hold a mode

# 4.4.3: the lower byte of "version needed to extract", ten times the version of APPNOTE.
MAX_VERSION = 63
# FILE_ATTRIBUTE_* of Windows, in the lower half of the external attributes (4.4.15):
# https://learn.microsoft.com/windows/win32/fileio/file-attribute-constants
ATTRIBUTE_DIRECTORY = 0x10
ATTRIBUTE_REPARSE_POINT = 0x400

# 4.3.12. Modification time and date are read as one number, as are the signatures;
# internal attributes decide nothing and are skipped.
CENTRAL = Struct("<IHHHHIIIIHHHHxxII")
# 4.3.7, likewise.
LOCAL = Struct("<IxxHHxxxxIIIHH")
# 4.3.16
EOCD = Struct("<4sHHHHIIH")
# 4.3.14
ZIP64_EOCD = Struct("<4sQHHIIQQQQ")
# 4.3.15
ZIP64_LOCATOR = Struct("<4sIQI")

CENTRAL_LENGTH = 46
LOCAL_LENGTH = 30
EOCD_LENGTH = 22
ZIP64_EOCD_LENGTH = 56
ZIP64_LOCATOR_LENGTH = 20
MAX_COMMENT = 0xFFFF


class Eocd(NamedTuple):
    """End of central directory record, APPNOTE 4.3.16."""

    signature: bytes
    disk: int
    directory_disk: int
    disk_entries: int
    entries: int
    directory_size: int
    directory_offset: int
    comment_length: int


class Zip64Eocd(NamedTuple):
    """ZIP64 end of central directory record, APPNOTE 4.3.14."""

    signature: bytes
    record_size: int
    made_by: int
    needed: int
    disk: int
    directory_disk: int
    disk_entries: int
    entries: int
    directory_size: int
    directory_offset: int


class Zip64Locator(NamedTuple):
    """ZIP64 end of central directory locator, APPNOTE 4.3.15."""

    signature: bytes
    record_disk: int
    record_offset: int
    disks: int
