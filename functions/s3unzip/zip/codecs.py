"""The decompressors by method (APPNOTE 4.4.5), each bounded in output and memory.

Call `push` with the next input after `pull` has returned nothing. `pull` returns at most
`max_length` bytes, and nothing when it needs input or the stream has ended. A stream that is
corrupt, or needs too much memory, fails the member. `ended` is True when the stream has ended.
`spare` is the number of bytes pushed after its end; of Deflate64, any number above 0 if there were
some. `decode` checks the size, the CRC-32 and the end of a stream.
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
# depends on the lengths of its inputs, so the input is always cut here, in the same way.
_DEFLATE64_SLICE = 256


# The library's texts begin with these numbers, which tell a reader nothing.
_IGZIP_FAULTS = {
    "Error -1": "deflate: a block has an impossible header",
    "Error -2": "deflate: a code stands for nothing",
    "Error -3": "deflate: a match points before the beginning of the data",
}

# When a stream ends, its decompressor copies the input that it did not use. This bounds that copy,
# for members that consist of streams of a few bytes.
_SLICE = 16 * 1024
_LONG_SLICE = 64 * 1024  # of a member that can have only one stream

# The header of the ZIP before an LZMA stream (5.8.8): version, properties' length, properties.
_HEADER_LENGTH = 4
_PROPERTIES_LENGTH = 5
_UNKNOWN_SIZE = (1 << 64) - 1
# Memory of liblzma besides the dictionary: its probability tables and buffers.
_OVERHEAD = 16 << 20
_SMALLEST_DICTIONARY = 4096
_MARKER_ROOM = 64

# RFC 8878, 3.1.1 and 3.1.2: frames, and skippable frames.
_ZSTD_MAGICS = (
    b"\x28\xb5\x2f\xfd",
    *(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)),
)


class Uncompressed:
    """No compression (method 0): the stream ends where the directory says."""

    def __init__(self, member: Member, _: Policy) -> None:
        self._input_left = member.compressed_size
        self._data = memoryview(b"")
        self.spare = 0

    @property
    def ended(self) -> bool:
        """Whether all declared bytes have come."""
        return self._input_left == 0

    def push(self, data: Buffer) -> None:
        """Take the next input, which is the output."""
        self._data = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        """Return a view of up to `max_length` bytes."""
        output = self._data[:max_length]
        self._data = self._data[max_length:]
        self._input_left -= len(output)
        return output


def explain_igzip(error: Exception) -> str:
    """Return in words what is wrong with a deflate stream (RFC 1951)."""
    return _IGZIP_FAULTS.get(str(error)[:8], f"deflate: {error}")


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
        self._input_left = member.compressed_size
        self._data = memoryview(b"")
        self._output = memoryview(b"")
        self.spare = 0

    @property
    def ended(self) -> bool:
        """Whether the final block ended and all its output was pulled."""
        return bool(self._stream.eof) and not self._output

    def push(self, data: Buffer) -> None:
        """Take the next input; keep what does not fill a slice yet."""
        if self._data:
            data = bytes(self._data) + data
        self._data = memoryview(data)
        self._count_spare()

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes."""
        while not (self._output or self._stream.eof):
            length = min(_DEFLATE64_SLICE, max(1, self._input_left - 1))
            if len(self._data) < length:
                break
            chunk = bytes(self._data[:length])
            self._data = self._data[length:]
            self._input_left -= length
            try:
                self._output = memoryview(self._stream.inflate(chunk))
            except (ValueError, EOFError) as error:
                self._member.fail("corrupt-stream", f"deflate64: {error}")
            self._count_spare()
        output = self._output[:max_length]
        self._output = self._output[max_length:]
        return output

    def _count_spare(self) -> None:
        if self._stream.eof:
            self.spare = self._input_left
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
        self._member = member
        self._start = start
        self._magics = magics
        self._magic_length = 0
        self._slice = _LONG_SLICE
        if magics:
            self._magic_length = len(magics[0])
            self._slice = _SLICE
        self._padding = padding
        self._stream = start()
        self._data = memoryview(b"")  # input that no stream has got
        self._last_slice = memoryview(b"")  # the last input of a stream, then `_data`
        self._between = b""  # the beginning of a magic, or of padding
        self._late = 0  # bytes of input after the last stream

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
            return
        if self._between:
            data = b"".join((self._between, data))
        self._data = memoryview(data)
        self._between = b""

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes."""
        while not self._stream.eof or self._next_stream():
            if self._stream.needs_input and not self._data:
                break
            output = self._decompress(max_length)
            if output:
                return output
        return b""

    def _decompress(self, max_length: int) -> Buffer:
        """Give the stream its next slice of input, if it needs one; return its output."""
        chunk = memoryview(b"")
        if self._stream.needs_input:
            self._last_slice = self._data
            chunk = self._data[: self._slice]
            self._data = self._data[self._slice :]
        try:
            output = self._stream.decompress(chunk, max_length)
        except _ERRORS as error:
            _fail(self._member, error)
        if self._stream.eof:
            # Give back what the stream has not used. It uses a whole slice before it gets the next
            # one, so the unused bytes are the end of the last slice.
            slice_length = len(self._last_slice) - len(self._data)
            self._data = self._last_slice[slice_length - len(self._stream.unused_data) :]
        return output

    def _next_stream(self) -> bool:
        """Begin another stream if its magic follows; otherwise all further input is spare."""
        while self._padding and self._data[: len(self._padding)] == self._padding:
            self._data = self._data[len(self._padding) :]
        if self._data[: self._magic_length] in self._magics:
            self._stream = self._start()
            return True
        if len(self._data) < self._magic_length:
            self._between = bytes(self._data)
        else:
            self._late += len(self._data)
        self._data = memoryview(b"")
        return False


def _fail(member: Member, error: Exception) -> NoReturn:
    """Fail a member for an error of a decompressor."""
    if isinstance(error, IGZIP_ERROR):
        member.fail("corrupt-stream", explain_igzip(error))
    code = "memory-bound" if "emory" in str(error) else "corrupt-stream"
    member.fail(code, f"{records.METHODS[member.method].lower()}: {error}")


class Lzma:
    """LZMA with the ZIP's own header: version, properties' length, properties.

    liblzma gets the raw stream behind a header of the old `.lzma` format, which has the same
    properties and the size. Then the library knows where the stream ends (flag bit 1: at its
    marker), and obeys a memory limit. The dictionary never needs to be larger than the member.
    """

    def __init__(self, member: Member, policy: Policy) -> None:
        self._member = member
        self._has_marker = bool(member.flags & records.FLAG_LZMA_EOS)
        self._size = member.size
        self._output_left = member.size
        self._input_left = member.compressed_size
        self._limit = policy.limits.decoder_memory
        self._stream: lzma.LZMADecompressor | None = None
        self._data: Buffer = b""
        self._late = 0  # bytes of input after the stream

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
        self._input_left -= len(data)
        if self.ended:
            self._late += len(data)
        elif self._data:
            self._data = b"".join((self._data, data))
        else:
            self._data = data

    def pull(self, max_length: int) -> Buffer:
        """Return up to `max_length` bytes; none if more input must come first."""
        if self._stream is None:
            self._stream = self._start()
        if self._stream is None or self._stream.eof:
            return b""
        allowed_length = self._allowed_output(max_length)
        lacks_input = self._stream.needs_input and not self._data
        if not allowed_length or lacks_input:
            return b""
        try:
            output = self._stream.decompress(self._data, allowed_length)
        except (lzma.LZMAError, EOFError) as error:
            _fail(self._member, error)
        self._data = b""
        self._output_left -= len(output)
        return output

    def _allowed_output(self, max_length: int) -> int:
        """Return how many bytes may be decompressed now, at most `max_length`.

        Some writers add an end marker to a stream of declared size. liblzma accepts it, unless its
        input is cut inside the marker. So the last byte of output is decompressed alone, after all
        input, or enough for a marker, has come.
        """
        if self._has_marker:
            return max_length
        if self._output_left > 1:
            return min(max_length, self._output_left - 1)
        if self._input_left > 0 and len(self._data) < _MARKER_ROOM:
            return 0
        return max_length

    def _start(self) -> lzma.LZMADecompressor | None:
        """Read the ZIP's header and write that of `.lzma`; None: more input is needed."""
        length = _HEADER_LENGTH + _PROPERTIES_LENGTH
        if len(self._data) < length:
            return None
        properties = bytes(self._data[:length])
        if int.from_bytes(properties[2:4], "little") != _PROPERTIES_LENGTH:
            self._member.fail("corrupt-stream", f"lzma: odd properties {properties.hex()}")
        dictionary = int.from_bytes(properties[5:9], "little")
        dictionary = min(dictionary, max(self._size, _SMALLEST_DICTIONARY))
        if dictionary > self._limit:
            message = f"lzma: a dictionary of {dictionary} bytes, the limit is {self._limit}"
            self._member.fail("memory-bound", message)
        size = _UNKNOWN_SIZE if self._has_marker else self._size
        header = properties[4:5] + dictionary.to_bytes(4, "little") + size.to_bytes(8, "little")
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
