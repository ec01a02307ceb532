"""Stored members (method 0) and bzip2 (method 12)."""

from __future__ import annotations

import bz2
from typing import TYPE_CHECKING

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

    def pull(self, most: int) -> Buffer:
        """Return a view of up to `most` bytes."""
        piece, self._data = self._data[:most], self._data[most:]
        self._left -= len(piece)
        return piece


class Bzip2:
    """One bzip2 stream; its memory is bounded by the format (900 KB blocks)."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member, policy
        self._stream = bz2.BZ2Decompressor()
        self._data: Buffer = b""
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether the end-of-stream block was read."""
        return self._stream.eof

    @property
    def spare(self) -> int:
        """Bytes after the stream."""
        return self._late + (len(self._stream.unused_data) if self._stream.eof else 0)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        if self._stream.eof:
            self._late += len(data)
        else:
            self._data = data

    def pull(self, most: int) -> Buffer:
        """Return up to `most` bytes; see `Codec`."""
        if self._stream.eof or (self._stream.needs_input and not self._data):
            return b""
        data, self._data = self._data, b""
        try:
            return self._stream.decompress(data, most)
        except (OSError, EOFError, ValueError) as error:
            raise StreamError("corrupt-stream", f"bzip2: {error}") from error
