"""The members of the acceptance set's archives: the same bytes on every machine.

A member is a short head with its number, followed by a repeated unit. So a unit of some megabytes
gives a member of any size, and every byte can be computed again. No two compressed members are
equal, because the head is a separate deflate block.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from Crypto.Cipher import AES
from Crypto.Util import Counter

from bench.archives import (
    DEFLATED,
    Content,
    deflate_whole,
    log_lines,
    noise,
    repeat_deflated,
    repeat_stored,
)
from s3unzip.deflate import crc32_combine
from s3unzip.settings import KIB, MIB
from s3unzip.zip.directory.records import FLAG_ENCRYPTED

if TYPE_CHECKING:
    from collections.abc import Iterator

STRETCH = 256 * KIB  # of lines, or of noise, within a sample
LINES_SHARE = 0.25  # about the ratio of deflate on log lines
UNIT = 2 * MIB  # repeated in a member of gigabytes
AES_METHOD, AES_FIELD = 99, 0x9901
AES_ROUNDS = 1_000  # of PBKDF2: winzip.com/en/support/aes-encryption
AES_256 = 3


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive to write, with its plain bytes."""

    name: str
    content: Content
    head: bytes
    unit: bytes  # repeated after the head
    size: int  # bytes of the plain content

    def plain(self, offset: int, length: int) -> bytes:
        """Return the plain bytes [offset, offset + length), fewer at the end of the member."""
        stop = min(self.size, offset + length)
        found = bytearray(self.head[offset:stop])
        while offset + len(found) < stop:
            at = (offset + len(found) - len(self.head)) % len(self.unit)
            found += self.unit[at : at + stop - offset - len(found)]
        return bytes(found)


@cache
def sample(size: int, share: float) -> bytes:
    """Return `size` bytes that deflate compresses to about `share`: log lines and noise."""
    random_share = max(0.0, (share - LINES_SHARE) / (1 - LINES_SHARE))
    lines = log_lines(min(size, UNIT))
    found = bytearray()
    while len(found) < size:
        stretch = min(STRETCH, size - len(found))
        at = len(found) % max(1, len(lines) - stretch)
        random_bytes = round(stretch * random_share)
        found += lines[at : at + stretch - random_bytes]
        found += noise(random_bytes, seed=len(found))
    return bytes(found[:size])


def small_member(number: int, size: int, share: float) -> Member:
    """Return the deflated member `number` of `size` bytes; each number gives another one."""
    head = b"member %012d\n" % number
    unit, packed, crc = _packed(max(1, size - len(head)), share)
    # RFC 1951, 3.2.4: a stored block that is not the last one; its length is there twice.
    block = b"\x00" + struct.pack("<2H", len(head), 0xFFFF ^ len(head)) + head
    whole = len(head) + len(unit)
    crc = crc32_combine(zlib.crc32(head), crc, len(unit))
    content = Content(DEFLATED, whole, crc, (block, packed))
    return Member(f"{number % 40:02}/{number:06}.txt", content, head, unit, whole)


@cache
def _packed(size: int, share: float) -> tuple[bytes, bytes, int]:
    unit = sample(size, share)
    (packed,) = deflate_whole(unit, level=1).chunks
    return unit, packed, zlib.crc32(unit)


def large_member(name: str, size: int, share: float) -> Member:
    """Return a deflated member of at least `size` bytes that keeps only one unit in memory."""
    unit = sample(UNIT, share)
    content = repeat_deflated([unit], size)
    return Member(name, content, b"", unit, content.size)


def stored_member(name: str, size: int) -> Member:
    """Return a stored member of at least `size` bytes."""
    unit = noise(MIB)
    content = repeat_stored([unit], size)
    return Member(name, content, b"", unit, content.size)


def corrupt(member: Member) -> Member:
    """Return the member with a wrong CRC-32."""
    return replace(member, content=replace(member.content, crc32=member.content.crc32 ^ 1))


def encrypt(member: Member, password: bytes, version: int) -> Member:
    """Return the member encrypted with WinZip AES-256 (winzip.com/en/support/aes-encryption).

    Args:
        member: a small one; its data is put together in memory.
        password: of the archive.
        version: 1 (AE-1) declares the CRC-32, 2 (AE-2) leaves it out.
    """
    content = member.content
    plain = b"".join(content.pieces())
    salt = hashlib.sha256(plain).digest()[:16]
    keys = hashlib.pbkdf2_hmac("sha1", password, salt, AES_ROUNDS, 66)
    counter = Counter.new(128, initial_value=1, little_endian=True)
    body = AES.new(keys[:32], AES.MODE_CTR, counter=counter).encrypt(plain)
    code = hmac.new(keys[32:64], body, "sha1").digest()[:10]
    field = struct.pack("<2HH2sBH", AES_FIELD, 7, version, b"AE", AES_256, content.method)
    sealed = Content(
        method=AES_METHOD,
        size=content.size,
        crc32=content.crc32 if version == 1 else 0,
        chunks=(salt + keys[64:] + body + code,),
        flags=FLAG_ENCRYPTED,
        extra=field,
    )
    return replace(member, content=sealed)


def small_members(count: int, size: int, share: float) -> Iterator[Member]:
    """Yield members 0 to `count`, each of `size` bytes."""
    for number in range(count):
        yield small_member(number, size, share)
