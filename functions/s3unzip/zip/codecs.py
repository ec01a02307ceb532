"""The decompressors for the compression methods (APPNOTE 4.4.5), with limits on output and memory.

Rules for all decompressors:

* Call `push` with the next input only after `pull` has returned no bytes.
* `pull` returns at most `max_length` bytes. It returns no bytes if it needs input, or if the stream
  has ended.
* A stream that is corrupt, or needs too much memory, makes the member fail.
* `ended` is True if the stream has ended and all of its output has been pulled.
* `spare` is the number of pushed bytes after the end of the stream. For Deflate64 and LZMA, the
  number can be too low, but it is greater than 0 if any byte follows the stream.

`decode` checks the size, the CRC-32 and the end of a stream.
"""

from __future__ import annotations

import lzma
from bz2 import BZ2Decompressor
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor

from s3unzip.zip import records
from s3unzip.zip.checks import Policy
from s3unzip.zip.values import Buffer, Member

# The type stubs declare this class as an instance.
IGZIP_ERROR = cast("type[Exception]", isal_zlib.error)
_STREAM_ERRORS = (OSError, EOFError, ValueError, lzma.LZMAError, IGZIP_ERROR)

# The libraries for Deflate64 and zstd do not limit their output, so their input is cut into slices.
# A Deflate64 match of 18 bits yields up to 65,538 bytes, so a slice yields at most 8 MB. Whether
# inflate64 accepts a broken stream depends on the lengths of its inputs, so a stream is always cut
# in the same way.
_DEFLATE64_SLICE = 256
# A zstd block of 4 bytes yields up to 128 KiB, so a slice of 512 bytes yields at most 16 MiB.
_ZSTD_SLICE = 512

# The error messages of ISA-L begin with these codes, which are meaningless to a user.
_IGZIP_FAULTS = {
    "Error -1": "deflate: a block has an impossible header",
    "Error -2": "deflate: a code is not assigned to a symbol",
    "Error -3": "deflate: a match points before the beginning of the data",
}

# When a stream ends, its decompressor copies the unused input. Short slices limit the cost of this
# copy for members that consist of many streams of a few bytes.
_SLICE = 16 * 1024
_ONLY_STREAM_SLICE = 64 * 1024  # for a method that allows only one stream

# The header before an LZMA stream in a ZIP file (5.8.8) contains the version, the length of the
# properties (always 5), and the properties.
_LZMA_HEADER_LENGTH = 9
_UNKNOWN_SIZE = (1 << 64) - 1
_LZMA_OVERHEAD = 16 << 20  # memory for the probability tables and buffers, without the dictionary
# The largest dictionary that a header can request. liblzma accepts only limits of at most 64 bits.
_MAX_DICTIONARY = 1 << 32
_MIN_DICTIONARY = 4096  # size in bytes of the smallest dictionary that liblzma accepts
_MAX_MARKER = 64  # maximum size of an end marker in the input, in bytes

# The magic numbers of frames and of skippable frames (RFC 8878, 3.1.1 and 3.1.2).
_ZSTD_MAGICS = (
    b"\x28\xb5\x2f\xfd",
    *(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60)),
)


class _Stored:
    """No compression (method 0): the directory declares where the stream ends."""

    def __init__(self, member: Member, _: Policy) -> None:
        self._input_left = member.compressed_size
        self._input = memoryview(b"")
        self.spare = 0

    @property
    def ended(self) -> bool:
        return self._input_left == 0

    def push(self, data: Buffer) -> None:
        self._input = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        output = self._input[:max_length]
        self._input = self._input[max_length:]
        self._input_left -= len(output)
        return output


def explain_igzip(error: Exception) -> str:
    """Return a message that describes what is wrong with a deflate stream (RFC 1951)."""
    return _IGZIP_FAULTS.get(str(error)[: len("Error -1")], f"deflate: {error}")


