"""Decompress a member's data and check it against its declared size and CRC-32.

`decode_whole` decodes a small member in one call. A `MemberDecoder` decodes members of any size in
pieces. Both make the same checks. Encrypted data is decrypted first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from isal import isal_zlib
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.finding import MemberError
from s3unzip.zip.checks import Policy
from s3unzip.zip.ciphers import open_cipher
from s3unzip.zip.codecs import CODECS, IGZIP_ERROR, RAW, explain_igzip
from s3unzip.zip.local import OpenedMember
from s3unzip.zip.records import (
    FLAG_REPARSE,
    MAX_DEFLATE_RATIO,
    METHOD_DEFLATE,
    METHOD_STORED,
)
from s3unzip.zip.values import WRAP, Buffer, Member

PIECE_LENGTH = 1 << 20
# Tags of symbolic links and junctions, at the beginning of a REPARSE_DATA_BUFFER ([MS-FSCC] 2.1.2).
_LINK_TAGS = (b"\x0c\0\0\xa0", b"\x03\0\0\xa0")
_LINK_TAG_LENGTH = 4

SPARE_MESSAGE = "bytes after the end of the compressed stream"

_crc32 = isal_zlib.crc32
_inflater = isal_zlib.decompressobj


class MemberDecoder:
    """Decompress one member of any size; input in any pieces, output of at most 1 MiB a piece.

    It never yields a byte beyond the declared size. The output is checked only when `finish` has
    returned. If the member `is_wrapped`, only the lower 32 bits of the size are known: then it
    yields at most `max_size` bytes, and `size` is their number.
    """

    def __init__(
        self,
        member: Member,
        policy: Policy,
        opened: OpenedMember | None = None,
        max_size: int | None = None,
    ) -> None:
        """Prepare to decode; `opened` is the member's local header.

        Without it, one check of the password is skipped. `max_size` is for a member that
        `is_wrapped`; None: what the policy allows.

        Raises:
            MemberError: the member is encrypted, and there is no password.
        """
        self._member = member
        self._policy = policy
        self._cipher = open_cipher(member, policy, opened)
        plain = member
        if member.cipher is not None:
            length = member.compressed_size - member.cipher.overhead
            plain = replace(member, compressed_size=length)
        self._codec = CODECS[member.method](plain, policy)
        self._max_size = member.size
        if member.is_wrapped and max_size is not None:
            self._max_size = max_size
        elif member.is_wrapped:
            self._max_size = largest_size(member, policy)
        self._fed = 0
        self._tag = b""  # the first bytes of the content of a reparse point
        self.warnings: list[str] = []  # their codes, all known once `finish` has returned
        self.size = 0
        self.crc32 = 0

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Yield what `data` decompresses to; exhaust it before feeding again.

        Raises:
            MemberError: the stream is corrupt, too long, or wants too much memory.
        """
        self._fed += len(data)
        if self._cipher is not None:
            data = self._cipher.decrypt(data)
            if not data:  # all of it belongs to the encryption
                return
        self._codec.push(data)
        member = self._member
        with self._doubting():
            while output := self._codec.pull(min(PIECE_LENGTH, self._max_size - self.size + 1)):
                self.size += len(output)
                if self.size > self._max_size:
                    code = "bomb-wrapped-size" if member.is_wrapped else "size-overrun"
                    member.fail(code, f"more than {self._max_size} bytes")
                if member.flags & FLAG_REPARSE and len(self._tag) < _LINK_TAG_LENGTH:
                    self._check_reparse(output)
                self.crc32 = _crc32(output, self.crc32)
                yield output

    def _check_reparse(self, output: Buffer) -> None:
        """Refuse a member whose content begins like a link of Windows."""
        self._tag += bytes(output[:_LINK_TAG_LENGTH])
        if self._tag[:_LINK_TAG_LENGTH] in _LINK_TAGS:
            message = "a reparse point of Windows: a symbolic link or a junction"
            self._member.judge("symlink", message, self._policy)
            self.warnings.append("symlink")

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Add to a finding about the plain data that the password may be wrong, if it may."""
        try:
            yield
        except MemberError as error:
            finding = error.finding
            if self._cipher is not None:
                finding = replace(finding, message=finding.message + self._cipher.doubt)
            raise MemberError(finding) from error.__context__

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the content; `pieces` are the member's compressed bytes, all of them.

        Raises:
            MemberError: the content is not what the directory declares.
        """
        for data in pieces:
            yield from self.feed(data)
        self.finish()

    def finish(self) -> None:
        """Check that the member ended as declared.

        Raises:
            MemberError: it did not.
        """
        with self._doubting():
            self.warnings += check_end(
                self._member,
                self._policy,
                ended=self._codec.ended and self._fed == self._member.compressed_size,
                spare=self._codec.spare,
                size=self.size,
            )
            if self._cipher is not None:
                self._cipher.finish()
            if self._member.declares_crc:
                check_crc(self._member, self.crc32)
            if self._member.is_wrapped and self.size >= WRAP:
                self.warnings.append("size-wrapped")


