"""The archives of the acceptance set, generated during the upload: the same bytes on every machine.

An archive is never on disk, and never completely in memory. A large member is a repeated unit of
some megabytes. A small one begins with its number, a separate deflate block: no two are equal.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from boto3.s3.transfer import TransferConfig, create_transfer_manager

from bench.archives import (
    DEFLATED,
    ArchiveLayout,
    Content,
    deflate_whole,
    log_lines,
    noise,
    repeat_deflated,
    repeat_stored,
)
from s3unzip.deflate import crc32_combine
from s3unzip.settings import KIB, MIB
from s3unzip.zip.records import FLAG_ENCRYPTED
from tests.support.zips import AES_METHOD, aes_extra, encrypt_aes

# 10,000 parts of 16 MiB are 156 GiB; at most about 14 of them are in memory at once.
TRANSFER = TransferConfig(
    multipart_threshold=16 * MIB, multipart_chunksize=16 * MIB, max_concurrency=4
)
STRETCH = 256 * KIB  # of lines, or of noise, within a sample
LINES_SHARE = 0.25  # about the ratio of deflate on log lines
UNIT = 2 * MIB  # repeated in a member of gigabytes


class Member(NamedTuple):
    """One member of an archive to write."""

    name: str
    content: Content


@dataclass(frozen=True)
class Archive:
    """An archive that can be generated many times, each time with the same bytes.

    `members` yields the members in order. `cut` bytes are missing at the end, which breaks the
    archive.
    """

    members: Callable[[], Iterator[Member]]
    count: int
    cut: int = 0

    def pieces(self) -> Iterator[bytes]:
        layout = ArchiveLayout()
        for member in self.members():
            yield layout.open_member(member.name, member.content)
            yield from member.content.pieces()
        end = layout.finish()
        yield end[: len(end) - self.cut]


class _PieceReader:
    """What boto3 needs of a file: consecutive pieces, read to their end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int = sys.maxsize) -> bytes:
        found = [self._left]
        while sum(map(len, found)) < size and (piece := next(self._pieces, None)) is not None:
            found.append(piece)
        data = b"".join(found)
        self._left = data[size:]
        return data[:size]


def upload(client: Any, bucket: str, key: str, archive: Archive) -> None:
    """Upload the archive as one object, in parts if it is large."""
    with create_transfer_manager(client, TRANSFER) as manager:
        body: Any = _PieceReader(archive.pieces())  # it has what is needed of a file
        manager.upload(body, bucket, key).result()


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
    rest, packed, crc = _packed(max(1, size - len(head)), share)
    # RFC 1951, 3.2.4: a stored block that is not the last one; its length is there twice.
    block = b"\x00" + struct.pack("<2H", len(head), 0xFFFF ^ len(head)) + head
    crc = crc32_combine(zlib.crc32(head), crc, rest)
    content = Content(DEFLATED, len(head) + rest, crc, (block, packed))
    return Member(f"{number % 40:02}/{number:06}.txt", content)


@cache
def _packed(size: int, share: float) -> tuple[int, bytes, int]:
    unit = sample(size, share)
    (packed,) = deflate_whole(unit, level=1).chunks
    return len(unit), packed, zlib.crc32(unit)


def large_member(name: str, size: int, share: float) -> Member:
    """Return a deflated member of at least `size` bytes that keeps only one unit in memory."""
    return Member(name, repeat_deflated([sample(UNIT, share)], size))


def stored_member(name: str, size: int) -> Member:
    """Return a stored member of at least `size` bytes."""
    return Member(name, repeat_stored([noise(MIB)], size))


def corrupt(member: Member) -> Member:
    """Return the member with a wrong CRC-32."""
    return member._replace(content=replace(member.content, crc32=member.content.crc32 ^ 1))


def encrypt(member: Member, password: bytes, version: int) -> Member:
    """Return the member encrypted with WinZip AES-256 (winzip.com/en/support/aes-encryption).

    Args:
        member: a small one; its data is put together in memory.
        password: of the archive.
        version: 1 (AE-1) declares the CRC-32, 2 (AE-2) leaves it out.
    """
    content = member.content
    sealed = Content(
        method=AES_METHOD,
        size=content.size,
        crc32=content.crc32 if version == 1 else 0,
        chunks=(encrypt_aes(b"".join(content.pieces()), password),),
        flags=FLAG_ENCRYPTED,
        extra=aes_extra(content.method, version),
    )
    return member._replace(content=sealed)


def small_members(count: int, size: int, share: float) -> Iterator[Member]:
    """Yield members 0 to `count`, each of `size` bytes."""
    for number in range(count):
        yield small_member(number, size, share)
