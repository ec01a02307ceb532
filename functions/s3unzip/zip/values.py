"""The values that all modules of the ZIP core share: ranges of bytes, ciphers, members.

A function that needs bytes returns `Reads`, a generator that yields the `ByteRange` it needs, is
sent exactly those bytes, and returns a value. `drive` runs it with any function that reads a range.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.finding import Finding, MemberError, RejectedError
from s3unzip.zip.checks import Policy

T = TypeVar("T")
Buffer = bytes | memoryview

WRAP = 1 << 32  # numbers of 32 bits are modulo this
# Not one of APPNOTE's 16 flags: the headers may have only the lower 32 bits of the sizes.
FLAG_WRAPPED = 1 << 17

SHOWN_NAME = 200  # characters of a name in messages


def reject(code: str, message: str, offset: int | None = None) -> NoReturn:
    """Refuse the archive."""
    raise RejectedError(Finding(code, message, offset))


class ByteRange(NamedTuple):
    """Bytes of the archive from `start` up to but not including `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


Reads = Generator[ByteRange, bytes, T]


def drive(reads: Reads[T], read: Callable[[ByteRange], bytes]) -> T:
    """Run `reads` to its end; answer each range with `read`."""
    try:
        byte_range = next(reads)
        while True:
            byte_range = reads.send(read(byte_range))
    except StopIteration as end:
        value: T = end.value
        return value


class Cipher(NamedTuple):
    """How a member is encrypted.

    Version 0 is ZipCrypto (APPNOTE 6.1). Versions 1 and 2 are AE-1 and AE-2 of WinZip AES: AE-1
    declares the CRC-32, AE-2 declares 0. Strengths 1, 2, 3 are AES keys of 128, 192, 256 bits.
    https://www.winzip.com/en/support/aes-encryption/
    """

    version: int = 0
    strength: int = 0

    @property
    def key_length(self) -> int:
        """Bytes of each of the two keys of AES."""
        return 8 + 8 * self.strength

    @property
    def overhead(self) -> int:
        """Bytes that the encryption adds: a header, or with AES salt, verifier and code."""
        if not self.version:
            return 12
        return self.key_length // 2 + 2 + 10  # the salt is half as long as a key


class Member(Struct, frozen=True, array_like=True, gc=False):
    """One member to extract, as the central directory describes it.

    `index` is its number in the central directory. `path` is the normalised name. `raw_name` is the
    declared name, None if that is `path` in ASCII. `offset` is the absolute offset of the local
    header. At `stop` the next listed local header begins, or the directory: the member must end
    there or before. `method` is the compression method (APPNOTE 4.4.5), even with a `cipher`.
    `flags` are the 16 bits of APPNOTE 4.4.4, `records.FLAG_REPARSE` and `FLAG_WRAPPED`: with
    `FLAG_WRAPPED` only the lower 32 bits of `size` are certain. `mtime` is in Unix seconds (the
    extended timestamp, else the DOS time read as UTC). `mode` has Unix mode bits. Both are None if
    they are unknown.
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
        """The declared name."""
        if self.raw_name is None:
            return self.path.encode("ascii")
        return self.raw_name

    @property
    def declares_crc(self) -> bool:
        """Whether the directory declares the CRC-32."""
        return self.cipher is None or self.cipher.version != 2

    @property
    def is_wrapped(self) -> bool:
        """Whether only the lower 32 bits of the size are known (see `wrapped`)."""
        return bool(self.flags & FLAG_WRAPPED)

    @property
    def is_long(self) -> bool:
        """Whether its headers certainly have only the lower 32 bits of its sizes."""
        return self.is_wrapped and self.compressed_size >= WRAP

    def has_size(self, size: int) -> bool:
        """Return whether the member can have `size` bytes of content."""
        return size == self.size or (self.is_wrapped and (size - self.size) % WRAP == 0)

    def with_crc(self, crc32: int) -> Member:
        """Return the member with this CRC-32, as if the directory declared it."""
        # AE-2 becomes AE-1, which declares the CRC-32. ZipCrypto (version 0) does so already.
        cipher = self.cipher and self.cipher._replace(version=min(self.cipher.version, 1))
        return replace(self, crc32=crc32, cipher=cipher)

    def finding(self, code: str, message: str, at: int | None = None) -> Finding:
        """Return a finding about the member, by default at its local header."""
        return Finding(code, message, self.offset if at is None else at, self.path[:SHOWN_NAME])

    def fail(self, code: str, message: str, at: int | None = None) -> NoReturn:
        """Refuse the member."""
        raise MemberError(self.finding(code, message, at))

    def judge(self, code: str, message: str, policy: Policy) -> None:
        """Refuse the member, unless the code is only a warning under this policy."""
        if not policy.tolerates(code):
            self.fail(code, message)
