"""Encrypts members of test archives: ZipCrypto in plain Python, and WinZip AES.

Written from APPNOTE 6.1 and WinZip's page, not from the decrypting side; the
AES here is counter mode made of single blocks.
"""

import hashlib
import hmac
import struct
import zlib
from dataclasses import replace
from typing import TypeVar

from Crypto.Cipher import AES

from tests.support.zips import Entry, extra

AES_METHOD = 99
E = TypeVar("E", bound=Entry)


def encrypt_zipcrypto(plain: bytes, password: bytes, check: int) -> bytes:
    """Encrypt a compressed stream by APPNOTE 6.1; `check` ends the encryption header."""
    keys = [0x12345678, 0x23456789, 0x34567890]
    for byte in password:
        _update_keys(keys, byte)
    out = bytearray()
    for byte in b"r" * 11 + bytes([check]) + plain:
        two = keys[2] & 0xFFFF | 2
        out.append(byte ^ (two * (two ^ 1)) >> 8 & 0xFF)
        _update_keys(keys, byte)
    return bytes(out)


def _update_keys(keys: list[int], byte: int) -> None:
    keys[0] = _crc_step(keys[0], byte)
    keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
    keys[2] = _crc_step(keys[2], keys[1] >> 24)


def _crc_step(crc: int, byte: int) -> int:
    return zlib.crc32(bytes([byte]), crc ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def encrypt_aes(plain: bytes, password: bytes, strength: int = 3) -> bytes:
    """Encrypt a compressed stream as WinZip does; the salt is made of the data's hash."""
    length = 8 + 8 * strength
    salt = hashlib.sha256(plain).digest()[: length // 2]
    keys = hashlib.pbkdf2_hmac("sha1", password, salt, 1000, 2 * length + 2)
    block = AES.new(keys[:length], AES.MODE_ECB)
    count = (len(plain) + 15) // 16
    stream = block.encrypt(b"".join(struct.pack("<QQ", n + 1, 0) for n in range(count)))
    body = bytes(a ^ b for a, b in zip(plain, stream, strict=False))
    code = hmac.new(keys[length : 2 * length], body, "sha1").digest()[:10]
    return salt + keys[2 * length :] + body + code


def aes_extra(method: int, version: int = 2, strength: int = 3) -> bytes:
    """Make the extra field of a WinZip AES member."""
    return extra(0x9901, struct.pack("<H2sBH", version, b"AE", strength, method))


def seal_zipcrypto(entry: E, password: bytes) -> E:
    """Return `entry` encrypted with ZipCrypto; the check byte is Info-ZIP's with a descriptor."""
    high = 0x6C if entry.descriptor else zlib.crc32(entry.content) >> 24  # 0x6C25 is its time
    data = encrypt_zipcrypto(entry.stored_data, password, high)
    return replace(entry, data=data, flags=entry.flags | 1)


def seal_aes(entry: E, password: bytes, version: int = 2, strength: int = 3) -> E:
    """Return `entry` encrypted with WinZip AES."""
    sealed = replace(
        entry,
        data=encrypt_aes(entry.stored_data, password, strength),
        method=AES_METHOD,
        flags=entry.all_flags | 1,
        extra=entry.extra + aes_extra(entry.method, version, strength),
    )
    if version == 1:
        return sealed
    local, central, described = (
        {**fields, "crc32": 0} for fields in (sealed.local, sealed.central, sealed.described)
    )
    return replace(sealed, local=local, central=central, described=described)
