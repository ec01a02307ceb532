"""Decompress a member's data and check it against its declared size and CRC-32.

`decode_whole` decodes a small member in one call. A `MemberDecoder` decodes members of any size in
pieces. Both make the same checks. A `GzipMember` is written as a gzip file (RFC 1952) without
compressing anything: the stream of a deflated member is copied between a header of 10 bytes and a
trailer of 8 bytes, and inflated only to check it. Any other member is written as stored blocks (RFC
1951, 3.2.4), so all objects of a run are gzip files whose lengths follow from the directory.

Encrypted data is decrypted first. A small C extension decrypts ZipCrypto at 80 MB/s; Python code
reaches 0.5 MB/s. pycryptodome decrypts WinZip AES, because its counter mode can count as WinZip
does. Both accept input in pieces of any size. Strong encryption (bit 6 of the flags) is not
supported.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from isal import isal_zlib
from msgspec.structs import replace

from s3unzip.finding import MemberError
from s3unzip.zip.checks import Policy
from s3unzip.zip.codecs import CODECS, IGZIP_ERROR, RAW, explain_igzip
from s3unzip.zip.local import OpenedMember
from s3unzip.zip.records import (
    FLAG_DESCRIPTOR,
    FLAG_REPARSE,
    MAX_DEFLATE_RATIO,
    METHOD_DEFLATE,
    METHOD_STORED,
)
from s3unzip.zip.values import WRAP, Buffer, Cipher, Member

PIECE_LENGTH = 1 << 20
# Tags of symbolic links and junctions, at the beginning of a REPARSE_DATA_BUFFER ([MS-FSCC] 2.1.2).
_LINK_TAGS = (b"\x0c\0\0\xa0", b"\x03\0\0\xa0")
_LINK_TAG_LENGTH = 4

SPARE = "bytes after the end of the compressed stream"

_GZIP_HEADER = struct.Struct("<2sBBIBB")  # magic, method, flags, mtime, effort, system
_GZIP_TRAILER = struct.Struct("<II")  # CRC-32, size modulo 2^32
_BLOCK = struct.Struct("<BHH")  # final bit and type 0, length, its complement
_MAX_BLOCK = 0xFFFF
_UNKNOWN_SYSTEM = 255

_crc32 = isal_zlib.crc32
_inflater = isal_zlib.decompressobj


class MemberDecoder:
    """Decompress one member of any size; input in any pieces, output of at most 1 MiB a piece.

    It never yields a byte beyond the declared size. The output is checked only when `finish` has
    returned.

    If the member `is_wrapped`, the declared size is known in its lower 32 bits: it yields at most
    `max_size` bytes then, and `size` is what they were.
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
        self._member, self._policy = member, policy
        self._cipher = open_cipher(member, policy, opened)
        overhead = 0 if member.cipher is None else member.cipher.overhead
        plain = member._replace(compressed_size=member.compressed_size - overhead)
        self._codec = CODECS[member.method](plain, policy)
        self._max_size = member.size
        if member.is_wrapped:
            self._max_size = largest_size(member, policy) if max_size is None else max_size
        self._fed = 0
        self._head = b""
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
            while piece := self._codec.pull(min(PIECE_LENGTH, self._max_size - self.size + 1)):
                self.size += len(piece)
                if self.size > self._max_size:
                    code = "bomb-wrapped-size" if member.is_wrapped else "size-overrun"
                    member.fail(code, f"more than {self._max_size} bytes")
                if member.flags & FLAG_REPARSE and len(self._head) < _LINK_TAG_LENGTH:
                    self._check_reparse(piece)
                self.crc32 = _crc32(piece, self.crc32)
                yield piece

    def _check_reparse(self, piece: Buffer) -> None:
        """Refuse a member whose content begins as a link of Windows does."""
        self._head += bytes(piece[:_LINK_TAG_LENGTH])
        if self._head[:_LINK_TAG_LENGTH] in _LINK_TAGS:
            message = "a reparse point of Windows: a symbolic link or a junction"
            self._member.judge("symlink", message, self._policy)
            self.warnings.append("symlink")

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Add to what fails the plain data that the password may be wrong, where it may."""
        try:
            yield
        except MemberError as error:
            doubt = "" if self._cipher is None else self._cipher.doubt
            finding = replace(error.finding, message=error.finding.message + doubt)
            raise MemberError(finding) from error.__context__

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
    """Return how large a member can be whose size is known in its lower 32 bits only."""
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
    member.judge("compressed-trailing-bytes", SPARE, policy)
    return ("compressed-trailing-bytes",)


def check_crc(member: Member, crc32: int) -> None:
    """Compare the data's CRC-32."""
    if crc32 != member.crc32:
        message = f"the data has {crc32:08x}, declared is {member.crc32:08x}"
        member.fail("crc-mismatch", message)


