"""How an encrypted member says that it is: ZipCrypto (APPNOTE 6.1) or WinZip AES.

WinZip AES hides the compression method behind method 99 and tells it in an
extra field, https://www.winzip.com/en/support/aes-encryption/. A member has
one number for both, its coding, in `Member.method`: see `AesCoding.pack`.
Decryption is in `ciphers`; strong encryption (bit 6) is not read at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.zipformat.directory.records import FLAG_ENCRYPTED

if TYPE_CHECKING:
    from s3unzip.zipformat.directory.extras import Extras

AES_FIELD = 0x9901
ZIPCRYPTO_HEADER = 12  # random bytes, the last one a check of the password (6.1.5, 6.1.6)
AES_VERIFIER = 2
AES_MAC = 10

_AES_PAYLOAD = 7  # version, "AE", strength, method
_AES_MARK = 1 << 15
_VERSION_2 = 1 << 9


class AesCoding(NamedTuple):
    """What the extra field of a WinZip AES member says."""

    version: int  # 1 (AE-1): the CRC-32 is declared; 2 (AE-2): 0 stands in its place
    strength: int  # 1, 2, 3: keys of 128, 192, 256 bits
    method: int  # of the compression, below the encryption

    @property
    def key_length(self) -> int:
        """Bytes of each of the two keys."""
        return 8 + 8 * self.strength

    @property
    def salt_length(self) -> int:
        """Bytes of the salt, half a key."""
        return self.key_length // 2

    @property
    def overhead(self) -> int:
        """Bytes that the encryption adds: salt, password verifier, authentication code."""
        return self.salt_length + AES_VERIFIER + AES_MAC

    def pack(self) -> int:
        """Return it as a number of 16 bits that is no method of the format."""
        version = _VERSION_2 if self.version == 2 else 0
        return _AES_MARK | version | self.strength << 7 | self.method


def read_aes(extras: Extras) -> AesCoding | None:
    """Return what the AES field says, None where there is not exactly one with a meaning."""
    found = extras.of(AES_FIELD)
    if len(found) != 1 or len(found[0]) < _AES_PAYLOAD or found[0][2:4] != b"AE":
        return None
    payload = found[0]
    version, strength = int.from_bytes(payload[:2], "little"), payload[4]
    method = int.from_bytes(payload[5:7], "little")
    if version not in (1, 2) or strength not in (1, 2, 3) or method >= 1 << 7:
        return None
    return AesCoding(version, strength, method)


def aes_coding(method: int) -> AesCoding | None:
    """Return what `AesCoding.pack` made `method` of, None where it is an ordinary method."""
    if not method & _AES_MARK:
        return None
    return AesCoding(2 if method & _VERSION_2 else 1, method >> 7 & 3, method & 0x7F)


def compression_of(method: int) -> int:
    """Return the compression method of a member with this method or coding."""
    coding = aes_coding(method)
    return method if coding is None else coding.method


def encryption_overhead(method: int, flags: int) -> int:
    """Return how many bytes of a member's data are not its compressed stream."""
    coding = aes_coding(method)
    if coding is not None:
        return coding.overhead
    return ZIPCRYPTO_HEADER if flags & FLAG_ENCRYPTED else 0


def declares_crc(method: int) -> bool:
    """Say whether the directory has the CRC-32 of a member with this method or coding."""
    return not (method & _AES_MARK and method & _VERSION_2)


def with_known_crc(method: int) -> int:
    """Return the method or coding of the same member, once its CRC-32 is known."""
    coding = aes_coding(method)
    return method if coding is None else coding._replace(version=1).pack()
