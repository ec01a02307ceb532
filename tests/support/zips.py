"""Archives for tests, good and bad, made byte by byte: whole, encrypted, split; and large contents.

`build` writes what it is told: every field of every record can be set to any
value, records can be moved, repeated and left out. Nothing here reads ZIPs.

    build(Entry("a.txt", b"hello"))
    build(Entry("a", b"x", local={"crc32": 0}), eocd={"entries": 2}, prefix=b"stub")

Encryption is written from APPNOTE 6.1 and WinZip's page, not from the decrypting side. Parts of a
split archive (APPNOTE 8) have the disk numbers that belong to them: a record lies on one disk, data
may lie on several.
"""

import bz2
import hashlib
import hmac
import lzma
import random
import struct
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import NamedTuple, TypeVar

import inflate64
import zstandard
from Crypto.Cipher import AES

Fields = Mapping[str, int | bytes]

STORED, DEFLATE, DEFLATE64, BZIP2, LZMA, ZSTD, XZ = 0, 8, 9, 12, 14, 93, 95
METHODS = {  # the methods that we read, with their names
    STORED: "stored", DEFLATE: "deflate", DEFLATE64: "deflate64", BZIP2: "bzip2", LZMA: "lzma",
    ZSTD: "zstd", XZ: "xz",
}  # fmt: skip

# APPNOTE 4.3.7, 4.3.12, 4.3.16, 4.3.14 and 4.3.15: field names and struct formats.
_BOTH = {
    "needed": "H", "flags": "H", "method": "H", "time": "H", "date": "H", "crc32": "I",
    "compressed_size": "I", "size": "I", "name_length": "H", "extra_length": "H",
}  # fmt: skip
LOCAL = {"signature": "4s", **_BOTH}
CENTRAL = {
    "signature": "4s", "made_by": "H", **_BOTH, "comment_length": "H", "disk": "H", "internal": "H",
    "attributes": "I", "offset": "I",
}  # fmt: skip
EOCD = {
    "signature": "4s", "disk": "H", "directory_disk": "H", "disk_entries": "H", "entries": "H",
    "directory_size": "I", "directory_offset": "I", "comment_length": "H",
}  # fmt: skip
ZIP64_EOCD = {
    "signature": "4s", "record_size": "Q", "made_by": "H", "needed": "H", "disk": "I",
    "directory_disk": "I", "disk_entries": "Q", "entries": "Q", "directory_size": "Q",
    "directory_offset": "Q",
}  # fmt: skip
ZIP64_LOCATOR = {"signature": "4s", "record_disk": "I", "record_offset": "Q", "disks": "I"}

SENTINEL = 0xFFFFFFFF
SENTINEL_16 = 0xFFFF


def pack_record(layout: Mapping[str, str], values: Fields, overrides: Fields) -> bytes:
    """Pack one record; `overrides` win, and may only name fields that exist."""
    assert overrides.keys() <= layout.keys(), (overrides, layout)
    merged = {**values, **overrides}
    return struct.pack("<" + "".join(layout.values()), *(merged[name] for name in layout))


def extra(field_id: int, payload: bytes) -> bytes:
    """Make one extra field."""
    return struct.pack("<HH", field_id, len(payload)) + payload


def zip64_extra(*values: int) -> bytes:
    """Make a ZIP64 extra field with these 64-bit values."""
    return extra(0x0001, struct.pack(f"<{len(values)}Q", *values))


def unicode_path(raw_name: bytes, name: str) -> bytes:
    """Make a Unicode path extra field (0x7075) that fits `raw_name`."""
    return extra(0x7075, struct.pack("<BI", 1, zlib.crc32(raw_name)) + name.encode())


def _deflate64(content: bytes) -> bytes:
    deflater = inflate64.Deflater()
    return bytes(deflater.deflate(content) + deflater.flush())


def _lzma(content: bytes) -> bytes:
    alone = lzma.compress(content, lzma.FORMAT_ALONE)
    return b"\x09\x04\x05\x00" + alone[:5] + alone[13:]


_COMPRESSORS: Mapping[int, Callable[[bytes], bytes]] = {
    DEFLATE: partial(zlib.compress, level=6, wbits=-15),
    DEFLATE64: _deflate64,
    BZIP2: bz2.compress,
    LZMA: _lzma,
    ZSTD: zstandard.compress,
    XZ: lambda content: lzma.compress(content, lzma.FORMAT_XZ),
}


@lru_cache(64)
def compress(method: int, content: bytes) -> bytes:
    """Compress `content` as a member of this method holds it; unknown ones store it."""
    return _COMPRESSORS.get(method, bytes)(content)


DESCRIPTORS = ("signed32", "bare32", "signed64", "bare64")


