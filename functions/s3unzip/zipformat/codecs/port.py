"""What a codec is: input pushed in, output pulled out in bounded pieces."""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | memoryview


class StreamError(Exception):
    """A codec cannot continue; `decode` converts this to a `MemberError` with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Codec(Protocol):
    """One stream's decompressor.

    Call `push` with the next input after `pull` has returned nothing. `pull` returns at most `most`
    bytes, and nothing when it needs input or the stream has ended. `spare` is the number of bytes
    pushed after the end of the stream, or any number above 0 where the library only reports that
    there were some.
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
        """Return up to `most` bytes of output.

        Raises:
            StreamError: the stream is corrupt, or wants too much memory.
        """
