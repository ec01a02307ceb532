"""The segments of a member: their positions, and how to inflate a segment with a given window.

All positions are relative to the first byte of the member's compressed data, not of the archive.
Segment 0 begins at bit 0. Every other segment begins at a boundary that `boundary` finds. If there
is no boundary in the search span, the segment joins the previous segment.

zlib and ISA-L can begin only at bit 0 of a byte. Therefore `align` adds empty deflate blocks before
the bits of a segment (RFC 1951, section 3.2). The libraries also report positions only in bytes.
Therefore `seal` adds a block after the bits of a segment; the output of this block shows that the
previous block ends exactly where the segment ends. The functions that make these blocks represent
bits as strings of 0 and 1, first bit first. Bit 0 is the lowest bit of a byte. Huffman codes are
written starting from their highest bit.

Rules of a `SegmentInflater`:

* Call `feed` with the bytes of `segment_span` in order, in chunks of any length.
* Exhaust the iterator that `feed` returns before the next call.
* Call `finish` once, as the last call, to receive the rest of the output.
* Use an inflater from only one thread.
* Bad data never causes an exception: the returned `Arrival` describes how inflating ended.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor
from msgspec import Struct

from s3unzip.errors import Finding

Buffer = bytes | memoryview

# Number of bytes in which to search for a boundary. Every block is shorter than this: zlib writes
# blocks of at most 32,767 symbols, libdeflate writes blocks with about 300 KB of output, and zopfli
# writes blocks with 1 MB of output. The limit exists for data without dynamic blocks, in which the
# search takes 0.2 s for each MiB and finds nothing.
SEARCH_BYTES: Final = 2 << 20

# Reads bytes [start, stop) of a member's compressed data in chunks.
Read = Callable[[int, int], Iterable[Buffer]]


class Segmentation(Struct, frozen=True):
    """The compressed size of a member, and the distance between its segments, in bytes.

    Workers with equal segmentations find the same boundaries. `search` is the maximum number of
    bytes to search for the boundary of one segment.
    """

    size: int
    distance: int
    search: int = SEARCH_BYTES

    @property
    def count(self) -> int:
        """The number of segments, including segments that join the previous segment."""
        return -(-self.size // self.distance)  # rounded up

    def search_span(self, segment: int) -> tuple[int, int]:
        """Return the range [start, stop) of bytes in which the boundary of `segment` can lie.

        Segment 0 has no boundary.
        """
        start = segment * self.distance
        stop = start + min(self.distance, self.search)
        return start, min(stop, self.size)


def segment_span(start_bit: int, stop_bit: int | None, compressed_size: int) -> tuple[int, int]:
    """Return the range [start, stop) of the bytes that are needed to inflate a segment.

    The range begins with the byte that contains `start_bit`, and ends after the byte that contains
    the last bit before `stop_bit`. If `stop_bit` is None, the range extends to the end of the data.
    """
    if stop_bit is None:
        return start_bit // 8, compressed_size
    return start_bit // 8, -(-stop_bit // 8)  # rounded up


WINDOW_SIZE: Final = 1 << 15  # maximum distance of a deflate match, in bytes (RFC 1951, 2)
PIECE_SIZE: Final = 1 << 18  # maximum size of a piece of output, in bytes
# Two invented windows. They replace the output before a segment while this output is not known.
# Each byte of the first window is the low byte of its position. In the second window, the lower
# seven bits of a byte are the high seven bits of its position. The top bit of the byte is the
# opposite of the top bit in the first window, so the two windows differ at every position.
FIRST_WINDOW: Final = bytes(range(256)) * 128
SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)

# The exception that ISA-L raises is not a subclass of `zlib.error`. The type stubs declare this
# class as an instance.
InflateError: Final = cast("type[Exception]", isal_zlib.error)
_SENTINEL_TEXT: Final = b"s3unzip!"  # the output of the sentinel block


def _huffman_code(value: int, length: int) -> str:
    """Return a Huffman code of `length` bits, with the highest bit first."""
    return f"{value:0{length}b}"


def _header_field(value: int, length: int) -> str:
    """Return a field of a block header, with the lowest bit first (RFC 1951, 3.1.1)."""
    return _huffman_code(value, length)[::-1]


_END_OF_FIXED_BLOCK = _huffman_code(0, 7)
_EMPTY_FIXED_BLOCK = _header_field(0b010, 3) + _END_OF_FIXED_BLOCK


# An empty, non-final dynamic block. It is 91 bits long, an odd number. The code-length code has two
# one-bit codes: 0 for symbol 1, and 1 for symbol 18. With this code the block declares two one-bit
# literal/length codes, for symbol 0 and for the end of the block, and a single distance code of one
# bit. Every library accepts this distance code, although it is incomplete.
_EMPTY_DYNAMIC_BLOCK = (
    _header_field(0b100, 3)  # not final, dynamic
    + _header_field(0, 5)  # 257 literal/length codes
    + _header_field(0, 5)  # 1 distance code
    + _header_field(18 - 4, 4)  # 18 lengths of the code-length code
    # 3.2.7 defines the order of the symbols: 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1.
    + 2 * _header_field(0, 3)
    + _header_field(1, 3)
    + 14 * _header_field(0, 3)
    + _header_field(1, 3)
    + "0"  # symbol 0 has a code
    # Symbols 1 to 255 have no codes: 138 lengths of 0, then 117 more.
    + ("1" + _header_field(138 - 11, 7) + "1" + _header_field(117 - 11, 7))
    + "0"  # symbol 256, the end of the block, has a code
    + "0"  # the only distance code is for symbol 0
    + "1"  # the code for the end of the block
)


def _lead_in(bit: int) -> tuple[int, int]:
    """Return the shortest sequence of empty blocks whose length in bits, modulo 8, equals `bit`.

    Returns the sequence as an integer, and the length in bits. The lowest bit is the first bit.
    """
    blocks = ""
    if bit % 2:
        blocks = _EMPTY_DYNAMIC_BLOCK  # 91 bits, which makes the length odd
    while len(blocks) % 8 != bit:
        blocks += _EMPTY_FIXED_BLOCK  # 10 bits, which add 2 to the length modulo 8
    return int(f"0{blocks[::-1]}", 2), len(blocks)  # without the 0, an empty string would fail


_LEAD_INS: Final = tuple(map(_lead_in, range(8)))
# A final fixed block of 74 bits that contains `_SENTINEL_TEXT`. The 8-bit codes of its literals
# begin at 0x30 (3.2.6).
_SENTINEL_BITS: Final = (
    _header_field(0b011, 3)
    + "".join(_huffman_code(0x30 + byte, 8) for byte in _SENTINEL_TEXT)
    + _END_OF_FIXED_BLOCK
)


def align(data: bytes, bit: int) -> bytes:
    """Convert a stream that begins at bit `bit` of ``data[0]`` to a stream that begins at bit 0.

    The new stream begins with empty blocks. The length of the empty blocks in bits, modulo 8,
    equals `bit`, so each bit of the old stream keeps its position within its byte. Shifting the
    bits would break stored blocks, whose data begins at a byte boundary. The last bits of the empty
    blocks replace the low bits of ``data[0]``, which belong to the previous segment. At most
    15 bytes are added.
    """
    if not bit:
        return data
    blocks, length = _LEAD_INS[bit]  # `length` % 8 == `bit`
    shared_bits = (data[0] >> bit) << length  # the bits of ``data[0]`` that belong to the stream
    return (blocks | shared_bits).to_bytes(length // 8 + 1, "little") + data[1:]


def seal(last: bytes, bit: int) -> bytes:
    """Return the end of a stream that is cut between two bits, followed by the sentinel block.

    If a block ends at the cut, a library reads the sentinel block as the next block, and the output
    ends with `_SENTINEL_TEXT`. If the cut lies inside a block, the library interprets the same bits
    differently, which in practice never produces that text.

    Args:
        last: the byte that contains the cut; empty if the cut lies between two bytes.
        bit: number of low bits of that byte that come before the cut.
    """
    low_bits = int.from_bytes(last, "little") & ((1 << bit) - 1)
    # The string is reversed because the first bit of a stream is the lowest bit of its first byte.
    sealed = low_bits | (int(_SENTINEL_BITS[::-1], 2) << bit)
    return sealed.to_bytes(-(-(bit + len(_SENTINEL_BITS)) // 8), "little")  # rounded up


Ending = Literal["boundary", "final", "missed", "broken"]


class Arrival(Struct, frozen=True):
    """How inflating a segment ended.

    * "boundary": at a block header, exactly at the segment's stop bit.
    * "final": at the end of the stream, after its final block.
    * "missed": past the stop bit, which lies inside a block and is therefore a false boundary.
    * "broken": in corrupt data, or where the data ends too early.
    """

    ending: Ending
    length: int  # total output, in bytes
    used: int = 0  # if "final": number of the member's compressed bytes that the stream uses
    fault: Finding | None = None  # if "broken": the reason


class SegmentInflater:
    """Inflates the bits from `start_bit` to `stop_bit` of a member's compressed data.

    An inflater needs two buffers of a few hundred KiB, whatever the compression ratio is.

    Args:
        start_bit: position of the first bit of a block header.
        stop_bit: position of the first bit of a later block header, or None for the end of the
            stream. The two bits must not lie in the same byte, because `feed` cannot remove the
            bits of two other segments from one byte. Two boundaries never lie in the same byte,
            because search spans do not overlap.
        window: the output before the segment, at most the last 32 KiB.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None, window: bytes = b"") -> None:
        self._inflate = IgzipDecompressor(zdict=window)
        self._first_bit = start_bit % 8
        # Positions are in bytes, relative to the start of the member's data.
        self._start = start_bit // 8
        self._position = self._start  # position of the next chunk
        self._stop: int | None = None  # position after the last chunk; None if there is no stop bit
        self._last_bits = 0  # how many bits of the last byte are in the segment; 0 means all 8
        if stop_bit is not None:
            self._stop = -(-stop_bit // 8)  # rounded up
            self._last_bits = stop_bit % 8
        self._last_byte = b""  # set if the last byte also contains bits of the next segment
        self._first_unused = 0  # position of the first byte that the inflater has not used
        self._fault: Finding | None = None
        self.length = 0  # output so far, in bytes

    @property
    def ended(self) -> bool:
        """Whether the stream has ended or is broken, so that more input has no effect."""
        return self._fault is not None or self._inflate.eof

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output that `chunk`, the next bytes of the segment, produces."""
        is_first = self._position == self._start
        self._position += len(chunk)
        if self.ended or not chunk:
            return
        # If the segment ends inside a byte, this byte also contains bits of the next segment.
        if self._last_bits and self._position == self._stop:
            self._last_byte = bytes(chunk[-1:])
            chunk = chunk[:-1]
        # The first byte can also contain bits of the previous segment.
        if is_first and chunk:
            chunk = align(bytes(chunk), self._first_bit)
        yield from self._drain(chunk)
        # Count back from the end of the chunk, because `align` can add bytes at the beginning. The
        # inflater has not received `_last_byte`.
        self._first_unused = self._position - len(self._last_byte) - len(self._inflate.unused_data)

    def finish(self) -> tuple[bytes, Arrival]:
        """Return the rest of the output, at most a few KiB, and how inflating ended."""
        if self._fault is None and self._inflate.eof:
            return b"", Arrival("final", self.length, self._first_unused)
        # The last segment has no stop bit: its `_stop` is None, and it must end with the stream.
        if self._fault is None and self._position == self._stop:
            return self._finish_at_stop()
        fault = self._fault or Finding(
            "stream-truncated", f"the deflate stream does not end within its {self._position} bytes"
        )
        return b"", Arrival("broken", self.length, fault=fault)

    def _finish_at_stop(self) -> tuple[bytes, Arrival]:
        """Return the result of `finish` for a segment whose data ends at its stop bit.

        Appends a sentinel block at the stop bit. If the output ends with the text of the sentinel,
        a block ends at the stop bit.
        """
        length = self.length  # saved, because `_drain` adds the sentinel's output to `self.length`
        output = b"".join(self._drain(seal(self._last_byte, self._last_bits)))
        # The sentinel block is a final block, so the stream must end with it.
        has_ended = self._inflate.eof and not self._inflate.unused_data
        if self._fault is None and has_ended and output.endswith(_SENTINEL_TEXT):
            output = output[: -len(_SENTINEL_TEXT)]
            self.length = length + len(output)
            return output, Arrival("boundary", self.length)
        return b"", Arrival("missed", length)

    def _drain(self, data: Buffer) -> Iterator[bytes]:
        """Yield all output that `data` produces; record any fault."""
        while not self._inflate.eof:
            try:
                output = self._inflate.decompress(data, PIECE_SIZE)
            except InflateError as error:
                self._fault = Finding(
                    "corrupt-stream", f"{error}, before byte {self._position} of the member's data"
                )
                return
            data = b""  # the library has received all of the data
            if output:
                self.length += len(output)
                yield output
            if self._inflate.needs_input:
                return
