"""Decrypt a member's data: ZipCrypto (APPNOTE 6.1) and WinZip AES.

A small C extension decrypts ZipCrypto at 80 MB/s; Python code reaches 0.5 MB/s. pycryptodome
decrypts WinZip AES, because its counter mode can count as WinZip does. Both accept input in pieces
of any size. Strong encryption (bit 6 of the flags) is not supported. Only runs with a password
import these libraries.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from s3unzip.zip.records import FLAG_DESCRIPTOR

if TYPE_CHECKING:
    from s3unzip.zip.checks import Policy
    from s3unzip.zip.local import OpenedMember
    from s3unzip.zip.values import Buffer, Cipher, Member

_ZIPCRYPTO_HEADER = 12  # random bytes, the last one a check of the password (6.1.5, 6.1.6)
_AES_VERIFIER = 2
_AES_MAC = 10
_ROUNDS = 1000  # iterations of PBKDF2, as WinZip defines them


def open_cipher(
    member: Member, policy: Policy, opened: OpenedMember | None
) -> _ZipCrypto | _WinZipAes | None:
    """Return the member's cipher, None if its data is not encrypted.

    It decrypts the data in order. Its `doubt` is added to a finding about the plain data: it says
    that the password may be wrong, if nothing has proved it right.

    Raises:
        MemberError: the member is encrypted, and there is no password.
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
        # Not zipfile, which the package patches.
        from _zipdecrypter import StandardZipDecrypter  # noqa: PLC0415

        self._member = member
        self._decrypt = StandardZipDecrypter(password)
        self._header_left = _ZIPCRYPTO_HEADER
        # Allowed values of the last byte of the header; none: any. It is the high byte of the
        # CRC-32 (6.1.6). A streaming writer does not know the CRC-32 yet: Info-ZIP uses the high
        # byte of the time in the local header.
        self._checks = {member.crc32 >> 24}
        is_streamed = bool(member.flags & FLAG_DESCRIPTOR)
        if is_streamed and opened is None:
            self._checks.clear()
        elif is_streamed and opened is not None:
            self._checks.add(opened.time_high)

    def decrypt(self, data: Buffer) -> Buffer:
        """Return the plain bytes of the next input; there may be fewer of them."""
        plain: bytes = self._decrypt(bytes(data))
        if not self._header_left:
            return plain
        header = plain[: self._header_left]
        self._header_left -= len(header)
        if header and not self._header_left and self._checks and header[-1] not in self._checks:
            self._member.fail("wrong-password", "the check byte differs")
        return plain[len(header) :]

    def finish(self) -> None:
        """Do nothing: ZipCrypto authenticates nothing. Only the CRC-32 is checked."""


class _WinZipAes:
    """WinZip AES: salt, verifier, data in counter mode, 10 bytes of HMAC-SHA1."""

    doubt = ""

    def __init__(self, member: Member, cipher: Cipher, password: bytes) -> None:
        self._member = member
        self._password = password
        self._key_length = cipher.key_length
        self._preamble = bytearray()  # salt and verifier
        self._preamble_left = cipher.key_length // 2 + _AES_VERIFIER
        self._data_left = member.compressed_size - cipher.overhead
        self._code = bytearray()

    def decrypt(self, data: Buffer) -> Buffer:
        """Return the plain bytes; see `_ZipCrypto`."""
        view = memoryview(data)
        if self._preamble_left:
            preamble = view[: self._preamble_left]
            self._preamble += preamble
            self._preamble_left -= len(preamble)
            if self._preamble_left:
                return b""
            self._open()
            view = view[len(preamble) :]
        body = view[: self._data_left]
        self._data_left -= len(body)
        self._code += view[len(body) :]
        self._hmac.update(body)
        return self._aes.decrypt(body)

    def finish(self) -> None:
        """Compare the authentication code."""
        if not hmac.compare_digest(self._hmac.digest()[:_AES_MAC], bytes(self._code)):
            message = "the authentication code is another: the bytes were altered"
            self._member.fail("aes-mac-mismatch", message)

    def _open(self) -> None:
        """Derive the keys, and check the password."""
        from Crypto.Cipher import AES  # noqa: PLC0415
        from Crypto.Util import Counter  # noqa: PLC0415

        length = self._key_length
        keys = hashlib.pbkdf2_hmac(
            "sha1",
            self._password,
            salt=bytes(self._preamble[:-_AES_VERIFIER]),
            iterations=_ROUNDS,
            dklen=2 * length + _AES_VERIFIER,
        )
        if not hmac.compare_digest(keys[2 * length :], bytes(self._preamble[-_AES_VERIFIER:])):
            self._member.fail("wrong-password", "the verifier differs")
        counter = Counter.new(128, initial_value=1, little_endian=True)
        self._aes = AES.new(keys[:length], AES.MODE_CTR, counter=counter)
        self._hmac = hmac.new(keys[length : 2 * length], digestmod="sha1")
