"""How headers declare compression and encryption.

Methods of compression have numbers (APPNOTE 4.4.5). Encryption is ZipCrypto (APPNOTE 6.1) or AES.
WinZip AES declares method 99 and puts the compression method into an extra field,
https://www.winzip.com/en/support/aes-encryption/. `Member.method` is one number for both, the
coding: see `AesCoding.pack`. Decryption is in `ciphers`. Strong encryption (bit 6) is not
supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.zip.directory.records import FLAG_ENCRYPTED, METHOD_AES

if TYPE_CHECKING:
    from s3unzip.zip.directory.extras import Extras

AES_FIELD = 0x9901
ZIPCRYPTO_HEADER = 12  # random bytes, the last one a check of the password (6.1.5, 6.1.6)
AES_VERIFIER = 2
AES_MAC = 10

_AES_PAYLOAD = 7  # version, "AE", strength, method
_AES_MARK = 1 << 15
_VERSION_2 = 1 << 9


class AesCoding(NamedTuple):
    """The extra field of a WinZip AES member."""

    version: int  # 1 (AE-1): the CRC-32 is declared; 2 (AE-2): it is 0
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
        """Return a 16-bit number for it that is not a method of the ZIP format."""
        version = _VERSION_2 if self.version == 2 else 0
        return _AES_MARK | version | self.strength << 7 | self.method


def read_aes(extras: Extras) -> AesCoding | None:
    """Return the AES field, None unless there is exactly one valid field."""
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
    """Return the `AesCoding` that was packed into `method`, None for an ordinary method."""
    if not method & _AES_MARK:
        return None
    return AesCoding(2 if method & _VERSION_2 else 1, method >> 7 & 3, method & 0x7F)


def compression_of(method: int) -> int:
    """Return the compression method of a member with this method or coding."""
    coding = aes_coding(method)
    return method if coding is None else coding.method


def encryption_overhead(method: int, flags: int) -> int:
    """Return how many bytes encryption adds to the compressed stream."""
    coding = aes_coding(method)
    if coding is not None:
        return coding.overhead
    return ZIPCRYPTO_HEADER if flags & FLAG_ENCRYPTED else 0


def declares_crc(method: int) -> bool:
    """Return whether the directory declares the CRC-32 of a member with this method or coding."""
    return not (method & _AES_MARK and method & _VERSION_2)


def with_known_crc(method: int) -> int:
    """Return the method or coding of the same member when its CRC-32 is known."""
    coding = aes_coding(method)
    return method if coding is None else coding._replace(version=1).pack()


METHODS = {0: "Stored", 8: "Defl", 9: "Defl64", 12: "BZip2", 14: "LZMA", 93: "Zstd", 95: "Xz"}
_UNSUPPORTED_METHODS = {
    1: "shrink", 2: "reduce", 3: "reduce", 4: "reduce", 5: "reduce", 6: "implode",
    10: "IBM TERSE (old)", 16: "IBM CMPSC", 18: "IBM TERSE", 19: "IBM LZ77",
    94: "MP3", 96: "JPEG", 97: "WavPack", 98: "PPMd",
}  # fmt: skip


def name_unsupported(method: int) -> str | None:
    """Return the name of a method that is not read, None of one that is."""
    is_read = method in METHODS or method == METHOD_AES
    return None if is_read else _UNSUPPORTED_METHODS.get(method, "unknown")


def name_method(method: int) -> str:
    """Return the short name of the compression of a member that can be read, encrypted or not."""
    return METHODS[compression_of(method)]
