"""Write a member as a gzip file (RFC 1952) without compressing anything.

The stream of a deflated member is copied between a header of 10 bytes and a trailer of 8 bytes, and
inflated only to check it. Any other member is written as stored blocks (RFC 1951, 3.2.4). So all
objects of a run are gzip files, and their lengths follow from the directory.
"""

import struct
from collections.abc import Iterable, Iterator

from s3unzip.zip.checks import Policy
from s3unzip.zip.decode import SPARE_MESSAGE, MemberDecoder
from s3unzip.zip.local import OpenedMember
from s3unzip.zip.records import METHOD_DEFLATE
from s3unzip.zip.values import Buffer, Member

_HEADER_START = b"\x1f\x8b\x08\0"  # magic, deflate, no flags; 4 bytes of time follow
_HEADER_END = b"\0\xff"  # compression level and system: unknown
_GZIP_HEADER_LENGTH = 10
_TRAILER = struct.Struct("<II")  # CRC-32, size modulo 2^32
_STORED_BLOCK = struct.Struct("<BHH")  # final bit (type 0), length, its complement
_MAX_BLOCK = 0xFFFF


def gzip_length(member: Member) -> int:
    """Return the length of a member as a gzip file."""
    frame = _GZIP_HEADER_LENGTH + _TRAILER.size
    if _is_copied(member):
        return frame + member.compressed_size
    blocks = max(1, -(-member.size // _MAX_BLOCK))  # rounded up; an empty file has one block
    return frame + member.size + _STORED_BLOCK.size * blocks


def _is_copied(member: Member) -> bool:
    """Return whether the gzip file contains the member's compressed data unchanged."""
    return member.method == METHOD_DEFLATE and member.cipher is None


class GzipMember(MemberDecoder):
    """Converts one member to a gzip file.

    With `trust_crc` a deflate stream is not inflated to check it; its errors appear when a reader
    unpacks the file. After everything was yielded, `crc32` is the CRC-32 of the content.
    """

    def __init__(
        self,
        member: Member,
        policy: Policy,
        opened: OpenedMember | None = None,
        max_size: int | None = None,
        *,
        trust_crc: bool = False,
    ) -> None:
        super().__init__(member, policy, opened, max_size)
        self._trusts_crc = trust_crc

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the gzip file; `pieces` are all of the member's compressed bytes."""
        mtime = self._member.mtime or 0
        if not 0 <= mtime < 1 << 32:
            mtime = 0  # RFC 1952: unknown
        yield _HEADER_START + mtime.to_bytes(4, "little") + _HEADER_END
        if not _is_copied(self._member):
            yield from self._store(pieces)
        elif self._trusts_crc:
            yield from self._copy_unchecked(pieces)
        else:
            yield from self._copy_checked(pieces)
        yield _TRAILER.pack(self.crc32, self._member.size & 0xFFFF_FFFF)

    def _copy_checked(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the stream; inflate it only to check it."""
        for data in pieces:
            for _ in self.feed(data):
                pass
            yield data
        self.finish()
        if self._codec.spare:  # a lenient policy allows spare bytes, but gzip has no place for them
            self._member.fail("compressed-trailing-bytes", SPARE_MESSAGE)

    def _copy_unchecked(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the stream; check only its length, and trust the declared CRC-32."""
        length = 0
        for data in pieces:
            length += len(data)
            yield data
        self.crc32 = self._member.crc32
        if length != self._member.compressed_size:
            self._member.fail(
                "stream-truncated", f"{length} bytes of {self._member.compressed_size}"
            )

    def _store(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the content as stored blocks; check it before the last block."""
        content_left = self._member.size
        waiting = bytearray()
        for output in super().decode(pieces):
            waiting += output
            # At least one byte stays for the last block, which has the final bit. The decoder
            # enforces the declared size.
            full_blocks = min(len(waiting), content_left - 1) // _MAX_BLOCK
            for start in range(0, full_blocks * _MAX_BLOCK, _MAX_BLOCK):
                # Not final. The complement of the maximum length is 0.
                yield _STORED_BLOCK.pack(0, _MAX_BLOCK, 0)
                yield bytes(waiting[start : start + _MAX_BLOCK])
            del waiting[: full_blocks * _MAX_BLOCK]
            content_left -= full_blocks * _MAX_BLOCK
        # The final block. The exclusive or with 16 set bits is the complement of its length.
        yield _STORED_BLOCK.pack(1, content_left, content_left ^ _MAX_BLOCK)
        yield bytes(waiting)