def decode_whole(
    member: Member,
    data: Buffer,
    policy: Policy,
    opened: OpenedMember | None = None,
    warnings: list[str] | None = None,
) -> Buffer:
    """Return the content of a whole member; for a stored member that is `data` itself.

    `data` has all of the member's compressed bytes. `opened` is its local header, which an
    encrypted member may need. Codes of tolerated findings are added to `warnings`. The function
    allocates at most the declared size and one byte; the caller bounds that by choosing members.

    Raises:
        MemberError: the content is not what the directory declares.
    """
    if member.cipher is None and not member.flags & FLAG_REPARSE:
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
    member: Member, data: Buffer, policy: Policy, warnings: list[str] | None
) -> bytes:
    """Return the content of a deflated member, with one call of the library."""
    stream = _inflater(RAW)
    try:
        content = stream.decompress(data, member.size + 1)
    except IGZIP_ERROR as error:
        raise MemberError(member.finding("corrupt-stream", explain_igzip(error))) from error
    if len(content) > member.size:
        member.fail("size-overrun", f"more than {member.size} bytes")
    ended = stream.eof and len(data) == member.compressed_size
    if len(content) != member.size or stream.unused_data or not ended:
        spare = len(stream.unused_data)
        found = check_end(member, policy, ended=ended, spare=spare, size=len(content))
        if warnings is not None:
            warnings += found
    check_crc(member, _crc32(content))
    return content


