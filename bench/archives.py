"""Large archives for the benches, written member by member; no member is ever in memory.

Deflated members repeat a few chunks. Each chunk is deflated once, with a full flush at its end.
Such a stream is valid, and is written at the speed of the disk. The contents are mixed files or log
lines.
"""

import random
import struct
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO, Self

from isal import isal_zlib

from s3unzip.deflate import crc32_combine
from s3unzip.settings import MIB

STORED, DEFLATED = 0, 8
FLUSHED_END = b"\x03\x00"  # an empty final block with fixed codes
SENTINEL = 0xFFFFFFFF
VERSION = 45  # ZIP64
INPUT = (
    1 << 16
)  # bytes for one call of inflate, because each call copies the input that it does not use


@dataclass(frozen=True, slots=True)
class Content:
    """A member's data: the pieces in the archive, and their sums."""

    method: int
    size: int
    crc32: int
    chunks: tuple[bytes, ...]
    rounds: int = 1  # repetitions of the chunks
    end: bytes = b""
    flags: int = 0  # general purpose bits, APPNOTE 4.4.4
    extra: bytes = b""  # extra fields besides the ZIP64 one

    @property
    def compressed_size(self) -> int:
        return sum(map(len, self.chunks)) * self.rounds + len(self.end)

    def pieces(self) -> Iterator[bytes]:
        for _ in range(self.rounds):
            yield from self.chunks
        yield self.end


def repeat_deflated(samples: list[bytes], size: int) -> Content:
    """Return a deflated member of at least `size` bytes that repeats `samples`."""
    stored = repeat_stored(samples, size)
    chunks = tuple(map(_flushed, samples))
    return replace(stored, method=DEFLATED, chunks=chunks, end=FLUSHED_END)


def repeat_stored(samples: list[bytes], size: int) -> Content:
    """Return a stored member of at least `size` bytes that repeats `samples`."""
    rounds = -(-size // sum(map(len, samples)))
    sums = [(zlib.crc32(sample), len(sample)) for sample in samples]
    crc = length = 0
    for sample_crc, sample_length in sums * rounds:
        crc = crc32_combine(crc, sample_crc, sample_length)
        length += sample_length
    return Content(STORED, length, crc, tuple(samples), rounds)


def deflate_whole(data: bytes, level: int = 6) -> Content:
    """Return a member of one ordinary deflate stream."""
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    return Content(DEFLATED, len(data), zlib.crc32(data), (stream.compress(data) + stream.flush(),))


def inflate_once(content: Content) -> int:
    """Inflate a deflated member with ISA-L and discard the output; return its size."""
    stream = isal_zlib.decompressobj(-zlib.MAX_WBITS)
    size = 0
    for piece in content.pieces():
        for at in range(0, len(piece), INPUT):
            data = piece[at : at + INPUT]
            while output := stream.decompress(data, MIB):
                size += len(output)
                data = stream.unconsumed_tail
    return size


class ArchiveLayout:
    """The records of a ZIP64 archive whose members are written one after the other.

    APPNOTE 4.3.7, 4.3.12, 4.3.14 to 4.3.16. The central directory is in memory, about 100 bytes a
    member; member data is not.
    """

    def __init__(self) -> None:
        self._directory = bytearray()
        self._members = 0
        self._offset = 0

    def open_member(self, name: str, content: Content) -> bytes:
        """Return the local header; the data of `content` follows it directly.

        All sizes are in ZIP64 fields.
        """
        raw = name.encode()
        zip64 = struct.pack("<2H2Q", 1, 16, content.size, content.compressed_size)
        sizes = (content.crc32, SENTINEL, SENTINEL, len(raw))
        common = (VERSION, content.flags, content.method, 0, 0x5C21)
        extra = zip64 + content.extra
        header = struct.pack("<I5H3I2H", 0x04034B50, *common, *sizes, len(extra)) + raw + extra
        zip64 = struct.pack("<2H3Q", 1, 24, content.size, content.compressed_size, self._offset)
        extra = zip64 + content.extra
        self._directory += struct.pack(
            "<I6H3I5H2I",
            *(0x02014B50, 0x0300 | VERSION, *common, *sizes, len(extra)),
            *(0, 0, 0, 0o100644 << 16, SENTINEL),
        )
        self._directory += raw + extra
        self._members += 1
        self._offset += len(header) + content.compressed_size
        return header

    def finish(self) -> bytes:
        """Return the central directory and the end records, which follow the last member."""
        start, size, count = self._offset, len(self._directory), self._members
        record = (0x06064B50, 44, VERSION, VERSION, 0, 0, count, count, size, start)
        last = (0x06054B50, 0, 0, 0xFFFF, 0xFFFF, SENTINEL, SENTINEL, 0)
        return b"".join(
            (
                self._directory,
                struct.pack("<IQ2H2I4Q", *record),
                struct.pack("<2IQI", 0x07064B50, 0, start + size, 1),
                struct.pack("<I4H2IH", *last),
            )
        )


class ArchiveFile:
    """A ZIP64 archive that is written to a file."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._layout = ArchiveLayout()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.write(self._layout.finish())
        self._file.close()

    def add(self, name: str, content: Content) -> None:
        self._file.write(self._layout.open_member(name, content))
        for piece in content.pieces():
            self._file.write(piece)


@cache
def mixed_files(size: int) -> bytes:
    """Return files of this Python and its packages one after the other: source, data, binaries."""
    found = bytearray()
    roots = [Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")]
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    # In an order that ignores content, because neighbours in a folder are too similar.
    for path in sorted(files, key=lambda path: zlib.crc32(str(path.name).encode())):
        # One long compressed file would be one long segment, which is another case.
        if "__pycache__" not in path.parts and path.stat().st_size <= 2 * MIB:
            found += path.read_bytes()
        if len(found) >= size:
            break
    rounds = -(-size // len(found))  # deflate's window does not reach this far back
    return bytes((found * rounds)[:size])


@cache
def log_lines(size: int, seed: int = 1) -> bytes:
    """Return lines of an access log."""
    dice = random.Random(seed)
    hosts = [f"10.0.{dice.randrange(256)}.{dice.randrange(256)}" for _ in range(500)]
    paths = [f"/api/v{dice.randrange(3)}/{dice.getrandbits(16):x}" for _ in range(2_000)]
    lines = [
        f"{dice.choice(hosts)} - - [21/Jan/2026:10:{n // 6000 % 60:02d}:{n // 100 % 60:02d}] "
        f'"GET {dice.choice(paths)} HTTP/1.1" {dice.choice((200, 200, 304, 404))} '
        f"{dice.randrange(50_000)}\n"
        for n in range(min(200_000, size // 60 + 1))
    ]
    block: list[str] = []
    length = 0
    while length < size:
        dice.shuffle(lines)
        block.append("".join(lines))
        length += len(block[-1])
    return "".join(block).encode()[:size]


def noise(size: int, seed: int = 3) -> bytes:
    """Return bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def samples(kind: str, count: int = 4, size: int = 16 * MIB) -> list[bytes]:
    """Return a few stretches of mixed files or log lines."""
    whole = mixed_files(count * size) if kind == "mixed" else log_lines(count * size)
    step = len(whole) // count
    return [whole[n * step : (n + 1) * step] for n in range(count)]


def _flushed(data: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH)
