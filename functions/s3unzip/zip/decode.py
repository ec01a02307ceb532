"""Decrypt and decompress a member's data, and check it against its declared size and CRC-32.

`decode_member` decodes a small member in one call. A `MemberDecoder` decodes a member of any size
in pieces, and a `GzipMember` converts a member of any size to a gzip file. All three perform the
same checks.

The supported ciphers are ZipCrypto (APPNOTE 6.1) and WinZip AES. A small C extension decrypts
ZipCrypto at 80 MB/s; Python code reaches only 0.5 MB/s. pycryptodome decrypts WinZip AES, because
its CTR mode supports the little-endian counter of WinZip. These libraries are imported only in runs
with a password. Strong encryption (bit 6 of the flags) is not supported.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from isal import isal_zlib
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.zip import records
from s3unzip.zip.checks import Policy
from s3unzip.zip.codecs import CODECS, IGZIP_ERROR, explain_igzip
from s3unzip.zip.local import OpenedMember
from s3unzip.zip.values import WRAP, Buffer, Cipher, Member

PIECE_LENGTH = 1 << 20
_VERIFIER_LENGTH = 2  # length in bytes of the verifier, which reveals a wrong password
_AES_MAC = 10  # length of the authentication code, in bytes
# The tags of symbolic links and junctions at the start of a REPARSE_DATA_BUFFER ([MS-FSCC] 2.1.2).
_LINK_TAGS = (b"\x0c\0\0\xa0", b"\x03\0\0\xa0")
_LINK_TAG_LENGTH = 4

_SPARE_MESSAGE = "bytes after the end of the compressed stream"

_GZIP_HEADER = struct.Struct("<4sIH")  # magic, method and flags; time; level and system
_TRAILER = struct.Struct("<II")  # CRC-32, size modulo 2^32
_STORED_BLOCK = struct.Struct("<BHH")  # final bit and type 0, length, complement of the length
_MAX_BLOCK = 0xFFFF


class MemberDecoder:
    """Decodes a member of any size from pieces of any length, and yields pieces of at most 1 MiB.

    `opened` is the member's local header, which can be needed to check a ZipCrypto password.

    The decoder never yields more bytes than the declared size. The output is not fully checked
    until `finish` returns. If the member `is_wrapped`, only the lower 32 bits of the size are
    known, so the decoder yields at most `max_size` bytes. If `max_size` is None, the policy limits
    the output. `size` is the number of bytes that were yielded.

    Raises:
        MemberError: the member is encrypted, and there is no password.
    """

    def __init__(
        self,
        member: Member,
        policy: Policy,
        opened: OpenedMember | None = None,
        max_size: int | None = None,
    ) -> None:
        self._member = member
        self._policy = policy
        self._cipher = _open_cipher(member, policy, opened)
        self._lead = bytearray()  # the first bytes of encrypted data, before the content
        decrypted = replace(member, compressed_size=member.decrypted_length)
        self._codec = CODECS[member.method](decrypted, policy)
        self._max_size = member.size
        if member.is_wrapped:  # the directory declares only the lower 32 bits of the size
            self._max_size = largest_size(member, policy) if max_size is None else max_size
        self._input_length = 0
        self._first_bytes = b""  # the first bytes of the content of a reparse point
        self.warnings: list[str] = []  # codes of warnings; complete when `finish` has returned
        self.size = 0
        self.crc32 = 0

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Yield the decoded content of `data`; exhaust the iterator before the next call.

        Raises:
            MemberError: the stream is corrupt, too long, or needs too much memory.
        """
        self._input_length += len(data)
        if self._cipher is not None:
            data = self._decrypt(self._cipher, data)
        self._codec.push(data)
        member = self._member
        # Request one byte more than is allowed, to detect content that is too long.
        while output := self._codec.pull(min(PIECE_LENGTH, self._max_size - self.size + 1)):
            self.size += len(output)
            if self.size > self._max_size:
                code = "bomb-wrapped-size" if member.is_wrapped else "size-overrun"
                member.fail(code, f"more than {self._max_size} bytes")
            if member.flags & records.FLAG_REPARSE and len(self._first_bytes) < _LINK_TAG_LENGTH:
                self._check_reparse(output)
            self.crc32 = isal_zlib.crc32(output, self.crc32)
            yield output

    def _decrypt(self, cipher: _ZipCrypto | _WinZipAes, data: Buffer) -> Buffer:
        """Return the decrypted bytes of `data`.

        The first `lead_length` bytes of the member start the cipher, and are not returned.
        """
        missing = cipher.lead_length - len(self._lead)
        if missing:
            self._lead += data[:missing]
            if len(data) < missing:
                return b""
            cipher.start(bytes(self._lead))
        return cipher.decrypt(data[missing:])

    def _check_reparse(self, output: Buffer) -> None:
        """Warn about content that begins with the tag of a Windows link, or fail the member.

        Called for each piece of the content until `_first_bytes` is as long as a tag.
        """
        self._first_bytes += bytes(output[:_LINK_TAG_LENGTH])
        if self._first_bytes[:_LINK_TAG_LENGTH] in _LINK_TAGS:
            self._member.fail_unless_tolerated(
                "symlink", "a Windows reparse point: a symbolic link or a junction", self._policy
            )
            self.warnings.append("symlink")

    def decode(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the content; `pieces` contain all compressed bytes of the member.

        Raises:
            MemberError: the content differs from what the directory declares.
        """
        try:
            for data in pieces:
                yield from self.feed(data)
            self.finish()
        except MemberError as error:
            if self._cipher is None:
                raise
            # If the password might be wrong, the message says so.
            message = error.finding.message + self._cipher.doubt
            raise MemberError(replace(error.finding, message=message)) from error

    def finish(self) -> None:
        """Check that the member ended as declared.

        Raises:
            MemberError: the member did not end as declared.
        """
        is_whole = self._input_length == self._member.compressed_size
        self.warnings += check_end(
            self._member,
            self._policy,
            ended=self._codec.ended and is_whole,
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
    largest = member.compressed_size * records.MAX_DEFLATE_RATIO
    return max(member.size, min(largest, policy.limits.member_size))


def check_end(
    member: Member, policy: Policy, *, ended: bool, spare: int, size: int
) -> tuple[str, ...]:
    """Check how a stream ended; return the codes of warnings.

    `ended` is True if the stream ended within the member's compressed bytes. `spare` is the number
    of bytes after the end of the stream, and `size` is the number of bytes of output.
    """
    if not ended:
        member.fail(
            "stream-truncated",
            f"the stream does not end within its {member.compressed_size} bytes, "
            f"and yields {size} bytes",
        )
    if not member.has_size(size):
        member.fail_size("size-mismatch", f"{size} bytes, {member.size} declared")
    if not spare:
        return ()
    member.fail_unless_tolerated("compressed-trailing-bytes", _SPARE_MESSAGE, policy)
    return ("compressed-trailing-bytes",)


def check_crc(member: Member, crc32: int) -> int:
    """Return the CRC-32 of the data, after comparing it with the declared CRC-32.

    Raises:
        MemberError: the CRC-32 differs from the declared CRC-32.
    """
    if crc32 != member.crc32:
        member.fail(
            "crc-mismatch",
            f"the CRC-32 is {crc32:08x}, but the directory declares {member.crc32:08x}",
        )
    return crc32


class Decoded(Struct, frozen=True, gc=False):
    """The verified content of a member."""

    content: Buffer
    crc32: int
    warnings: Sequence[str] = ()  # codes of tolerated findings


def decode_member(
    member: Member, data: Buffer, policy: Policy, opened: OpenedMember | None = None
) -> Decoded:
    """Decode a whole member; the content of a stored member is `data` itself.

    `data` contains all compressed bytes of the member. `opened` is the member's local header, which
    can be needed for an encrypted member. The function allocates at most the declared size plus one
    byte; the caller limits this memory by calling the function only for small members.

    Raises:
        MemberError: the content differs from what the directory declares.
    """
    # Nearly all members take one of the first two branches, which cost less than a decoder.
    is_ordinary = member.cipher is None and not member.flags & records.FLAG_REPARSE
    if is_ordinary and member.method == records.METHOD_DEFLATE:
        return _inflate_whole(member, data, policy)
    if is_ordinary and member.method == records.METHOD_STORED:
        is_whole = len(data) == member.compressed_size
        # Without spare bytes, there are no warnings.
        check_end(member, policy, ended=is_whole, spare=0, size=len(data))
        return Decoded(data, check_crc(member, isal_zlib.crc32(data)))
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(decoder.decode([data]))
    return Decoded(content, decoder.crc32, decoder.warnings)


def _inflate_whole(member: Member, data: Buffer, policy: Policy) -> Decoded:
    """Return the content of a deflated member, using a single call of the library."""
    stream = isal_zlib.decompressobj(-isal_zlib.MAX_WBITS)
    try:
        content = stream.decompress(data, member.size + 1)  # one more byte, to detect an overrun
    except IGZIP_ERROR as error:
        raise MemberError(member.finding("corrupt-stream", explain_igzip(error))) from error
    # If the member is wrapped, the caller catches this error and decodes the member in pieces.
    if len(content) > member.size:
        member.fail("size-overrun", f"more than {member.size} bytes")
    warnings = check_end(
        member,
        policy,
        ended=stream.eof and len(data) == member.compressed_size,
        spare=len(stream.unused_data),
        size=len(content),
    )
    return Decoded(content, check_crc(member, isal_zlib.crc32(content)), warnings)


class _ZipCrypto:
    """Traditional encryption (APPNOTE 6.1)."""

    lead_length = 12  # in bytes (6.1.5)

    def __init__(self, member: Member, password: bytes, opened: OpenedMember | None) -> None:
        # Import only the extension, because importing its package would patch the module `zipfile`.
        from _zipdecrypter import StandardZipDecrypter  # noqa: PLC0415

        self._member = member
        self._opened = opened  # the local header; None if it was not read
        self._decrypt = StandardZipDecrypter(password)
        self.doubt = ""  # set by `start`: the end of all later messages

    def start(self, lead: bytes) -> None:
        """Decrypt the encryption header `lead`, and check its last byte.

        This byte must equal the high byte of the CRC-32 (6.1.6). A streaming writer does not know
        the CRC-32 yet, so Info-ZIP uses the high byte of the time in the local header instead.
        """
        check_bytes = [self._member.crc32 >> 24]
        if self._member.flags & records.FLAG_DESCRIPTOR:
            if self._opened is None:  # the time is unknown, so any byte could be correct
                check_bytes.extend(range(256))
            else:
                check_bytes.append(self._opened.time_high)
        if self._decrypt(lead)[-1] not in check_bytes:
            self._member.fail("wrong-password", "the check byte differs")
        # The check byte can match by chance, so the password may still be wrong.
        self.doubt = "; or the password is wrong: ZipCrypto accepts 1 in 256 wrong passwords"

    def decrypt(self, data: Buffer) -> Buffer:
        plain: bytes = self._decrypt(bytes(data))
        return plain

    def finish(self) -> None:
        """Do nothing, because ZipCrypto has no authentication code."""


class _WinZipAes:
    """WinZip AES: salt and verifier (the lead), data in counter mode, 10 bytes of HMAC-SHA1."""

    doubt = ""  # no doubt, because the verifier has confirmed the password

    def __init__(self, member: Member, cipher: Cipher, password: bytes) -> None:
        self._member = member
        self._password = password
        self._key_length = cipher.key_length
        # The salt is half as long as a key.
        self.lead_length = cipher.key_length // 2 + _VERIFIER_LENGTH
        self._data_left = member.decrypted_length
        self._received_mac = bytearray()

    def start(self, lead: bytes) -> None:
        """Derive the keys from the password and the salt, and check the verifier."""
        from Crypto.Cipher import AES  # noqa: PLC0415
        from Crypto.Util import Counter  # noqa: PLC0415

        length = self._key_length
        keys = hashlib.pbkdf2_hmac(
            "sha1",
            self._password,
            salt=lead[:-_VERIFIER_LENGTH],
            iterations=1000,  # the number in the WinZip specification
            dklen=2 * length + _VERIFIER_LENGTH,
        )
        # The derived bytes are the AES key, the HMAC key and the verifier.
        if not hmac.compare_digest(keys[2 * length :], lead[-_VERIFIER_LENGTH:]):
            self._member.fail("wrong-password", "the verifier differs")
        counter = Counter.new(128, initial_value=1, little_endian=True)
        self._aes = AES.new(keys[:length], AES.MODE_CTR, counter=counter)
        self._hmac = hmac.new(keys[length : 2 * length], digestmod="sha1")

    def decrypt(self, data: Buffer) -> Buffer:
        body = data[: self._data_left]
        self._data_left -= len(body)
        self._received_mac += data[len(body) :]  # the authentication code follows the data
        self._hmac.update(body)
        return self._aes.decrypt(body)

    def finish(self) -> None:
        if not hmac.compare_digest(self._hmac.digest()[:_AES_MAC], bytes(self._received_mac)):
            self._member.fail(
                "aes-mac-mismatch", "the authentication code differs: the bytes were altered"
            )


def _open_cipher(
    member: Member, policy: Policy, opened: OpenedMember | None
) -> _ZipCrypto | _WinZipAes | None:
    """Return the member's cipher, or None if its data is not encrypted.

    Both ciphers have the same methods and attributes. The `start` method is called with the first
    `lead_length` bytes and uses them to check the password. If the member has a data descriptor,
    ZipCrypto's check needs `opened`, the local header. After `start`, `decrypt` is called with the
    data in order, in pieces of any size. `doubt` is added to messages about the decrypted data, to
    warn that the password might still be wrong. Before `start` is called, `doubt` is empty. For
    WinZip AES, `doubt` remains empty, because the verifier confirms the password.
    """
    if member.cipher is None:
        return None
    if policy.password is None:
        member.fail("encrypted", "no password is given")
    if member.cipher.version:  # 0 means ZipCrypto
        return _WinZipAes(member, member.cipher, policy.password)
    return _ZipCrypto(member, policy.password, opened)


def gzip_length(member: Member) -> int:
    """Return the length of the gzip file for a member."""
    frame = _GZIP_HEADER.size + _TRAILER.size
    if _is_copied(member):
        return frame + member.compressed_size
    blocks = max(1, -(-member.size // _MAX_BLOCK))  # rounded up; an empty file has one block
    return frame + member.size + _STORED_BLOCK.size * blocks


def _is_copied(member: Member) -> bool:
    """Return whether the gzip file contains the member's compressed data unchanged."""
    return member.method == records.METHOD_DEFLATE and member.cipher is None


class GzipMember(MemberDecoder):
    """Converts a member to a gzip file (RFC 1952) without compressing any data.

    The stream of a deflated member is copied between a header of 10 bytes and a trailer of 8 bytes,
    and is inflated only for checking. Any other member is written as stored blocks (RFC 1951,
    3.2.4). All objects of a run are therefore gzip files, and the length of each file can be
    computed from the directory.

    If `trust_crc` is True, a deflate stream is copied without being inflated, so errors in the
    stream appear only when a reader unpacks the file. When `decode` is exhausted, `crc32` is the
    CRC-32 of the content.
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
        """Yield the gzip file; `pieces` contain all compressed bytes of the member."""
        mtime = self._member.mtime or 0
        if not 0 <= mtime < 1 << 32:
            mtime = 0  # 0 means that the time is unknown (RFC 1952)
        # The lower byte, 0, stands for an unknown level; the upper byte, 0xFF, for an unknown
        # system.
        yield _GZIP_HEADER.pack(b"\x1f\x8b\x08\0", mtime, 0xFF00)
        if not _is_copied(self._member):
            yield from self._store(pieces)
        elif self._trusts_crc:
            yield from self._copy_unchecked(pieces)
        else:
            yield from self._copy_checked(pieces)
        yield _TRAILER.pack(self.crc32, self._member.size & 0xFFFF_FFFF)

    def _copy_checked(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the stream; inflate it only for checking."""
        for data in pieces:
            deque(self.feed(data), maxlen=0)  # exhaust the iterator
            yield data
        self.finish()
        if self._codec.spare:  # a lenient policy allows spare bytes, but gzip does not
            self._member.fail("compressed-trailing-bytes", _SPARE_MESSAGE)

    def _copy_unchecked(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the stream; check only its length, and trust the declared CRC-32."""
        member = self._member
        self.crc32 = member.crc32
        for data in pieces:
            self._input_length += len(data)
            yield data
        if self._input_length != member.compressed_size:
            member.fail(
                "stream-truncated", f"{self._input_length} bytes of {member.compressed_size}"
            )

    def _store(self, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the content as stored blocks; check the content before the last block."""
        waiting = bytearray()
        for output in super().decode(pieces):
            waiting += output
            # Keep at least one byte for the last block, in which the final bit is set.
            full_length = (len(waiting) - 1) // _MAX_BLOCK * _MAX_BLOCK
            for start in range(0, full_length, _MAX_BLOCK):
                # The block is not final. The complement of the maximum length is 0.
                yield _STORED_BLOCK.pack(0, _MAX_BLOCK, 0)
                yield bytes(waiting[start : start + _MAX_BLOCK])
            del waiting[:full_length]
        # The content has been checked, so write the final block. An exclusive OR with 16 set bits
        # gives the complement of the length.
        yield _STORED_BLOCK.pack(1, len(waiting), len(waiting) ^ _MAX_BLOCK)
        yield bytes(waiting)