def gzip_length(member: Member) -> int:
    """Return the length of a member as a gzip file."""
    frame = _GZIP_HEADER.size + _GZIP_TRAILER.size
    if _is_kept(member):
        return frame + member.compressed_size
    return frame + member.size + _BLOCK.size * max(1, -(-member.size // _MAX_BLOCK))


def _is_kept(member: Member) -> bool:
    return member.method == METHOD_DEFLATE and member.cipher is None


class GzipMember(MemberDecoder):
    """Converts one member to a gzip file.

    With `trust_crc` a deflate stream is not inflated to check it; errors show when the file is
    unpacked. `crc32` is that of the content, when everything was yielded.
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
        self._trust = trust_crc

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the file; see `MemberDecoder`."""
        mtime = self._member.mtime or 0
        if not 0 <= mtime < 1 << 32:
            mtime = 0  # unknown, by RFC 1952
        yield _GZIP_HEADER.pack(b"\x1f\x8b", METHOD_DEFLATE, 0, mtime, 0, _UNKNOWN_SYSTEM)
        yield from self._keep(pieces) if _is_kept(self._member) else self._store(pieces)
        yield _GZIP_TRAILER.pack(self.crc32, self._member.size & 0xFFFF_FFFF)

    def _keep(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        length = 0
        for piece in pieces:
            length += len(piece)
            if not self._trust:
                for _ in self.feed(piece):
                    pass
            yield piece
        if self._trust:
            self.crc32 = self._member.crc32
            if length != self._member.compressed_size:
                message = f"{length} bytes of {self._member.compressed_size}"
                self._member.fail("stream-truncated", message)
            return
        self.finish()
        if self._codec.spare:  # tolerated elsewhere, but gzip has no place for them
            self._member.fail("compressed-trailing-bytes", SPARE)

    def _store(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        left = self._member.size
        waiting = bytearray()
        for output in super().decode(pieces):
            waiting += output
            # The declared size, which the decoder enforces, identifies the last block. It is
            # written after the content was checked.
            whole = min(len(waiting), left - 1) // _MAX_BLOCK * _MAX_BLOCK
            for start in range(0, whole, _MAX_BLOCK):
                yield _BLOCK.pack(0, _MAX_BLOCK, 0)
                yield bytes(waiting[start : start + _MAX_BLOCK])
            del waiting[:whole]
            left -= whole
        yield _BLOCK.pack(1, left, left ^ _MAX_BLOCK)
        yield bytes(waiting)


_ZIPCRYPTO_HEADER = 12  # random bytes, the last one a check of the password (6.1.5, 6.1.6)
_AES_VERIFIER = 2
_AES_MAC = 10
_ROUNDS = 1000  # of PBKDF2, as WinZip fixed them


# Decryption


def open_cipher(
    member: Member, policy: Policy, opened: OpenedMember | None
) -> _ZipCrypto | _WinZipAes | None:
    """Return the member's cipher, or None where its data is not encrypted.

    It decrypts the data in order. Its `doubt` is added to a finding about the plain data: it says
    that the password may be wrong, where nothing has proved it right.
    """
    if member.cipher is None:
        return None
    if policy.password is None:
        member.fail("encrypted", "no password is given")
    if member.cipher.version:
        return _WinZipAes(member, member.cipher, policy.password)
    return _ZipCrypto(member, policy.password, opened)


class _ZipCrypto:
    """Traditional encryption (APPNOTE 6.1)."""

    doubt = "; or the password is wrong, which ZipCrypto tells for 255 of 256"

    def __init__(self, member: Member, password: bytes, opened: OpenedMember | None) -> None:
        # Not at the top: only runs with a password need it. And not the package's
        # own module, which patches zipfile.
        from _zipdecrypter import StandardZipDecrypter  # noqa: PLC0415

        self._member = member
        self._decrypt = StandardZipDecrypter(password)
        self._header_left = _ZIPCRYPTO_HEADER
        # Allowed values of the last byte of the header; none: any. It is the high byte of the
        # CRC-32 (6.1.6). A streaming writer does not know the CRC-32 yet: Info-ZIP uses the high
        # byte of the time in the local header.
        self._checks = {member.crc32 >> 24}
        if member.flags & FLAG_DESCRIPTOR:
            self._checks = self._checks | {opened.time_high} if opened else set()

    def decrypt(self, data: Buffer) -> Buffer:
        """Return the plain bytes of the next input; there may be fewer of them."""
        plain: bytes = self._decrypt(bytes(data))
        if not self._header_left:
            return plain
        header, rest = plain[: self._header_left], plain[self._header_left :]
        self._header_left -= len(header)
        if header and not self._header_left and self._checks and header[-1] not in self._checks:
            self._member.fail("wrong-password", "the check byte differs")
        return rest

    def finish(self) -> None:
        """Do nothing: ZipCrypto authenticates nothing. Only the CRC-32 is checked."""


class _WinZipAes:
    """WinZip AES: salt, verifier, data in counter mode, 10 bytes of HMAC-SHA1."""

    doubt = ""

    def __init__(self, member: Member, cipher: Cipher, password: bytes) -> None:
        self._member = member
        self._cipher = cipher
        self._password = password
        self._head = bytearray()
        self._head_length = cipher.key_length // 2 + _AES_VERIFIER
        self._left = member.compressed_size - cipher.overhead
        self._code = bytearray()

    def decrypt(self, data: Buffer) -> Buffer:
        """Return the plain bytes; see `_ZipCrypto`."""
        view = memoryview(data)
        lacking = self._head_length - len(self._head)
        if lacking:
            self._head += view[:lacking]
            view = view[lacking:]
            if len(self._head) < self._head_length:
                return b""
            self._open()
        body = view[: self._left]
        self._left -= len(body)
        self._code += view[len(body) :]
        self._hmac.update(body)
        return self._aes.decrypt(body)

    def finish(self) -> None:
        """Compare the authentication code."""
        if not hmac.compare_digest(self._hmac.digest()[:_AES_MAC], bytes(self._code)):
            message = "the authentication code is another: the bytes were altered"
            self._member.fail("aes-mac-mismatch", message)

    def _open(self) -> None:
        from Crypto.Cipher import AES  # noqa: PLC0415 - as in _ZipCrypto
        from Crypto.Util import Counter  # noqa: PLC0415 - likewise

        length = self._cipher.key_length
        salt, verifier = self._head[:-_AES_VERIFIER], self._head[-_AES_VERIFIER:]
        keys = hashlib.pbkdf2_hmac(
            "sha1", self._password, bytes(salt), _ROUNDS, 2 * length + _AES_VERIFIER
        )
        if not hmac.compare_digest(keys[2 * length :], bytes(verifier)):
            self._member.fail("wrong-password", "the verifier differs")
        counter = Counter.new(128, initial_value=1, little_endian=True)
        self._aes = AES.new(keys[:length], AES.MODE_CTR, counter=counter)
        self._hmac = hmac.new(keys[length : 2 * length], digestmod="sha1")
