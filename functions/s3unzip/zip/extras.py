"""Extra fields of both headers (APPNOTE 4.5): ZIP64, Unicode path, timestamp, WinZip AES."""

import zlib
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.zip.records import SENTINEL_16, SENTINEL_32
from s3unzip.zip.values import Cipher

ZIP64 = 0x0001
EXTENDED_TIMESTAMP = 0x5455
UNICODE_PATH = 0x7075
AES = 0x9901

_FIELD_HEADER = 4  # id and length
_AES_PAYLOAD = 7  # version, "AE", strength, method


class Extras(NamedTuple):
    """The payloads of one extra block by field id, in order.

    `overrun` says that a field is longer than the rest of the block. `stray` says that 1 to 3 bytes
    follow the last field.
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
    """The values of a header that ZIP64 can widen (4.5.3), in bytes; `disk` is a number.

    `lacks_value` says that a value is a sentinel, and the ZIP64 field does not have it.
    """

    size: int
    compressed: int
    offset: int = 0
    disk: int = 0
    lacks_value: bool = False


# The order of the values in a ZIP64 field, their sentinels, their lengths in bytes.
_ZIP64_VALUES = (
    ("size", SENTINEL_32, 8),
    ("compressed", SENTINEL_32, 8),
    ("offset", SENTINEL_32, 8),
    ("disk", SENTINEL_16, 4),
)


def resolve_zip64(extras: Extras, declared: Sizes) -> Sizes:
    """Replace each sentinel by its value from the ZIP64 field.

    The field has only the values whose sentinels are declared. Some writers always write all of
    them, so bytes that remain are ignored.
    """
    payload = next(iter(extras.of(ZIP64)), b"")
    wide: dict[str, Any] = {}
    for name, sentinel, length in _ZIP64_VALUES:
        if getattr(declared, name) != sentinel:
            continue
        if len(payload) < length:
            wide["lacks_value"] = True
            break
        wide[name] = int.from_bytes(payload[:length], "little")
        payload = payload[length:]
    return replace(declared, **wide)


def read_extended_time(extras: Extras) -> int | None:
    """Return the modification time in Unix seconds of the extended timestamp (0x5455)."""
    for payload in extras.of(EXTENDED_TIMESTAMP):
        if len(payload) >= 5 and payload[0] & 1:
            return int.from_bytes(payload[1:5], "little", signed=True)
    return None


def read_aes(extras: Extras) -> tuple[int, Cipher] | None:
    """Return the compression method and the cipher of the AES field; None without one valid field.

    WinZip AES declares method 99, and puts the method of the compression there.
    """
    payloads = extras.of(AES)
    if len(payloads) != 1:
        return None
    payload = payloads[0]
    if len(payload) < _AES_PAYLOAD or payload[2:4] != b"AE":
        return None
    cipher = Cipher(version=int.from_bytes(payload[:2], "little"), strength=payload[4])
    if cipher.version not in (1, 2) or cipher.strength not in (1, 2, 3):
        return None
    return int.from_bytes(payload[5:7], "little"), cipher


def read_unicode_path(extras: Extras, raw_name: bytes) -> tuple[bytes | None, str | None]:
    """Return the UTF-8 name of the Unicode path field (0x7075, 4.6.9), and the code of its fault.

    Its version is 1, and its CRC-32 is that of the raw name. Backslashes become slashes if the raw
    name has slashes in their place.
    """
    payloads = extras.of(UNICODE_PATH)
    if not payloads:
        return None, None
    if len(payloads) > 1:
        return None, "unicode-path-duplicate"
    payload = payloads[0]
    checksum = int.from_bytes(payload[1:5], "little")
    if len(payload) < 5 or payload[0] != 1 or checksum != zlib.crc32(raw_name):
        return None, "unicode-path-stale"
    name = payload[5:]
    if b"\\" in name and name.count(b"\\") + name.count(b"/") == raw_name.count(b"/"):
        return name.replace(b"\\", b"/"), "unicode-path-backslash"
    return name, None
