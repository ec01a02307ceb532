"""The seam for decryption: the stage that a member's data passes before its codec.

There is no cipher yet: encrypted members fail by name, in the index where the
flags say so and here for whoever comes with such a member all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from s3unzip.errors import MemberError
from s3unzip.zipformat.local import Buffer, find_in
from s3unzip.zipformat.records import ENCRYPTION_FLAGS, METHOD_AES

if TYPE_CHECKING:
    from s3unzip.zipformat.member import Member


class Cipher(Protocol):
    """Decrypts one member's data, in order."""

    def decrypt(self, data: Buffer) -> Buffer:
        """Return the plain bytes of the next input."""


def open_cipher(member: Member) -> Cipher | None:
    """Return the member's cipher, or None where its data is not encrypted.

    Raises:
        MemberError: it is encrypted.
    """
    if member.flags & ENCRYPTION_FLAGS or member.method == METHOD_AES:
        raise MemberError(find_in(member, "encrypted", "encrypted members are not read"))
    return None
