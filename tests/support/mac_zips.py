"""Archives as macOS writes them above 4 GiB: no ZIP64, all numbers modulo 2^32.

What they hold are mostly zeros, which take no memory here and no room on a disk.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from isal.isal_zlib import crc32_combine

from s3unzip.zip import ByteRange
from tests.support.zips import DEFLATE, EOCD, STORED, Entry, Fields, pack_record

WRAP = 1 << 32
GIB = 1 << 30
_PIECE = 16 << 20


@dataclass(eq=False)
class Sparse:
    """Bytes that are zeros, but for some pieces."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    size: int = 0

    def add(self, piece: bytes, zeros: int = 0) -> int:
        """Append a piece and zeros; return where the piece lies."""
        at = self.size
        self.pieces[at] = piece
        self.size += len(piece) + zeros
        return at

    def read(self, want: ByteRange) -> bytes:
        assert 0 <= want.start <= want.stop <= self.size, want
        data = bytearray(want.length)
        for at, piece in self.pieces.items():
            start = max(want.start, at)
            stop = min(want.stop, at + len(piece))
            if start < stop:
                data[start - want.start : stop - want.start] = piece[start - at : stop - at]
        return bytes(data)

    def write(self, path: Path) -> Path:
        with path.open("wb") as file:
            for at, piece in self.pieces.items():
                file.seek(at)
                file.write(piece)
            file.truncate(self.size)
        return path


def crc_of_zeros(size: int) -> int:
    """Return the CRC-32 of so many zeros."""
    crc = 0
    unit = zlib.crc32(b"\0")
    length = 1
    while size:
        if size & 1:
            crc = crc32_combine(crc, unit, length)
        unit = crc32_combine(unit, unit, length)
        length *= 2
        size >>= 1
    return crc


def deflate_zeros(size: int) -> bytes:
    """Return a stream of so many zeros, which can be split every 16 MiB."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = stream.compress(bytes(_PIECE)) + stream.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15)
    count, left = divmod(size, _PIECE)
    return piece * count + end.compress(bytes(left)) + end.flush()


@dataclass(frozen=True)
class MacFile:
    """A member of `size` bytes, all zeros: stored, or the deflated `data`.

    `filled` replaces the length of the data by so many zeros, which no decoder takes. `central`,
    `local` and `described` override fields; `before` zeros lie before it. Its local header
    `is_complete`, as that of `ditto`, or has zeros. A descriptor that it announces
    may be absent.
    """

    name: str
    size: int = 0
    data: bytes | None = None
    filled: int | None = None
    method: int = STORED
    flags: int = 8
    central: Fields = field(default_factory=dict)
    local: Fields = field(default_factory=dict)
    described: Fields = field(default_factory=dict)
    local_name: bytes | None = None
    before: int = 0
    is_complete: bool = False
    has_descriptor: bool = True

    @property
    def compressed_size(self) -> int:
        held = self.size if self.data is None else len(self.data)
        return held if self.filled is None else self.filled

    @property
    def entry(self) -> Entry:
        wrapped: Mapping[str, int] = {
            "crc32": crc_of_zeros(self.size),
            "compressed_size": self.compressed_size % WRAP,
            "size": self.size % WRAP,
        }
        return Entry(
            self.name,
            data=self.data or b"",
            method=self.method,
            flags=self.flags,
            extra=b"UX\x08\0" + bytes(8),
            local_extra=b"UX\x0c\0" + bytes(12),
            descriptor="signed32" if self.flags & 8 else None,
            central={"made_by": 0x0315, **wrapped, **self.central},
            local={**(wrapped if self.is_complete or not self.flags & 8 else {}), **self.local},
            described={**wrapped, **self.described},
            local_name=self.local_name,
        )


def deflated(name: str, size: int, **changes: object) -> MacFile:
    """Return a deflated file of zeros."""
    return replace(MacFile(name, size, deflate_zeros(size), method=DEFLATE), **changes)  # type: ignore[arg-type]  # fields of MacFile


def build_mac(
    *files: MacFile,
    headers: Sequence[int] | None = None,
    shift: int = 0,
    eocd: Fields | None = None,
) -> Sparse:
    """Build an archive.

    Args:
        files: in their order.
        headers: their numbers in the order of the directory, if it is another one.
        shift: is added to all offsets.
        eocd: overrides fields of the end record.
    """
    archive = Sparse()
    central: list[bytes] = []
    for file in files:
        archive.size += file.before
        entry = file.entry
        header = entry.local_header() + entry.stored_data
        at = archive.add(header, file.compressed_size - len(entry.stored_data))
        if file.flags & 8 and file.has_descriptor:
            archive.add(entry.local_part()[len(header) :])
        central.append(entry.central_part((at + shift) % WRAP))
    directory = b"".join(central if headers is None else (central[number] for number in headers))
    values: Fields = {
        "signature": b"PK\x05\x06",
        "disk": 0,
        "directory_disk": 0,
        "disk_entries": len(central) & 0xFFFF,
        "entries": len(central) & 0xFFFF,
        "directory_size": len(directory),
        "directory_offset": (archive.size + shift) % WRAP,
        "comment_length": 0,
    }
    archive.add(directory + pack_record(EOCD, values, eocd or {}))
    return archive
