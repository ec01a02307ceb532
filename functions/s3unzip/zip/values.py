"""The values that all modules of the ZIP core share: ranges of bytes, ciphers, members, disks.

A function that needs bytes returns `Reads`. This generator yields a `ByteRange`, receives exactly
the bytes in this range, and at its end returns a value. `drive` runs the generator with any
function that reads a range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import Finding, MemberError, RejectedError
from s3unzip.zip.checks import Policy

T = TypeVar("T")
Buffer = bytes | memoryview

WRAP = 1 << 32  # the modulus of 32-bit numbers
# A flag that APPNOTE does not define: the headers may contain only the lower 32 bits of the sizes.
FLAG_WRAPPED = 1 << 17

SHOWN_NAME = 200  # maximum length of a name in messages, in characters


def reject(
    code: str, message: str, offset: int | None = None, member: str | None = None
) -> NoReturn:
    """Refuse the archive; `member` is the printable name of the member with the fault, if any."""
    raise RejectedError(Finding(code, message, offset, member))


class ByteRange(NamedTuple):
    """The range of bytes in the archive from `start` up to but not including `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """The number of bytes in the range."""
        return self.stop - self.start


Reads = Generator[ByteRange, bytes, T]


def drive(reads: Reads[T], read: Callable[[ByteRange], bytes]) -> T:
    """Run `reads` to its end and return its value; `read` returns the bytes in a given range."""
    try:
        byte_range = next(reads)
        while True:
            byte_range = reads.send(read(byte_range))
    except StopIteration as end:  # raised when the generator returns
        value: T = end.value
        return value


class Cipher(NamedTuple):
    """How a member is encrypted.

    Version 0 is ZipCrypto (APPNOTE 6.1). Versions 1 and 2 are AE-1 and AE-2 of WinZip AES: AE-1
    declares the CRC-32, and AE-2 declares 0. Strengths 1, 2 and 3 stand for AES keys of 128, 192
    and 256 bits.
    https://www.winzip.com/en/support/aes-encryption/
    """

    version: int = 0
    strength: int = 0

    @property
    def key_length(self) -> int:
        """The length in bytes of each of the two keys for WinZip AES."""
        return 8 + 8 * self.strength

    @property
    def overhead(self) -> int:
        """The number of bytes that encryption adds.

        ZipCrypto adds a header; WinZip AES adds a salt, a verifier and an authentication code.
        """
        if not self.version:  # 0 means ZipCrypto
            return 12
        return self.key_length // 2 + 2 + 10  # the salt is half as long as a key


class Member(Struct, frozen=True, array_like=True, gc=False):
    """One member to extract, as the central directory describes it.

    `index` is the number of the member in the central directory. `path` is the normalised name.
    `raw_name` is the declared name, or None if the declared name is ASCII and equal to `path`.
    `offset` is the absolute offset of the local header. The member must end at or before `stop`,
    which is the offset of the next listed local header or of the directory. `method` is the
    compression method (APPNOTE 4.4.5), even if there is a `cipher`. `flags` contains the 16 bits of
    APPNOTE 4.4.4, `records.FLAG_REPARSE` and `FLAG_WRAPPED`. With `FLAG_WRAPPED`, only the lower 32
    bits of `size` are certain. `mtime` is the modification time in Unix seconds. An extra field can
    contain this time; otherwise, the DOS time is read as UTC. `mode` contains Unix mode bits.
    `mtime` and `mode` are None if they are unknown.
    """

    index: int
    path: str
    raw_name: bytes | None
    offset: int
    stop: int
    compressed_size: int
    size: int
    crc32: int
    method: int
    flags: int
    mtime: int | None
    mode: int | None
    cipher: Cipher | None = None

    @property
    def name_bytes(self) -> bytes:
        """The declared name, which is ASCII and equal to `path` if there is no `raw_name`."""
        if self.raw_name is None:
            return self.path.encode("ascii")
        return self.raw_name

    @property
    def decrypted_length(self) -> int:
        """The length of the compressed data in bytes, without the bytes that encryption adds."""
        if self.cipher is None:
            return self.compressed_size
        return self.compressed_size - self.cipher.overhead

    @property
    def declares_crc(self) -> bool:
        """Whether the directory declares the CRC-32."""
        return self.cipher is None or self.cipher.version != 2

    @property
    def is_wrapped(self) -> bool:
        """Whether only the lower 32 bits of the size are known (see `wrapped`)."""
        return bool(self.flags & FLAG_WRAPPED)

    def has_size(self, size: int) -> bool:
        """Return whether the member can have `size` bytes of content."""
        return size == self.size or (self.is_wrapped and (size - self.size) % WRAP == 0)

    def with_crc(self, crc32: int) -> Member:
        """Return a copy with the given CRC-32, as if the directory had declared that CRC-32."""
        cipher = self.cipher
        if cipher is not None and cipher.version == 2:
            cipher = cipher._replace(version=1)  # AE-1, which declares the CRC-32
        return replace(self, crc32=crc32, cipher=cipher)

    def finding(self, code: str, message: str, at: int | None = None) -> Finding:
        """Return a finding about the member, by default at its local header."""
        return Finding(code, message, self.offset if at is None else at, self.path[:SHOWN_NAME])

    def fail(self, code: str, message: str, at: int | None = None) -> NoReturn:
        """Refuse the member: raise `MemberError`."""
        raise MemberError(self.finding(code, message, at))

    def fail_size(self, code: str, message: str, at: int | None = None) -> NoReturn:
        """Refuse the member because a size differs; see `fail`.

        If the headers certainly contain only the lower 32 bits of the sizes, "size-unproven"
        replaces the code.
        """
        # Without ZIP64, no header can declare a compressed size of 4 GiB or more. This size was
        # computed from offsets, so the headers contain only its lower 32 bits.
        if self.is_wrapped and self.compressed_size >= WRAP:
            code = "size-unproven"
        self.fail(code, message, at)

    def fail_unless_tolerated(self, code: str, message: str, policy: Policy) -> None:
        """Refuse the member, unless the code is only a warning under this policy."""
        if not policy.tolerates(code):
            self.fail(code, message)


class Disks:
    """The disks of a split archive (APPNOTE 8): files of the given sizes, read in sequence.

    The records of a split archive contain the number of a disk and an offset on that disk, which
    this class converts to an absolute offset. An archive that was written as a whole and then cut
    into files counts as one disk, because the records do not count the files. If there is only one
    disk, this class does not compare offsets with the size of the disk, because other checks refuse
    offsets outside the archive.
    """

    def __init__(self, sizes: Sequence[int] = ()) -> None:
        self._stops = tuple(accumulate(sizes))
        self.starts = (0, *self._stops[:-1])

    @property
    def last(self) -> int:
        """The number of the last disk."""
        return len(self.starts) - 1

    @property
    def is_split(self) -> bool:
        """Whether there is more than one disk."""
        return len(self.starts) > 1

    def absolute(self, disk: int, offset: int) -> int:
        """Return the absolute offset of a byte on `disk`, or `offset` if the disk is missing."""
        if disk > self.last:
            return offset
        return self.starts[disk] + offset

    def describe_missing(self, disk: int, offset: int) -> str | None:
        """Describe the missing disk, or the missing byte at `offset` on an existing disk.

        Returns None if the disk has the byte.
        """
        if disk > self.last:
            return f"disk {disk}"
        if self.is_split and offset >= (length := self._stops[disk] - self.starts[disk]):
            return f"disk {disk} at byte {offset:,}, but this disk has only {length:,} bytes"
        return None

    def disk_of(self, offset: int) -> int:
        """Return the number of the disk that contains the byte at the absolute `offset`."""
        # The last disk that begins at or before the byte.
        return bisect_right(self.starts, offset) - 1


ONE_DISK = Disks()


def find_boundaries(members: Sequence[Member], disks: Disks) -> Iterator[int]:
    """Yield the position of the first member that begins on each disk.

    `members` are in the order of their offsets. A disk on which no member begins is skipped.
    """
    for disk, start in enumerate(disks.starts):
        position = bisect_left(members, start, key=attrgetter("offset"))
        # The first member at or after `start` might begin on a later disk, or might not exist.
        if position < len(members) and disks.disk_of(members[position].offset) == disk:
            yield position