@dataclass(frozen=True, slots=True)
class Entry:
    """One member, as the archive shall hold it.

    `data` replaces the compressed bytes. `local` and `central` override header fields; `descriptor`
    is one of `DESCRIPTORS`, whose values `described` overrides. `after` are stray bytes behind the
    member; `listed` and `present` leave it out of the directory or out of the archive.
    """

    name: str | bytes
    content: bytes = b""
    method: int = STORED
    flags: int = 0
    data: bytes | None = None
    attributes: int = 0o100644 << 16
    extra: bytes = b""
    local_extra: bytes | None = None
    comment: bytes = b""
    local_name: bytes | None = None
    local: Fields = field(default_factory=dict)
    central: Fields = field(default_factory=dict)
    descriptor: str | None = None
    described: Fields = field(default_factory=dict)
    after: bytes = b""
    listed: bool = True
    present: bool = True

    @property
    def raw_name(self) -> bytes:
        return self.name.encode() if isinstance(self.name, str) else self.name

    @property
    def all_flags(self) -> int:
        is_unicode = isinstance(self.name, str) and not self.name.isascii()
        bits = (0x8 * bool(self.descriptor), 0x2 * (self.method == LZMA), 0x800 * is_unicode)
        return self.flags | sum(bits)

    @property
    def stored_data(self) -> bytes:
        return compress(self.method, self.content) if self.data is None else self.data

    def _values(self) -> dict[str, int | bytes]:
        return {
            "needed": 20,
            "flags": self.all_flags,
            "method": self.method,
            "time": 0x6C25,
            "date": 0x5C8F,
            "crc32": zlib.crc32(self.content),
            "compressed_size": len(self.stored_data),
            "size": len(self.content),
            "name_length": len(self.raw_name),
        }

    def local_part(self) -> bytes:
        return self.local_header() + self.stored_data + self._descriptor()

    def local_header(self) -> bytes:
        block = self.extra if self.local_extra is None else self.local_extra
        name = self.raw_name if self.local_name is None else self.local_name
        later = {"crc32": 0, "compressed_size": 0, "size": 0} if self.descriptor else {}
        values = {
            **self._values(),
            **later,
            "signature": b"PK\x03\x04",
            "name_length": len(name),
            "extra_length": len(block),
        }
        return pack_record(LOCAL, values, self.local) + name + block

    def _descriptor(self) -> bytes:
        if self.descriptor is None:
            return b""
        size = "Q" if self.descriptor.endswith("64") else "I"
        signature = b"PK\x07\x08" if self.descriptor.startswith("signed") else b""
        layout = {"crc32": "I", "compressed_size": size, "size": size}
        return signature + pack_record(layout, self._values(), self.described)

    def central_part(self, offset: int) -> bytes:
        values = {
            **self._values(),
            "signature": b"PK\x01\x02",
            "made_by": 0x031E,
            "extra_length": len(self.extra),
            "comment_length": len(self.comment),
            "disk": 0,
            "internal": 0,
            "attributes": self.attributes,
            "offset": offset,
        }
        return (
            pack_record(CENTRAL, values, self.central) + self.raw_name + self.extra + self.comment
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about an archive but its members.

    `prefix` is put before it, and counted in offsets only if `adjusted`. `zip64` writes the ZIP64
    end records; `extensible` is data at the record's end. `gap_*` are stray bytes after the
    directory and before the end record; `directory_tail` lies within the directory's declared size.
    """

    prefix: bytes = b""
    adjusted: bool = False
    comment: bytes = b""
    trailing: bytes = b""
    directory_tail: bytes = b""
    gap_after_directory: bytes = b""
    gap_before_eocd: bytes = b""
    zip64: bool = False
    extensible: bytes = b""
    eocd: Fields = field(default_factory=dict)
    zip64_eocd: Fields = field(default_factory=dict)
    locator: Fields = field(default_factory=dict)


def build(*entries: Entry, shape: Shape | None = None) -> bytes:
    """Build an archive of these members, in this order."""
    shape = shape or Shape()
    shift = 0 if shape.adjusted else -len(shape.prefix)
    body, directory = bytearray(shape.prefix), bytearray()
    for entry in entries:
        if entry.listed:
            directory += entry.central_part(len(body) + shift)
        if entry.present:
            body += entry.local_part()
        body += entry.after
    count = sum(entry.listed for entry in entries)
    directory += shape.directory_tail
    values = {
        "disk": 0,
        "directory_disk": 0,
        "disk_entries": count,
        "entries": count,
        "directory_size": len(directory),
        "directory_offset": len(body) + shift,
        "comment_length": len(shape.comment),
    }
    body += directory + shape.gap_after_directory
    if shape.zip64:
        place = {"record_disk": 0, "record_offset": len(body) + shift, "disks": 1}
        locator: Fields = {"signature": b"PK\x06\x07", **place}
        body += pack_zip64(values, shape) + shape.extensible
        body += pack_record(ZIP64_LOCATOR, locator, shape.locator)
        values |= dict.fromkeys(("disk_entries", "entries"), SENTINEL_16)
        values |= dict.fromkeys(("directory_size", "directory_offset"), SENTINEL)
    values |= dict.fromkeys(("disk_entries", "entries"), values["entries"] & SENTINEL_16)
    end = pack_record(EOCD, {**values, "signature": b"PK\x05\x06"}, shape.eocd)
    return bytes(body + shape.gap_before_eocd + end + shape.comment + shape.trailing)


def pack_zip64(values: Fields, shape: Shape) -> bytes:
    """Make the ZIP64 end record, without its extensible data."""
    fixed: Fields = {"signature": b"PK\x06\x06", "made_by": 0x032D, "needed": 45}
    return pack_record(
        ZIP64_EOCD, {**values, **fixed, "record_size": 44 + len(shape.extensible)}, shape.zip64_eocd
    )


# A member whose headers have the CRC-32 of other bytes.
with_wrong_crc = partial(Entry, local={"crc32": 1}, central={"crc32": 1})
AES_METHOD = 99
E = TypeVar("E", bound=Entry)


def encrypt_zipcrypto(plain: bytes, password: bytes, check: int) -> bytes:
    """Encrypt a compressed stream by APPNOTE 6.1; `check` ends the encryption header."""
    keys = [0x12345678, 0x23456789, 0x34567890]
    for byte in password:
        _update_keys(keys, byte)
    out = bytearray()
    for byte in b"r" * 11 + bytes([check]) + plain:
        two = keys[2] & 0xFFFF | 2
        out.append(byte ^ (two * (two ^ 1)) >> 8 & 0xFF)
        _update_keys(keys, byte)
    return bytes(out)


def _update_keys(keys: list[int], byte: int) -> None:
    keys[0] = _crc_step(keys[0], byte)
    keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
    keys[2] = _crc_step(keys[2], keys[1] >> 24)


def _crc_step(crc: int, byte: int) -> int:
    return zlib.crc32(bytes([byte]), crc ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def encrypt_aes(plain: bytes, password: bytes, strength: int = 3) -> bytes:
    """Encrypt a compressed stream as WinZip does; the salt is made of the data's hash."""
    length = 8 + 8 * strength
    salt = hashlib.sha256(plain).digest()[: length // 2]
    keys = hashlib.pbkdf2_hmac("sha1", password, salt, 1000, 2 * length + 2)
    block = AES.new(keys[:length], AES.MODE_ECB)
    count = (len(plain) + 15) // 16
    stream = block.encrypt(b"".join(struct.pack("<QQ", n + 1, 0) for n in range(count)))
    body = bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    code = hmac.new(keys[length : 2 * length], body, "sha1").digest()[:10]
    return salt + keys[2 * length :] + body + code


def aes_extra(method: int, version: int = 2, strength: int = 3) -> bytes:
    """Make the extra field of a WinZip AES member."""
    return extra(0x9901, struct.pack("<H2sBH", version, b"AE", strength, method))


def seal_zipcrypto(entry: E, password: bytes) -> E:
    """Return `entry` encrypted with ZipCrypto; the check byte is Info-ZIP's with a descriptor."""
    high = 0x6C if entry.descriptor else zlib.crc32(entry.content) >> 24  # 0x6C25 is its time
    return replace(
        entry, data=encrypt_zipcrypto(entry.stored_data, password, high), flags=entry.flags | 1
    )


def seal_aes(entry: E, password: bytes, version: int = 2, strength: int = 3) -> E:
    """Return `entry` encrypted with WinZip AES."""
    sealed = replace(
        entry,
        data=encrypt_aes(entry.stored_data, password, strength),
        method=AES_METHOD,
        flags=entry.all_flags | 1,
        extra=entry.extra + aes_extra(entry.method, version, strength),
    )
    if version == 1:
        return sealed
    local, central, described = (
        {**fields, "crc32": 0} for fields in (sealed.local, sealed.central, sealed.described)
    )
    return replace(sealed, local=local, central=central, described=described)


MARKER = b"PK\x07\x08"


class Place(NamedTuple):
    """Where something is: the number of a disk, and the offset on it."""

    disk: int
    offset: int


@dataclass
class Parts:
    """The parts so far."""

    sizes: Sequence[int]
    parts: list[bytearray] = field(default_factory=lambda: [bytearray()])

    @property
    def _room(self) -> int:
        disk = len(self.parts) - 1
        limit = self.sizes[disk] if disk < len(self.sizes) else sys.maxsize
        return max(0, limit - len(self.parts[-1]))

    def add_record(self, record: bytes) -> Place:
        while len(record) > self._room and self.parts[-1]:
            self.parts.append(bytearray())
        place = Place(len(self.parts) - 1, len(self.parts[-1]))
        self.parts[-1] += record
        return place

    def add_data(self, data: bytes) -> None:
        while data:
            room = self._room
            self.parts[-1] += data[:room]
            data = data[room:]
            if data:
                self.parts.append(bytearray())

    def fill(self, place: Place, record: bytes) -> None:
        self.parts[place.disk][place.offset : (place.offset + len(record))] = record


def build_split(
    *entries: Entry, sizes: Sequence[int], shape: Shape | None = None, marker: bytes = MARKER
) -> list[bytes]:
    """Build the parts of a split archive, in order; the last one is the ``.zip``.

    Of `shape` the comment, `zip64`, and the overrides of the end records are used.
    """
    shape = shape or Shape()
    parts = Parts(sizes)
    parts.add_data(marker)
    places = [_add_member(parts, entry) for entry in entries]
    headers = []
    for entry, place in zip(entries, places, strict=True):
        listed = replace(entry, central={"disk": place.disk, **entry.central})
        headers.append((parts.add_record(listed.central_part(place.offset)), listed))
    lengths = [56, 20] if shape.zip64 else []
    ends = [parts.add_record(bytes(one)) for one in (*lengths, 22 + len(shape.comment))]
    start = headers[0][0] if headers else ends[0]
    directory: dict[str, int | bytes] = {
        "directory_disk": start.disk,
        "directory_offset": start.offset,
        "entries": len(entries),
        "directory_size": sum(len(listed.central_part(0)) for _, listed in headers),
    }
    disks = [place.disk for place, _ in headers]
    last = ends[-1].disk
    count = disks.count(last)
    if shape.zip64:
        _fill_zip64(parts, ends, directory, disks, shape)
        directory |= dict.fromkeys(("directory_size", "directory_offset"), SENTINEL)
        count = directory["entries"] = SENTINEL_16
    values = {
        **directory,
        "signature": b"PK\x05\x06",
        "disk": last,
        "disk_entries": count,
        "comment_length": len(shape.comment),
    }
    parts.fill(ends[-1], pack_record(EOCD, values, shape.eocd) + shape.comment)
    return [bytes(part) for part in parts.parts]


def _add_member(parts: Parts, entry: Entry) -> Place:
    place = parts.add_record(entry.local_header())
    parts.add_data(entry.stored_data)
    if descriptor := entry.local_part()[len(entry.local_header() + entry.stored_data) :]:
        parts.add_record(descriptor)
    return place


def _fill_zip64(
    parts: Parts, ends: Sequence[Place], directory: Fields, disks: list[int], shape: Shape
) -> None:
    record, locator, last = ends
    here = {"disk": record.disk, "disk_entries": disks.count(record.disk)}
    parts.fill(record, pack_zip64({**directory, **here}, shape))
    values: Fields = {
        "signature": b"PK\x06\x07",
        "record_disk": record.disk,
        "record_offset": record.offset,
        "disks": last.disk + 1,
    }
    parts.fill(locator, pack_record(ZIP64_LOCATOR, values, shape.locator))


def part_names(stem: str, count: int) -> list[str]:
    """Return the names of the parts of a split archive, as Info-ZIP gives them."""
    return [f"{stem}.z{number:02}" for number in range(1, count)] + [f"{stem}.zip"]


def cut_pieces(raw: bytes, size: int) -> list[bytes]:
    """Cut an archive into pieces, as `split` and 7-Zip do."""
    return [raw[at : at + size] for at in range(0, len(raw), size)]


@cache
def log_lines(size: int, seed: int = 1) -> bytes:
    """Return log lines: copies reach back over every window for ever."""
    dice = random.Random(seed)
    paths = [f"/api/{dice.getrandbits(20):x}" for _ in range(50)]
    lines = [
        f"2026-01-{dice.randrange(28) + 1:02d} {dice.choice(paths)} {dice.getrandbits(24):06x}\n"
        for _ in range(size // 30)
    ]
    return "".join(lines).encode().ljust(size, b".")[:size]


@cache
def mixed_files(size: int, seed: int = 2) -> bytes:
    """Return stretches of text, of noise, of zeros and of text again."""
    stretch = log_lines(200_000) + random.Random(seed).randbytes(30_000) + bytes(20_000)
    return (stretch * (size // len(stretch) + 1))[:size]
