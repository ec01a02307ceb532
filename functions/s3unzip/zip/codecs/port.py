"""What a codec is: input pushed in, output pulled out in bounded pieces; and the simplest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

Buffer = bytes | memoryview


class StreamError(Exception):
    """A codec cannot continue; `decode` converts this to a `MemberError` with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Codec(Protocol):
    """One stream's decompressor.

    Call `push` with the next input after `pull` has returned nothing. `pull` returns at most
    `max_length` bytes, and nothing when it needs input or the stream has ended. `spare` is the
    number of bytes pushed after the end of the stream, or any number above 0 where the library
    only reports that there were some.
    """

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""

    @property
    def spare(self) -> int:
        """Bytes pushed that lie after the stream's end."""

    def push(self, data: Buffer) -> None:
        """Take the next input."""

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes of output.

        Raises:
            StreamError: the stream is corrupt, or wants too much memory.
        """


class Stored:
    """No compression (method 0): the stream ends where the directory says."""

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
        """Return a view of up to `max_length` bytes."""
        piece, self._data = self._data[:max_length], self._data[max_length:]
        self._left -= len(piece)
        return piece