class _SlicedStream:
    """A stream with the interface of bz2 and lzma, for a library that does not limit its output.

    `decompress` is the method of `library` that decompresses a slice, at most `max_slice` bytes of
    input. The output of a slice is kept, and returned in parts.

    Some libraries do not report how much input they have used. For these libraries, the lengths of
    the slices depend only on `input_left`, the number of bytes up to the end of the member, and not
    on how the input arrives. The last byte of the member is a separate slice. If the stream ends
    before the last slice, bytes follow the stream.
    """

    def __init__(
        self,
        library: Any,
        decompress: Callable[[bytes], bytes],
        max_slice: int,
        input_left: int | None = None,
    ) -> None:
        self._library = library
        self._decompress = decompress
        self._max_slice = max_slice
        # Number of bytes that the library will still receive, including `_input`; None if the
        # library reports unused input.
        self._input_left = input_left
        self._input = memoryview(b"")  # bytes that the library has not used
        self._output = memoryview(b"")  # output of the last slice that was not returned yet

    @property
    def eof(self) -> bool:
        return bool(self._library.eof) and not self._output

    @property
    def needs_input(self) -> bool:
        return not self._output and not self._slice_length()

    @property
    def unused_data(self) -> Buffer:
        return self._input

    def _slice_length(self) -> int:
        """Return the length of the next slice, or 0 if more input is needed first."""
        if self._input_left is None:
            return min(self._max_slice, len(self._input))
        # The last byte is a separate slice, which remains unused if the stream ends earlier.
        next_length = min(self._max_slice, max(1, self._input_left - 1))
        return next_length if len(self._input) >= next_length else 0

    def decompress(self, data: Buffer, max_length: int) -> Buffer:
        if data:
            self._input = memoryview(b"".join((self._input, data)))
        while not self._output and not self._library.eof:
            length = self._slice_length()
            if not length:  # more input is needed first
                break
            self._output = memoryview(self._decompress(bytes(self._input[:length])))
            if self._input_left is None:  # the library reports how much of the slice is unused
                length -= len(self._library.unused_data)
            else:  # the library reports nothing, so the whole slice counts as used
                self._input_left -= length
            self._input = self._input[length:]
        output = self._output[:max_length]
        self._output = self._output[max_length:]
        return output


class _StreamChain:
    """One or more consecutive streams that together contain the content of a member.

    ``cat a.bz2 b.bz2`` produces a valid bzip2 file, and parallel compressors write such files. An
    xz file can also contain several streams (xz file format 1.2.1, section 2: "a file contains one
    or more streams"), with padding between the streams in multiples of four zero bytes. A zstd file
    can also contain several streams (RFC 8878, 3).

    `start` creates the decompressor for one stream. Each later stream begins with one of `magics`,
    which all have the same length. Without `magics`, there is only one stream. `padding` can appear
    between streams, and after the last stream.
    """

    def __init__(
        self,
        member: Member,
        start: Callable[[], _Stream],
        magics: tuple[bytes, ...] = (),
        padding: bytes = b"",
        errors: tuple[type[Exception], ...] = _STREAM_ERRORS,
    ) -> None:
        self._member = member
        self._start = start
        self._magics = magics
        self._magic_length = max(map(len, magics), default=0)
        # Short slices are for members that consist of many short streams (see `_SLICE`).
        self._max_slice = _SLICE if magics else _ONLY_STREAM_SLICE
        self._padding = padding
        self._errors = errors
        self._stream = start()
        self._input = memoryview(b"")  # pushed bytes that no stream has received
        # The last slice that a stream received, followed by `_input`. When the stream ends, the
        # unused bytes of this slice are put back into `_input`.
        self._slice_and_rest = memoryview(b"")
        self._dropped_bytes = 0  # number of bytes after the last stream, which `_start_next` drops

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def spare(self) -> int:
        return self._dropped_bytes + len(self._input)

    def push(self, data: Buffer) -> None:
        if self._dropped_bytes:  # the last stream has ended, so further input is only counted
            self._dropped_bytes += len(data)
            return
        if self._input:  # `_start_next` has left a part of a magic number
            data = b"".join((self._input, data))
        self._input = memoryview(data)

    def pull(self, max_length: int) -> Buffer:
        while True:
            if self._stream.eof:
                self._start_next()
            if self._stream.eof or (self._stream.needs_input and not self._input):
                return b""  # no other stream follows, or more input is needed
            output = self._decompress(max_length)
            if output:
                return output

    def _decompress(self, max_length: int) -> Buffer:
        """Pass the next slice of input to the stream, if it needs input; return its output."""
        chunk = memoryview(b"")
        if self._stream.needs_input:
            self._slice_and_rest = self._input
            chunk = self._input[: self._max_slice]
            self._input = self._input[self._max_slice :]
        try:
            output = self._stream.decompress(chunk, max_length)
        except self._errors as error:
            _fail(self._member, error)
        if self._stream.eof:
            # Put back the bytes that the stream has not used. A stream uses a whole slice before it
            # receives the next slice, so the unused bytes are the end of the last slice. Only LZMA
            # can also leave bytes of earlier slices unused. These bytes need not be put back: an
            # unused byte in the last slice is enough to show that bytes follow the stream.
            last_slice_length = len(self._slice_and_rest) - len(self._input)
            first_unused = max(0, last_slice_length - len(self._stream.unused_data))
            self._input = self._slice_and_rest[first_unused:]
        return output

    def _start_next(self) -> None:
        """Skip padding, and start the next stream if there is one.

        Input that is shorter than a magic number is kept until the next `push`. Any other input is
        dropped and counted.
        """
        while self._padding and self._input[: len(self._padding)] == self._padding:
            self._input = self._input[len(self._padding) :]
        if self._input[: self._magic_length] in self._magics:
            self._stream = self._start()
        elif len(self._input) >= self._magic_length:
            self._dropped_bytes += len(self._input)
            self._input = memoryview(b"")


