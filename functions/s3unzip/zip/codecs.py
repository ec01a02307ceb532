"""The decompressors by method (APPNOTE 4.4.5), each bounded in output and memory.

Call `push` with the next input after `pull` has returned nothing. `pull` returns at most
`max_length` bytes, and nothing when it needs input or the stream has ended; a stream that is
corrupt, or wants too much memory, fails the member. `ended` says whether the stream has ended.
`spare` is the number of bytes pushed after that, or any number above 0 where the library only
reports that there were some. `decode` checks the size, the CRC-32 and the end of a stream.
"""

import lzma
from bz2 import BZ2Decompressor
from collections.abc import Callable
from functools import partial
from typing import NoReturn, Protocol, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor

from s3unzip.zip import records
from s3unzip.zip.checks import Policy
from s3unzip.zip.values import Buffer, Member

RAW = -15
# The stubs call this class an instance.
IGZIP_ERROR = cast("type[Exception]", isal_zlib.error)
_ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, IGZIP_ERROR)

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

# When a stream ends, its decompressor copies the input that it did not use. This bounds that copy,
# for members that consist of streams of a few bytes.
_SLICE = 16 * 1024
_LONG_SLICE = 64 * 1024  # of a member that can have only one stream

# What the ZIP puts before an LZMA stream (5.8.8).
_HEADER_LENGTH = 4
_PROPERTIES_LENGTH = 5
_UNKNOWN_SIZE = (1 << 64) - 1
# What liblzma needs beside the dictionary: its probability tables and buffers.
_OVERHEAD = 16 << 20
_SMALLEST_DICTIONARY = 4096
_MARKER_ROOM = 64

# RFC 8878, 3.1.1 and 3.1.2: frames, and those that a decoder skips.
_ZSTD_MAGICS = (
    b"\x28\xb5\x2f\xfd",
    *(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)),
)


class Uncompressed:
    """No compression (method 0): the stream ends where the directory says."""

    def __init__(self, member: Member, _: Policy) -> None:
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


def explain_igzip(error: Exception) -> str:
    """Return in words what is wrong with a deflate stream (RFC 1951)."""
    return _IGZIP_WORDS.get(str(error)[:8], f"deflate: {error}")


class Deflate64:
    """One Deflate64 stream.

    The library does not report how much input it used. So the last byte is pushed alone: a stream
    that ends with the member must end in that byte.
    """

    def __init__(self, member: Member, _: Policy) -> None:
        # Few archives need it, and its import loads twenty other modules.
        import inflate64  # noqa: PLC0415

        self._member = member
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
        """Return up to `max_length` bytes."""
        while not (self._output or self._stream.eof):
            length = min(_DEFLATE64_SLICE, max(1, self._left - 1))
            if len(self._data) < length:
                break
            taken, self._data = self._data[:length], self._data[length:]
            self._left -= len(taken)
            try:
                self._output = memoryview(self._stream.inflate(bytes(taken)))
            except (ValueError, EOFError) as error:
                self._member.fail("corrupt-stream", f"deflate64: {error}")
            self._count_spare()
        piece, self._output = self._output[:max_length], self._output[max_length:]
        return piece

    def _count_spare(self) -> None:
        if self._stream.eof:
            self.spare = self._left
            self._data = memoryview(b"")


class Decompressor(Protocol):
    """The decompressor of one stream, as bz2 and lzma have it."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended, and all its output was returned."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether there is no more output without more input."""
        ...

    @property
    def unused_data(self) -> Buffer:
        """Input after the end of the stream."""
        ...

    def decompress(self, data: Buffer, max_length: int) -> Buffer:
        """Return up to `max_length` bytes."""
        ...


class Chain:
    """One stream, or several in a row that together are the content of one member.

    ``cat a.bz2 b.bz2`` is a bzip2 file, and parallel compressors write such files. xz files can
    also have several streams (xz file format 1.2.1, section 2: "a file contains one or more
    streams"), with padding of four zeros at a time between them; so have zstd files (RFC 8878, 3).

    `start` makes the decompressor of one stream. Each other stream begins with one of `magics`,
    which are equally long. `padding` may stand between streams, and after the last.
    """

    def __init__(
        self,
        member: Member,
        start: Callable[[], Decompressor],
        magics: tuple[bytes, ...] = (),
        padding: bytes = b"",
    ) -> None:
        self._member, self._start, self._magics, self._padding = member, start, magics, padding
        self._slice = _SLICE if magics else _LONG_SLICE
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
        """Return up to `max_length` bytes."""
        while not self._stream.eof or self._next_stream():
            if self._stream.needs_input and not self._data:
                break
            piece = self._decompress(max_length)
            if piece:
                return piece
        return b""

    def _decompress(self, max_length: int) -> Buffer:
        taken = memoryview(b"")
        if self._stream.needs_input:
            self._given, taken = self._data, self._data[: self._slice]
            self._data = self._data[self._slice :]
        try:
            piece = self._stream.decompress(taken, max_length)
        except _ERRORS as error:
            _fail(self._member, error)
        if self._stream.eof:
            # A stream takes all of one slice before the next: what it left is of the last.
            slice_length = len(self._given) - len(self._data)
            self._data = self._given[slice_length - len(self._stream.unused_data) :]
        return piece

    def _next_stream(self) -> bool:
        """Begin another stream if its magic follows; otherwise the rest is spare."""
        while self._padding and self._data[: len(self._padding)] == self._padding:
            self._data = self._data[len(self._padding) :]
        length, magic = len(self._data), len(self._magics[0]) if self._magics else 0
        if self._data[:magic] in self._magics:
            self._stream = self._start()
            return True
        data, self._data = self._data, memoryview(b"")
        if length < magic:
            self._between = bytes(data)
        else:
            self._late += length
        return False