def largest_size(member: Member, policy: Policy) -> int:
    """Return the largest possible size of a member that `is_wrapped`."""
    largest = member.compressed_size * MAX_DEFLATE_RATIO
    return max(member.size, min(largest, policy.limits.member_size))


def check_end(
    member: Member, policy: Policy, *, ended: bool, spare: int, size: int
) -> tuple[str, ...]:
    """Check how a stream ended; return the warnings."""
    if size > member.size and not member.is_wrapped:
        member.fail("size-overrun", f"more than {member.size} bytes")
    if not ended:
        message = f"no end of the stream within {member.compressed_size} bytes; {size} came out"
        member.fail("stream-truncated", message)
    if not member.has_size(size):
        code = "size-unproven" if member.is_long else "size-mismatch"
        member.fail(code, f"{size} bytes, {member.size} declared")
    if not spare:
        return ()
    member.judge("compressed-trailing-bytes", SPARE_MESSAGE, policy)
    return ("compressed-trailing-bytes",)


def check_crc(member: Member, crc32: int) -> int:
    """Return the data's CRC-32, if it is the declared one.

    Raises:
        MemberError: it is another one.
    """
    if crc32 != member.crc32:
        message = f"the data has {crc32:08x}, declared is {member.crc32:08x}"
        member.fail("crc-mismatch", message)
    return crc32


class Decoded(Struct, frozen=True, gc=False):
    """The verified content of a member."""

    content: Buffer
    crc32: int
    warnings: Sequence[str] = ()  # codes of tolerated findings


def decode_whole(
    member: Member, data: Buffer, policy: Policy, opened: OpenedMember | None = None
) -> Buffer:
    """Return the content of a whole member; see `decode_member`."""
    return decode_member(member, data, policy, opened).content


def decode_member(
    member: Member, data: Buffer, policy: Policy, opened: OpenedMember | None = None
) -> Decoded:
    """Decode a whole member; the content of a stored member is `data` itself.

    `data` has all of the member's compressed bytes. `opened` is its local header, which an
    encrypted member may need. The function allocates at most the declared size and one byte; the
    caller bounds that by choosing members.

    Raises:
        MemberError: the content is not what the directory declares.
    """
    if member.cipher is None and not member.flags & FLAG_REPARSE:
        if member.method == METHOD_DEFLATE:
            return _inflate_whole(member, data, policy)
        if member.method == METHOD_STORED:
            is_whole = len(data) == member.compressed_size
            check_end(member, policy, ended=is_whole, spare=0, size=len(data))
            return Decoded(data, check_crc(member, _crc32(data)))
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(decoder.decode([data]))
    return Decoded(content, decoder.crc32, decoder.warnings)


def _inflate_whole(member: Member, data: Buffer, policy: Policy) -> Decoded:
    """Return the content of a deflated member, with one call of the library."""
    stream = _inflater(RAW)
    try:
        content = stream.decompress(data, member.size + 1)
    except IGZIP_ERROR as error:
        raise MemberError(member.finding("corrupt-stream", explain_igzip(error))) from error
    if len(content) > member.size:
        member.fail("size-overrun", f"more than {member.size} bytes")
    ended = stream.eof and len(data) == member.compressed_size
    warnings: Sequence[str] = ()
    if len(content) != member.size or stream.unused_data or not ended:
        spare = len(stream.unused_data)
        warnings = check_end(member, policy, ended=ended, spare=spare, size=len(content))
    return Decoded(content, check_crc(member, _crc32(content)), warnings)
