"""Deflate (method 8) by ISA-L, and Deflate64 (method 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from isal import isal_zlib

from s3unzip.zip.codecs.port import Buffer, StreamError

if TYPE_CHECKING:
    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

RAW = -15
# The stubs call this class an instance.
IGZIP_ERROR = cast("type[Exception]", isal_zlib.error)

# Each call copies the input that it leaves. Small slices keep these copies small.
_DEFLATE_SLICE = 64 * 1024

# The library has no bound on its output. A Deflate64 match yields up to 65,538 bytes
# for 18 bits, so a slice of this many bytes yields at most 8 MB. Its verdict on a broken stream
# depends on how the input is cut, so the input is always cut here, in the same way.
_DEFLATE64_SLICE = 256


# The library's texts begin so; its numbers say nothing to a reader.
_IGZIP_WORDS = {
    "Error -1": "deflate: a block has an impossible header",
    "Error -2": "deflate: a code stands for nothing",
    "Error -3": "deflate: a match points before the beginning of the data",
}


def tell_igzip(error: Exception) -> str:
    """Return in words what is wrong with a deflate stream (RFC 1951)."""
    text = str(error)
    known = (words for begins, words in _IGZIP_WORDS.items() if text.startswith(begins))
    return next(known, f"deflate: {text}")


class Deflate:
    """One raw deflate stream."""

    def __init__(self, member: Member, policy: Policy) -> None:
        del member, policy
        self._stream = isal_zlib.decompressobj(RAW)
        self._data = memoryview(b"")  # not given to the stream yet
        self._kept: Buffer = b""  # given, and given back
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether the final block ended."""
        return self._stream.eof

    @property
    def spare(self) -> int:
        """Bytes after the final block."""
        return self._late + len(self._stream.unused_data)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        if self._stream.eof:
            self._late += len(data)
        else:
            self._data = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; see `Codec`."""
        piece = b""
        while not self._stream.eof:
            given = self._kept
            if not given:  # maybe nothing: the stream may hold output back
                given, self._data = self._data[:_DEFLATE_SLICE], self._data[_DEFLATE_SLICE:]
            try:
                piece = self._stream.decompress(given, max_length)
            except IGZIP_ERROR as error:
                raise StreamError("corrupt-stream", tell_igzip(error)) from error
            self._kept = self._stream.unconsumed_tail
            if piece or not (self._kept or self._data):
                break
        if self._stream.eof:
            self._late += len(self._data)
            self._data = memoryview(b"")
        return piece


class Deflate64:
    """One Deflate64 stream.

    The library does not report how much input it used. So the last byte is pushed alone: a stream
    that ends with the member must end in that byte.
    """

    def __init__(self, member: Member, policy: Policy) -> None:
        # Few archives need it, and its import loads twenty other modules.
        import inflate64  # noqa: PLC0415

        del policy
        self._stream = inflate64.Inflater()
        self._left = member.compressed_size
        self._data = memoryview(b"")
        self._output = memoryview(b"")
        self.spare = 0

    @property
    def ended(self) -> bool:
        """Whether the final block ended and all its output was pulled."""
        return bool(self._stream.eof) and not self._output

    def push(self, data: Buffer) -> None:
        """Take the next input; keep what does not fill a slice yet."""
        self._data = memoryview(bytes(self._data) + data if self._data else data)
        self._count_spare()

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; see `Codec`."""
        while not (self._output or self._stream.eof):
            length = min(_DEFLATE64_SLICE, max(1, self._left - 1))
            if len(self._data) < length:
                break
            taken, self._data = self._data[:length], self._data[length:]
            self._left -= len(taken)
            try:
                self._output = memoryview(self._stream.inflate(bytes(taken)))
            except (ValueError, EOFError) as error:
                raise StreamError("corrupt-stream", f"deflate64: {error}") from error
            self._count_spare()
        piece, self._output = self._output[:max_length], self._output[max_length:]
        return piece

    def _count_spare(self) -> None:
        if self._stream.eof:
            self.spare = self._left
            self._data = memoryview(b"")