def _fail(member: Member, error: Exception) -> NoReturn:
    if isinstance(error, IGZIP_ERROR):
        member.fail("corrupt-stream", explain_igzip(error))  # raises an error
    code = "corrupt-stream"
    # If the stream needs more memory than allowed, the messages of liblzma and libzstd say so.
    if "memory" in str(error).lower():
        code = "memory-bound"
    # `METHODS` contains short names, for example "Defl".
    method = records.METHODS[member.method].lower().replace("defl", "deflate")
    member.fail(code, f"{method}: {error}")


class _LzmaStream:
    """LZMA with a header that only ZIP uses: version, length of the properties, properties.

    The decompressors in `bz2` and `lzma` have the same interface. liblzma receives a header in the
    old `.lzma` format, with the same properties and the size, and then the raw stream. With this
    header, the library finds the end of the stream (at an end marker, if flag bit 1 is set), and
    enforces a memory limit.
    """

    def __init__(self, member: Member, policy: Policy) -> None:
        self._member = member
        self._declares_marker = bool(member.flags & records.FLAG_LZMA_EOS)
        self._output_left = member.size  # number of bytes that are still to be returned
        self._missing_input = member.compressed_size  # number of bytes that have not arrived yet
        self._memory_limit = min(policy.limits.decoder_memory, _MAX_DICTIONARY)
        self._stream: lzma.LZMADecompressor | None = None  # None until the header has arrived
        self._input: Buffer = b""  # bytes that liblzma has not received yet
        self.unused_data: Buffer = b""  # bytes after the end of the stream

    @property
    def eof(self) -> bool:
        return self._stream is not None and self._stream.eof

    @property
    def needs_input(self) -> bool:
        if self._stream is None:
            return len(self._input) < _LZMA_HEADER_LENGTH
        # Some writers add an end marker without declaring it. liblzma accepts such a marker only if
        # the input is not cut inside the marker. So before the last byte of output, wait until no
        # input is missing, or until at least `_MAX_MARKER` bytes have arrived.
        may_reach_marker = self._output_left <= 1 and not self._declares_marker
        if may_reach_marker and self._missing_input > 0 and len(self._input) < _MAX_MARKER:
            return True
        return self._stream.needs_input and not self._input

    def decompress(self, data: Buffer, max_length: int) -> Buffer:
        self._missing_input -= len(data)
        self._input = b"".join((self._input, data))
        if self._stream is None and not self.needs_input:  # the header has arrived
            self._stream = self._start()
        # Either the header is incomplete, or the stream has started but needs more input.
        if self._stream is None or self.needs_input:
            return b""
        # Hold back the last byte of output until `needs_input` no longer waits for a marker.
        if self._output_left > 1 and not self._declares_marker:
            max_length = min(max_length, self._output_left - 1)
        output = self._stream.decompress(self._input, max_length)
        self._input = b""  # liblzma keeps the input that it has not used
        self._output_left -= len(output)
        self.unused_data = self._stream.unused_data
        return output

    def _start(self) -> lzma.LZMADecompressor:
        """Replace the header in the input with a `.lzma` header; return a decompressor for it."""
        header = bytes(self._input[:_LZMA_HEADER_LENGTH])
        if int.from_bytes(header[2:4], "little") != 5:  # length of the properties
            self._member.fail("corrupt-stream", f"lzma: invalid header {header.hex()}")
        properties = header[4]  # lc + 9 * lp + 45 * pb (5.8.8)
        lc = properties % 9
        lp = properties // 9 % 5
        # liblzma supports an lc + lp of at most 4. Properties of 225 (9 * 5 * 5) or more are
        # invalid: liblzma refuses them.
        if properties < 225 and lc + lp > 4:
            self._member.fail(
                "unsupported-method", f"lzma: properties 0x{properties:02x}: lc + lp is above 4"
            )
        # A match cannot refer further back than the size of the member, so a dictionary of this
        # size is enough.
        dictionary = min(
            int.from_bytes(header[5:9], "little"), max(self._member.size, _MIN_DICTIONARY)
        )
        if dictionary > self._memory_limit:
            self._member.fail(
                "memory-bound",
                f"lzma: a dictionary of {dictionary} bytes; the limit is {self._memory_limit}",
            )
        size = _UNKNOWN_SIZE if self._declares_marker else self._member.size
        # The header of a `.lzma` file: the properties, and the sizes of the dictionary and output.
        lzma_header = header[4:5] + dictionary.to_bytes(4, "little") + size.to_bytes(8, "little")
        self._input = b"".join((lzma_header, self._input[_LZMA_HEADER_LENGTH:]))
        return lzma.LZMADecompressor(
            lzma.FORMAT_ALONE, memlimit=self._memory_limit + _LZMA_OVERHEAD
        )


