"""Decompress a member's data and check it against its declared size and CRC-32.

`decode_whole` decodes a small member in one call. A `MemberDecoder` decodes members of any size in
pieces. Both make the same checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from isal import isal_zlib
from msgspec.structs import replace

from s3unzip.zip.ciphers import open_cipher
from s3unzip.zip.codecs import CODECS, StreamError
from s3unzip.zip.codecs.deflate import IGZIP_ERROR, RAW, tell_igzip
from s3unzip.zip.coding import compression_of, declares_crc, encryption_overhead
from s3unzip.zip.directory.records import ENCRYPTION_FLAGS, METHOD_DEFLATE, METHOD_STORED
from s3unzip.zip.errors import MemberError
from s3unzip.zip.local import Buffer, find_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.finding import Finding
    from s3unzip.zip.local import OpenedMember
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

PIECE_LENGTH = 1 << 20

_crc32 = isal_zlib.crc32
_inflater = isal_zlib.decompressobj


class MemberDecoder:
    """Decompress one member of any size; input in any pieces, output of at most 1 MiB a piece.

    It never yields a byte beyond the declared size. The output is checked only when `finish` has
    returned.
    """

    def __init__(self, member: Member, policy: Policy, opened: OpenedMember | None = None) -> None:
        """Prepare to decode; `opened` is the member's local header.

        Without it, one check of the password is skipped.

        Raises:
            MemberError: the member is encrypted, or its method is not read.
        """
        self._member, self._policy = member, policy
        self._cipher = open_cipher(member, policy, opened)
        method = compression_of(member.method)
        codec = CODECS.get(method)
        if codec is None:
            self._fail("unsupported-method", f"compression method {method}")
        overhead = encryption_overhead(member.method, member.flags)
        length = member.compressed_size - overhead
        plain = member._replace(method=method, compressed_size=length) if overhead else member
        self._codec = codec(plain, policy)
        self._fed = 0
        self.warnings: tuple[Finding, ...] = ()  # known once `finish` has returned
        self.size = 0
        self.crc32 = 0

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Yield what `data` decompresses to; exhaust it before feeding again.

        Raises:
            MemberError: the stream is corrupt, too long, or wants too much memory.
        """
        self._fed += len(data)
        if self._fed > self._member.compressed_size:
            raise ValueError(f"fed {self._fed} of {self._member.compressed_size} bytes")
        if self._cipher is not None:
            data = self._cipher.decrypt(data)
            if not data:  # all of it belongs to the encryption
                return
        self._codec.push(data)
        while piece := self._pull():
            self.size += len(piece)
            if self.size > self._member.size:
                self._fail("size-overrun", f"more than the declared {self._member.size} bytes")
            self.crc32 = _crc32(piece, self.crc32)
            yield piece

    @property
    def spare(self) -> int:
        """Bytes after the end of the compressed stream; see `Codec`."""
        return self._codec.spare

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the content; `pieces` are the member's compressed bytes, all of them.

        Raises:
            MemberError: the content is not what the directory declares.
        """
        for piece in pieces:
            yield from self.feed(piece)
        self.finish()

    def finish(self) -> None:
        """Check that the member ended as declared.

        Raises:
            MemberError: it did not.
        """
        try:
            self.warnings = check_end(
                self._member,
                self._policy,
                ended=self._codec.ended and self._fed == self._member.compressed_size,
                spare=self._codec.spare,
                size=self.size,
            )
            if self._cipher is not None:
                self._cipher.finish()
            if declares_crc(self._member.method):
                check_crc(self._member, self.crc32)
        except MemberError as error:
            raise self._doubt(error.finding) from None

    def _pull(self) -> Buffer:
        left = self._member.size - self.size
        try:
            return self._codec.pull(min(PIECE_LENGTH, left + 1))
        except StreamError as error:
            self._fail(error.code, str(error))

    def _fail(self, code: str, message: str) -> NoReturn:
        raise self._doubt(find_in(self._member, code, message))

    def _doubt(self, finding: Finding) -> MemberError:
        doubt = "" if self._cipher is None else self._cipher.doubt
        return MemberError(replace(finding, message=finding.message + doubt))


def check_end(
    member: Member, policy: Policy, *, ended: bool, spare: int, size: int
) -> tuple[Finding, ...]:
    """Check how a stream ended; return the warnings.

    Raises:
        MemberError: it did not end as the directory declares.
    """
    if size > member.size:
        message = f"more than the declared {member.size} bytes"
        raise MemberError(find_in(member, "size-overrun", message))
    if not ended:
        message = f"no end of the stream within {member.compressed_size} bytes; {size} came out"
        raise MemberError(find_in(member, "stream-truncated", message))
    if size != member.size:
        message = f"{size} bytes, {member.size} declared"
        raise MemberError(find_in(member, "size-mismatch", message))
    if not spare:
        return ()
    message = "bytes after the end of the compressed stream"
    finding = find_in(member, "compressed-trailing-bytes", message)
    if not policy.tolerates(finding.code):
        raise MemberError(finding)
    return (finding,)


def check_crc(member: Member, crc32: int) -> None:
    """Compare the data's CRC-32."""
    if crc32 != member.crc32:
        message = f"the data has {crc32:08x}, declared is {member.crc32:08x}"
        raise MemberError(find_in(member, "crc-mismatch", message))


def decode_whole(
    member: Member,
    data: Buffer,
    policy: Policy,
    opened: OpenedMember | None = None,
    warnings: list[Finding] | None = None,
) -> Buffer:
    """Return the content of a whole member; for a stored member that is `data` itself.

    `data` has all of the member's compressed bytes. `opened` is its local header, which an
    encrypted member may need. Tolerated findings are added to `warnings`. The function allocates at
    most the declared size and one byte; the caller bounds that by choosing members.

    Raises:
        MemberError: the content is not what the directory declares.
    """
    if not member.flags & ENCRYPTION_FLAGS:
        if member.method == METHOD_DEFLATE:
            return _inflate_whole(member, data, policy, warnings)
        if member.method == METHOD_STORED:
            whole = len(data) == member.compressed_size
            check_end(member, policy, ended=whole, spare=0, size=len(data))
            check_crc(member, _crc32(data))
            return data
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(decoder.decode([data]))
    if warnings is not None:
        warnings += decoder.warnings
    return content


def _inflate_whole(
    member: Member, data: Buffer, policy: Policy, warnings: list[Finding] | None
) -> bytes:
    """Return the content of a deflated member, with one call of the library."""
    stream = _inflater(RAW)
    try:
        content = stream.decompress(data, member.size + 1)
    except IGZIP_ERROR as error:
        raise MemberError(find_in(member, "corrupt-stream", tell_igzip(error))) from error
    ended = stream.eof and len(data) == member.compressed_size
    if len(content) != member.size or stream.unused_data or not ended:
        spare = len(stream.unused_data)
        found = check_end(member, policy, ended=ended, spare=spare, size=len(content))
        if warnings is not None:
            warnings += found
    check_crc(member, _crc32(content))
    return content
