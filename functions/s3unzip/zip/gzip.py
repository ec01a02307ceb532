"""Members as gzip files (RFC 1952), without compressing anything.

The stream of a deflated member is copied between a header of 10 bytes and a trailer of 8 bytes. It
is inflated only to check it. Any other member is written as stored blocks (RFC 1951, 3.2.4), so all
objects of a run are gzip files whose lengths follow from the directory.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from s3unzip.zip.decode import MemberDecoder
from s3unzip.zip.directory.records import ENCRYPTION_FLAGS, METHOD_DEFLATE
from s3unzip.zip.errors import MemberError
from s3unzip.zip.local import Buffer, find_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.finding import Finding
    from s3unzip.zip.local import OpenedMember
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

_HEADER = struct.Struct("<2sBBIBB")  # magic, method, flags, mtime, effort, system
_TRAILER = struct.Struct("<II")  # CRC-32, size modulo 2^32
_BLOCK = struct.Struct("<BHH")  # final bit and type 0, length, its complement
_MAX_BLOCK = 0xFFFF
_UNKNOWN_SYSTEM = 255


def gzip_length(method: int, flags: int, compressed_size: int, size: int) -> int:
    """Return the length of a member as a gzip file."""
    frame = _HEADER.size + _TRAILER.size
    if _is_kept(method, flags):
        return frame + compressed_size
    return frame + size + _BLOCK.size * max(1, -(-size // _MAX_BLOCK))


def _is_kept(method: int, flags: int) -> bool:
    return method == METHOD_DEFLATE and not flags & ENCRYPTION_FLAGS


class GzipMember:
    """Converts one member to a gzip file.

    With `trust_crc` a deflate stream is not inflated to check it; errors show when the file is
    unpacked. `crc32` is that of the content, when everything was yielded.
    """

    def __init__(
        self,
        member: Member,
        policy: Policy,
        opened: OpenedMember | None = None,
        *,
        trust_crc: bool = False,
    ) -> None:
        """Prepare; see `MemberDecoder`."""
        self._member = member
        self._decoder = MemberDecoder(member, policy, opened)
        self._kept = _is_kept(member.method, member.flags)
        self._trust = trust_crc
        self.crc32 = member.crc32

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What is odd but tolerated, once all was yielded."""
        return self._decoder.warnings

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the file; `pieces` are the member's compressed bytes, all of them.

        Raises:
            MemberError: the content is not what the directory declares.
        """
        mtime = self._member.mtime or 0
        if not 0 <= mtime < 1 << 32:
            mtime = 0  # unknown, by RFC 1952
        yield _HEADER.pack(b"\x1f\x8b", METHOD_DEFLATE, 0, mtime, 0, _UNKNOWN_SYSTEM)
        yield from self._keep(pieces) if self._kept else self._store(pieces)
        yield _TRAILER.pack(self.crc32, self._member.size & 0xFFFF_FFFF)

    def _keep(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        length = 0
        for piece in pieces:
            length += len(piece)
            if not self._trust:
                for _ in self._decoder.feed(piece):
                    pass
            yield piece
        if not self._trust:
            self._decoder.finish()
            if self._decoder.spare:  # tolerated elsewhere, but gzip has no place for them
                message = "bytes after the end of the compressed stream"
                raise MemberError(find_in(self._member, "compressed-trailing-bytes", message))
        elif length != self._member.compressed_size:
            message = f"{length} bytes of {self._member.compressed_size}"
            raise MemberError(find_in(self._member, "stream-truncated", message))

    def _store(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        left = self._member.size
        waiting = bytearray()
        for output in self._decoder.decode(pieces):
            waiting += output
            # The declared size, which the decoder enforces, identifies the last block. It is
            # written after the content was checked.
            whole = min(len(waiting), left - 1) // _MAX_BLOCK * _MAX_BLOCK
            for start in range(0, whole, _MAX_BLOCK):
                yield _BLOCK.pack(0, _MAX_BLOCK, 0)
                yield bytes(waiting[start : start + _MAX_BLOCK])
            del waiting[:whole]
            left -= whole
        self.crc32 = self._decoder.crc32
        yield _BLOCK.pack(1, left, left ^ _MAX_BLOCK)
        yield bytes(waiting)