def _fail(member: Member, error: Exception) -> NoReturn:
    code = "memory-bound" if "emory" in str(error) else "corrupt-stream"
    words = f"{records.METHODS[member.method].lower()}: {error}"
    member.fail(code, explain_igzip(error) if isinstance(error, IGZIP_ERROR) else words)


class Lzma:
    """LZMA with the ZIP's own header: version, properties' length, properties.

    liblzma gets the raw stream behind a header of the old `.lzma` format, which has the same
    properties and the size. Then the library knows where the stream ends (flag bit 1: at its
    marker), and obeys a memory limit. The dictionary never needs to be larger than the member.
    """

    def __init__(self, member: Member, policy: Policy) -> None:
        self._member = member
        self._has_marker = bool(member.flags & records.FLAG_LZMA_EOS)
        self._size = self._left = member.size
        self._unseen = member.compressed_size
        self._limit = policy.limits.decoder_memory
        self._stream: lzma.LZMADecompressor | None = None
        self._data: Buffer = b""
        self._late = 0

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self._stream is not None and self._stream.eof

    @property
    def spare(self) -> int:
        """Bytes after the stream."""
        if self._stream is None or not self._stream.eof:
            return 0
        return self._late + len(self._stream.unused_data)

    def push(self, data: Buffer) -> None:
        """Take the next input."""
        self._unseen -= len(data)
        if self.ended:
            self._late += len(data)
        else:
            self._data = b"".join((self._data, data)) if self._data else data

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes.

        Some writers add an end marker to a stream of known size. liblzma accepts it, unless its
        input is cut inside the marker. So the last byte of output is pulled alone, when the input
        after it is there.
        """
        if self._stream is None:
            self._stream = self._start()
        if self._stream is None or self._stream.eof:
            return b""
        if not self._has_marker:
            if self._left > 1:
                max_length = min(max_length, self._left - 1)
            elif self._unseen > 0 and len(self._data) < _MARKER_ROOM:
                return b""
        if self._stream.needs_input and not self._data:
            return b""
        data, self._data = self._data, b""
        try:
            piece = self._stream.decompress(data, max_length)
        except (lzma.LZMAError, EOFError) as error:
            _fail(self._member, error)
        self._left -= len(piece)
        return piece

    def _start(self) -> lzma.LZMADecompressor | None:
        length = _HEADER_LENGTH + _PROPERTIES_LENGTH
        if len(self._data) < length:
            return None
        head = bytes(self._data[:length])
        if int.from_bytes(head[2:4], "little") != _PROPERTIES_LENGTH:
            self._member.fail("corrupt-stream", f"lzma: odd properties {head.hex()}")
        dictionary = int.from_bytes(head[5:9], "little")
        dictionary = min(dictionary, max(self._size, _SMALLEST_DICTIONARY))
        if dictionary > self._limit:
            message = f"lzma: a dictionary of {dictionary} bytes, the limit is {self._limit}"
            self._member.fail("memory-bound", message)
        known = _UNKNOWN_SIZE if self._has_marker else self._size
        header = head[4:5] + dictionary.to_bytes(4, "little") + known.to_bytes(8, "little")
        self._data = b"".join((header, self._data[length:]))
        return lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=self._limit + _OVERHEAD)


def _open_deflate(member: Member, _: Policy) -> Chain:
    """Return the one raw stream."""
    return Chain(member, IgzipDecompressor)


def _open_bzip2(member: Member, _: Policy) -> Chain:
    """Return bzip2 streams; their memory is bounded by the format (900 KB blocks)."""
    return Chain(member, BZ2Decompressor, (b"BZh",))


def _open_xz(member: Member, policy: Policy) -> Chain:
    """Return xz streams, and the padding between them."""
    limit = policy.limits.decoder_memory + _OVERHEAD
    start = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=limit)
    return Chain(member, start, (b"\xfd7zXZ\0",), padding=bytes(4))


def _open_zstd(member: Member, policy: Policy) -> Chain:
    """Return Zstandard frames, skippable ones among them; none has a window above the limit."""
    from s3unzip.zip.zstd import open_frames  # noqa: PLC0415 - few archives need it

    return Chain(member, open_frames(policy.limits.decoder_memory), _ZSTD_MAGICS)


CODECS: dict[int, Callable[[Member, Policy], Uncompressed | Deflate64 | Chain | Lzma]] = {
    records.METHOD_STORED: Uncompressed,
    records.METHOD_DEFLATE: _open_deflate,
    records.METHOD_DEFLATE64: Deflate64,
    records.METHOD_BZIP2: _open_bzip2,
    records.METHOD_LZMA: Lzma,
    records.METHOD_ZSTD: _open_zstd,
    records.METHOD_XZ: _open_xz,
}