_Stream = IgzipDecompressor | BZ2Decompressor | lzma.LZMADecompressor | _LzmaStream | _SlicedStream


def _open_xz(member: Member, policy: Policy) -> _StreamChain:
    return _StreamChain(
        member,
        partial(
            lzma.LZMADecompressor,
            lzma.FORMAT_XZ,
            memlimit=min(policy.limits.decoder_memory, _MAX_DICTIONARY) + _LZMA_OVERHEAD,
        ),
        magics=(b"\xfd7zXZ\0",),
        padding=bytes(4),  # NULs between streams, in multiples of 4
    )


def _open_zstd(member: Member, policy: Policy) -> _StreamChain:
    """Return the chain of zstd frames in a member; no window may exceed the limit.

    All frames share a decoder. Creating a decoder takes 8 us, because libzstd queries the features
    of the CPU, but decoding an empty frame takes only 0.2 us.
    """
    import zstandard  # noqa: PLC0415 - few archives need it

    # libzstd accepts only limits from 1 KiB to 2 GiB.
    decoder = zstandard.ZstdDecompressor(
        max_window_size=min(max(1 << 10, policy.limits.decoder_memory), 1 << 31)
    )

    def start_frame() -> _SlicedStream:
        frame = decoder.decompressobj()
        return _SlicedStream(frame, frame.decompress, _ZSTD_SLICE)

    return _StreamChain(
        member,
        start_frame,
        magics=_ZSTD_MAGICS,
        errors=(*_STREAM_ERRORS, zstandard.ZstdError),
    )


def _open_deflate64(member: Member, _: Policy) -> _StreamChain:
    # Only a few archives need inflate64, and importing it loads twenty other modules.
    import inflate64  # noqa: PLC0415

    library = inflate64.Inflater()
    stream = _SlicedStream(library, library.inflate, _DEFLATE64_SLICE, member.compressed_size)
    return _StreamChain(member, lambda: stream)  # called once: a member is a single stream


CODECS: dict[int, Callable[[Member, Policy], _Stored | _StreamChain]] = {
    records.METHOD_STORED: _Stored,
    records.METHOD_DEFLATE: lambda member, _: _StreamChain(member, IgzipDecompressor),
    records.METHOD_DEFLATE64: _open_deflate64,
    # The bzip2 format itself limits memory use, because its blocks hold at most 900 KB.
    records.METHOD_BZIP2: lambda member, _: _StreamChain(member, BZ2Decompressor, (b"BZh",)),
    records.METHOD_LZMA: lambda member, policy: _StreamChain(
        member, partial(_LzmaStream, member, policy)
    ),
    records.METHOD_ZSTD: _open_zstd,
    records.METHOD_XZ: _open_xz,
}
