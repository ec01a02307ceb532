"""Stored members (method 0) and bzip2 (method 12)."""

from __future__ import annotations

import bz2
from typing import TYPE_CHECKING

from s3unzip.zipformat.codecs.chain import Chain
from s3unzip.zipformat.codecs.port import Buffer, StreamError

if TYPE_CHECKING:
    from s3unzip.zipformat.member import Member
    from s3unzip.zipformat.policy import Policy


class Stored:
    """No compression: the stream ends where the directory says."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del policy
        self._left = member.compressed_size
        self._data = memoryview(b"")
        self.spare = 0

    @property
    def ended(self) -> bool:
        """Whether every declared byte has come."""
        return self._left == 0

    def push(self, data: Buffer) -> None:
        """Take the next input, which is the output."""
        self._data = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        """Return a view of up to `most` bytes."""
        piece, self._data = self._data[:max_length], self._data[max_length:]
        self._left -= len(piece)
        return piece


class Bzip2(Chain):
    """bzip2 streams; their memory is bounded by the format (900 KB blocks)."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member, policy
        super().__init__(bz2.BZ2Decompressor, b"BZh", b"", _explain)


def _explain(error: Exception) -> StreamError:
    return StreamError("corrupt-stream", f"bzip2: {error}")
