"""The canary's archive: five small members, written here so that no other tool is needed."""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import struct
import zipfile
import zlib
from typing import NamedTuple

MEMBER_TIME = (2020, 1, 1, 0, 0, 0)
_AES_METHOD = 99
_KEY_LENGTH = 32  # AES-256, strength 3
_SALT_LENGTH = 16
_ROUNDS = 1000  # iterations of PBKDF2, fixed by WinZip
_ENCRYPTED = 0x1


class CanaryMember(NamedTuple):
    """One member: its path in the archive, and its content."""

    path: str
    content: bytes
    method: int = zipfile.ZIP_DEFLATED


def canary_members(token: str) -> tuple[CanaryMember, ...]:
    """Return the five members; each path and file name contains `token`, so the keys are unique."""
    line = b"A line of the canary of s3unzip doctor.\n"
    return (
        CanaryMember(f"{token}/{token}-empty.txt", b"", zipfile.ZIP_STORED),
        CanaryMember(f"{token}/{token}-stored.bin", bytes(range(256)) * 8, zipfile.ZIP_STORED),
        CanaryMember(f"{token}/{token}-deflated.txt", line * 500),
        CanaryMember(f"{token}/{token}-\u00fcml\u00e4ut.txt", line),
        CanaryMember(f"{token}/{token}-last.txt", line * 9),
    )


def build_canary(token: str, password: bytes | None) -> bytes:
    """Return an archive of the five members, the last encrypted where there is a `password`."""
    *first, last = canary_members(token)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member in [*first, last] if password is None else first:
            info = zipfile.ZipInfo(member.path, MEMBER_TIME)
            info.compress_type = member.method
            archive.writestr(info, member.content)
    plain = out.getvalue()
    return plain if password is None else _add_encrypted(plain, last, password)


def _add_encrypted(plain: bytes, member: CanaryMember, password: bytes) -> bytes:
    """Return the archive with one more member, encrypted as WinZip AES (AE-2).

    Records: APPNOTE 4.3.7 (local header), 4.3.12 (central directory), 4.3.16 (its end); extra
    field 0x9901: https://www.winzip.com/en/support/aes-encryption/.
    """
    _, _, _, count, _, size, start, _ = struct.unpack("<4s4H2LH", plain[-22:])
    name = member.path.encode()
    extra = struct.pack("<HHH2sBH", 0x9901, 7, 2, b"AE", 3, member.method)
    deflater = zlib.compressobj(wbits=-15)
    data = _encrypt(deflater.compress(member.content) + deflater.flush(), password)
    year, month, day, *_ = MEMBER_TIME
    date = (year - 1980) << 9 | month << 5 | day
    # AE-2 stores no CRC-32: the authentication code replaces it.
    fields = struct.pack(
        "<HHHHHLLLHH",
        *(51, _ENCRYPTED, _AES_METHOD, 0, date, 0),
        *(len(data), len(member.content), len(name), len(extra)),
    )
    local = b"PK\x03\x04" + fields + name + extra + data
    central = b"PK\x01\x02" + struct.pack("<H", 51) + fields
    central += struct.pack("<HHHLL", 0, 0, 0, 0, start) + name + extra
    directory = plain[start : start + size] + central
    end = struct.pack(
        *("<4s4H2LH", b"PK\x05\x06", 0, 0, count + 1, count + 1),
        *(len(directory), start + len(local), 0),
    )
    return plain[:start] + local + directory + end


def _encrypt(data: bytes, password: bytes) -> bytes:
    """Return salt, password verifier, encrypted data and authentication code."""
    # A late import: only environments with a password need it.
    from Crypto.Cipher import AES  # noqa: PLC0415
    from Crypto.Util import Counter  # noqa: PLC0415

    salt = os.urandom(_SALT_LENGTH)
    keys = hashlib.pbkdf2_hmac("sha1", password, salt, _ROUNDS, 2 * _KEY_LENGTH + 2)
    counter = Counter.new(128, initial_value=1, little_endian=True)
    body = AES.new(keys[:_KEY_LENGTH], AES.MODE_CTR, counter=counter).encrypt(data)
    code = hmac.new(keys[_KEY_LENGTH : 2 * _KEY_LENGTH], body, "sha1").digest()[:10]
    return salt + keys[2 * _KEY_LENGTH :] + body + code
