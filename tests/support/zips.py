"""Archives for tests, good and bad, made byte by byte.

`build` writes what it is told: every field of every record can be set to any
value, records can be moved, repeated and left out. Nothing here reads ZIPs.

    build(Entry("a.txt", b"hello"))
    build(Entry("a", b"x", local={"crc32": 0}), eocd={"entries": 2}, prefix=b"stub")
"""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import inflate64
import zstandard

Fields = Mapping[str, int | bytes]

STORED, DEFLATE, DEFLATE64, BZIP2, LZMA, ZSTD, XZ = 0, 8, 9, 12, 14, 93, 95
METHODS = (STORED, DEFLATE, DEFLATE64, BZIP2, LZMA, ZSTD, XZ)

# APPNOTE 4.3.7, 4.3.12, 4.3.16, 4.3.14 and 4.3.15: field names and struct formats.
_BOTH = {
    "needed": "H", "flags": "H", "method": "H", "time": "H", "date": "H", "crc32": "I",
    "compressed_size": "I", "size": "I", "name_length": "H", "extra_length": "H",
}  # fmt: skip
LOCAL = {"signature": "4s", **_BOTH}
CENTRAL = {"signature": "4s", "made_by": "H", **_BOTH}
CENTRAL |= dict.fromkeys(("comment_length", "disk", "internal"), "H")
CENTRAL |= {"attributes": "I", "offset": "I"}
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


def pack_record(layout: Mapping[str, str], values: Fields, overrides: Fields) -> bytes:
    """Pack one record; `overrides` win, and may only name fields that exist."""
    unknown = set(overrides) - set(layout)
    if unknown:
        raise ValueError(f"no such fields: {sorted(unknown)}")
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


def _deflate(content: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(content) + stream.flush()


def _deflate64(content: bytes) -> bytes:
    deflater = inflate64.Deflater()
    return bytes(deflater.deflate(content) + deflater.flush())


def _lzma(content: bytes) -> bytes:
    alone = lzma.compress(content, lzma.FORMAT_ALONE)
    return b"\x09\x04\x05\x00" + alone[:5] + alone[13:]


_COMPRESSORS: Mapping[int, Callable[[bytes], bytes]] = {
    DEFLATE: _deflate,
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

    `data` replaces the compressed bytes. `local` and `central` override header
    fields; `descriptor` is one of `DESCRIPTORS`, whose values `described`
    overrides. `after` are stray bytes behind the member;
    `listed` and `present` leave it out of the directory or out of the archive.
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
        flags = self.flags | (0x8 if self.descriptor else 0)
        if self.method == LZMA:
            flags |= 0x2
        return flags | (0x800 if isinstance(self.name, str) and not self.name.isascii() else 0)

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
        values = {**self._values(), "signature": b"PK\x03\x04"}
        values |= {"name_length": len(name), "extra_length": len(block)}
        if self.descriptor:
            values |= {"crc32": 0, "compressed_size": 0, "size": 0}
        return pack_record(LOCAL, values, self.local) + name + block

    def _descriptor(self) -> bytes:
        if self.descriptor is None:
            return b""
        layout = {"crc32": "I", "compressed_size": "I", "size": "I"}
        if self.descriptor.endswith("64"):
            layout |= {"compressed_size": "Q", "size": "Q"}
        signature = b"PK\x07\x08" if self.descriptor.startswith("signed") else b""
        return signature + pack_record(layout, self._values(), self.described)

    def central_part(self, offset: int) -> bytes:
        values = {**self._values(), "signature": b"PK\x01\x02", "made_by": 0x031E, "offset": offset}
        values |= {"extra_length": len(self.extra), "comment_length": len(self.comment)}
        values |= {"disk": 0, "internal": 0, "attributes": self.attributes}
        header = pack_record(CENTRAL, values, self.central)
        return header + self.raw_name + self.extra + self.comment


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything about an archive but its members.

    `prefix` is put before it, and counted in offsets only if `adjusted`.
    `zip64` writes the ZIP64 end records; `extensible` is data at the record's
    end. `gap_*` are stray bytes after the directory and before the end record;
    `directory_tail` lies within the directory's declared size.
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
    values = {"disk": 0, "directory_disk": 0, "disk_entries": count, "entries": count}
    values |= {"directory_size": len(directory), "directory_offset": len(body) + shift}
    body += directory + shape.gap_after_directory
    if shape.zip64:
        place = {"record_disk": 0, "record_offset": len(body) + shift, "disks": 1}
        body += pack_zip64(values, shape) + shape.extensible
        body += pack_record(ZIP64_LOCATOR, {"signature": b"PK\x06\x07", **place}, shape.locator)
        values |= {"disk_entries": 0xFFFF, "entries": 0xFFFF}
        values |= {"directory_size": SENTINEL, "directory_offset": SENTINEL}
    body += shape.gap_before_eocd
    values |= {"disk_entries": values["entries"] & 0xFFFF, "entries": values["entries"] & 0xFFFF}
    values |= {"comment_length": len(shape.comment)}
    body += pack_record(EOCD, {**values, "signature": b"PK\x05\x06"}, shape.eocd)
    return bytes(body + shape.comment + shape.trailing)


def pack_zip64(values: Fields, shape: Shape) -> bytes:
    """Make the ZIP64 end record, without its extensible data."""
    fixed: Fields = {"signature": b"PK\x06\x06", "made_by": 0x032D, "needed": 45}
    size = 44 + len(shape.extensible)
    return pack_record(ZIP64_EOCD, {**values, **fixed, "record_size": size}, shape.zip64_eocd)
