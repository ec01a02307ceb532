"""Several streams in a row that together are the content of one member.

``cat a.bz2 b.bz2`` is a bzip2 file, and parallel compressors write such files. xz files can also
have several streams (xz file format 1.2.1, section 2: "a file contains
one or more streams"), with padding of four zeros at a time between them.
"""

from __future__ import annotations

from bz2 import BZ2Decompressor
from lzma import LZMAError
from typing import TYPE_CHECKING

from s3unzip.zip.codecs.port import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from lzma import LZMADecompressor

    from s3unzip.zip.codecs.port import Buffer
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

# When a stream ends, its decompressor copies the input that it did not use. This bounds that copy,
# for members that consist of streams of a few bytes.
_SLICE = 16 * 1024


class Chain:
    """A `Codec` of streams that all begin with `magic`.

    Args:
        start: makes the decompressor of one stream.
        magic: the first bytes of each stream.
        padding: bytes that may stand between streams, and after the last.
        explain: converts an error of the decompressor to a `StreamError`.
    """

    def __init__(
        self,
        start: Callable[[], BZ2Decompressor | LZMADecompressor],
        magic: bytes,
        padding: bytes,
        explain: Callable[[Exception], StreamError],
    ) -> None:
        self._start, self._magic, self._padding, self._explain = start, magic, padding, explain
        self._stream = start()
        self._data = memoryview(b"")  # what no stream was given
        self._given = memoryview(b"")  # that, and before it the last slice that one was given
        self._between = b""  # the beginning of a magic, or of padding
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether a stream has ended, and no other has begun."""
        return self._stream.eof

    @property
    def spare(self) -> int:
        """Bytes after the last stream that begin no other."""
        return self._late + len(self._between)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        if self._late:
            self._late += len(data)
        elif self._between:
            self._data, self._between = memoryview(b"".join((self._between, data))), b""
        else:
            self._data = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; see `Codec`."""
        while not self._stream.eof or self._next_stream():
            if self._stream.needs_input and not self._data:
                break
            piece = self._decompress(max_length)
            if piece:
                return piece
        return b""

    def _decompress(self, max_length: int) -> bytes:
        taken = memoryview(b"")
        if self._stream.needs_input:
            self._given, taken = self._data, self._data[:_SLICE]
            self._data = self._data[_SLICE:]
        try:
            piece = self._stream.decompress(taken, max_length)
        except (OSError, EOFError, ValueError, LZMAError) as error:
            raise self._explain(error) from error
        if self._stream.eof:
            # A stream takes all of one slice before the next: what it left is of the last.
            slice_length = len(self._given) - len(self._data)
            self._data = self._given[slice_length - len(self._stream.unused_data) :]
        return piece

    def _next_stream(self) -> bool:
        """Begin another stream if its magic follows; otherwise the rest is spare."""
        while self._padding and self._data[: len(self._padding)] == self._padding:
            self._data = self._data[len(self._padding) :]
        length, data = len(self._data), self._data
        if length >= len(self._magic) and data[: len(self._magic)] == self._magic:
            self._stream = self._start()
            return True
        self._data = memoryview(b"")
        if length < len(self._magic):
            self._between = bytes(data)
        else:
            self._late = length
        return False


class Bzip2(Chain):
    """bzip2 streams (method 12); their memory is bounded by the format (900 KB blocks)."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member, policy
        super().__init__(BZ2Decompressor, b"BZh", b"", _explain)


def _explain(error: Exception) -> StreamError:
    return StreamError("corrupt-stream", f"bzip2: {error}")
