"""The segments of a member: where they lie, and how one is inflated after a given window.

All positions count from the first byte of the member's compressed data, not of the archive.
Segment 0 begins at bit 0. Each other segment begins at a boundary, which `boundary` finds. If it
finds no boundary in the search span, the segment joins the previous one.

zlib and ISA-L begin at bit 0 of a byte and report no bit position. Extra deflate blocks before and
after the segment's bits remove both limits (RFC 1951, section 3.2). The functions that make these
blocks write bits as strings of 0 and 1, the first bit first. Within a byte, bit 0 is the lowest.
Huffman codes are written from their highest bit.

Rules of a `SegmentInflater`:

* Feed it the bytes of `segment_span` in order, in chunks of any length.
* Exhaust the iterator of one `feed` before the next call.
* Call `finish` once, last. It has the end of the output.
* One thread uses it.
* It never raises for bad data: its `Arrival` says where it ended.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor
from msgspec import Struct

from s3unzip.finding import DeflateError, Finding

Buffer = bytes | memoryview

# Bytes in which a boundary is searched for. Blocks are shorter: zlib's have at most 32,767
# symbols, libdeflate's about 300 KB and zopfli's 1 MB of output. The limit is for data without
# dynamic blocks, where the search takes 0.2 s for each MiB and finds nothing.
SEARCH_BYTES: Final = 2 << 20


class Span(NamedTuple):
    """Bytes of the member's compressed data from `start` up to, not including, `stop`."""

    start: int
    stop: int


Read = Callable[[Span], Iterable[Buffer]]  # returns a span of compressed data, in chunks


class Segmentation(Struct, frozen=True):
    """A member's compressed size and the distance between its segments, both in bytes.

    Workers with equal segmentations find equal boundaries. `search` is the maximum number of bytes
    in which the boundary of one segment is searched for.
    """

    size: int
    distance: int
    search: int = SEARCH_BYTES

    @property
    def count(self) -> int:
        """The number of segments, including those that join the previous one."""
        return -(-self.size // self.distance)  # rounded up

    def search_span(self, segment: int) -> Span:
        """Return the bytes in which the boundary of `segment` (1 or higher) is searched for."""
        start = segment * self.distance
        return Span(start, min(start + min(self.distance, self.search), self.size))

    def segment_at(self, boundary: int) -> int:
        """Return the number of the segment that begins at this bit."""
        return boundary // (8 * self.distance)


def cut(compressed_size: int, segment_size: int) -> Segmentation:
    """Return the segmentation into segments of at most `segment_size` bytes, about equally long.

    Raises:
        DeflateError: The member has no compressed data: the shortest stream has two bytes.
    """
    if not compressed_size:
        raise DeflateError(Finding("stream-truncated", "a deflate stream without any bytes"))
    count = -(-compressed_size // segment_size)  # both quotients are rounded up
    return Segmentation(compressed_size, -(-compressed_size // count))


def segment_span(start_bit: int, stop_bit: int | None, compressed_size: int) -> Span:
    """Return the bytes that are needed to inflate a segment.

    They begin with the byte that holds `start_bit` and end after the byte that holds the last bit
    before `stop_bit`. If `stop_bit` is None, they go to the end of the data.
    """
    stop = compressed_size
    if stop_bit is not None:
        stop = -(-stop_bit // 8)  # rounded up
    return Span(start_bit // 8, stop)


WINDOW_SIZE: Final = 1 << 15  # bytes that deflate can look back (RFC 1951, 2)
PIECE_SIZE: Final = 1 << 18  # maximum number of bytes of one piece of output
# Two invented windows for a segment whose own window, the output before it, is not known. Each byte
# of the first one is the low byte of its position. Each byte of the second one has the high seven
# bits of its position; its top bit makes it differ from the byte in the first window.
FIRST_WINDOW: Final = bytes(range(256)) * 128
SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)

# The error of ISA-L, which is not a subclass of `zlib.error`. The stubs declare an instance.
InflateError: Final = cast("type[Exception]", isal_zlib.error)
_SENTINEL_TEXT: Final = b"s3unzip!"  # the output of the sentinel block


def _huffman_code(value: int, length: int) -> str:
    """Return a Huffman code of `length` bits, highest bit first."""
    return f"{value:0{length}b}"


def _header_field(value: int, length: int) -> str:
    """Return a field of a block header, lowest bit first (RFC 1951, 3.1.1)."""
    return _huffman_code(value, length)[::-1]


_END_OF_FIXED_BLOCK = _huffman_code(0, 7)
_EMPTY_FIXED_BLOCK = _header_field(0b010, 3) + _END_OF_FIXED_BLOCK


def _empty_dynamic_block() -> str:
    """Return an empty non-final dynamic block: 91 bits, an odd number.

    The code-length code has two symbols of one bit each, 1 (code 0) and 18 (code 1). With them the
    block declares two literal/length codes of one bit, for symbol 0 and for the end of the block,
    and one distance code of one bit. Every library accepts this distance code, although it is
    incomplete.
    """
    lengths = [0] * 18  # 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1, the order of 3.2.7
    lengths[2] = lengths[17] = 1
    bits = (
        _header_field(0b100, 3)  # not final, dynamic
        + _header_field(0, 5)  # 257 literal/length codes
        + _header_field(0, 5)  # 1 distance code
        + _header_field(len(lengths) - 4, 4)
    )
    bits += "".join(_header_field(length, 3) for length in lengths)
    bits += "0"  # symbol 0 has a code
    # Symbols 1 to 255 have none: 138 lengths of 0, then 117.
    bits += "1" + _header_field(138 - 11, 7) + "1" + _header_field(117 - 11, 7)
    bits += "0"  # symbol 256, the end of the block, has a code
    bits += "0"  # distance 0 has a code
    return bits + "1"  # end of block: the second code of the two


def _lead_in(bit: int) -> tuple[int, int]:
    """Return the fewest empty blocks whose number of bits is `bit` modulo 8, and that number.

    The blocks are returned as one integer, whose lowest bit is their first bit.
    """
    blocks = ""
    if bit % 2:
        blocks = _empty_dynamic_block()
    while len(blocks) % 8 != bit:
        blocks += _EMPTY_FIXED_BLOCK  # 10 bits: two more, modulo 8
    return int(f"0{blocks[::-1]}", 2), len(blocks)  # the 0 is for an empty text


_LEAD_INS: Final = tuple(map(_lead_in, range(8)))
# A final fixed block that contains `_SENTINEL_TEXT`: 74 bits. Its literals have codes of 8 bits,
# from 0x30 on (3.2.6).
_SENTINEL: Final = (
    _header_field(0b011, 3)
    + "".join(_huffman_code(0x30 + byte, 8) for byte in _SENTINEL_TEXT)
    + _END_OF_FIXED_BLOCK
)


def align(data: bytes, bit: int) -> bytes:
    """Return a stream that begins at bit 0, for one that begins at bit `bit` of ``data[0]``.

    The new stream begins with empty blocks. Their number of bits is `bit` modulo 8, so each bit of
    the old stream keeps its place in its byte. A shift would break stored blocks, whose data begins
    at a whole byte. The last bits of the empty blocks replace the low bits of ``data[0]``, which
    belong to the previous segment. At most 15 bytes are added.
    """
    if not bit:
        return data
    blocks, length = _LEAD_INS[bit]
    shared_bits = data[0] >> bit << length  # the stream's bits of ``data[0]``
    return (blocks | shared_bits).to_bytes(length // 8 + 1, "little") + data[1:]


def seal(last: bytes, bit: int) -> bytes:
    """Return the end of a stream that is cut at a bit, with the sentinel block after the cut.

    If a block ends at the cut, a library reads the sentinel block as the next one, and the output
    ends with `_SENTINEL_TEXT`. If the cut lies inside a block, the library reads the same bits with
    another meaning, which in practice never gives that text.

    Args:
        last: the byte that contains the cut; empty if the cut lies between two bytes.
        bit: number of low bits of that byte before the cut.
    """
    low_bits = int.from_bytes(last, "little") & (1 << bit) - 1
    sealed = low_bits | int(_SENTINEL[::-1], 2) << bit
    return sealed.to_bytes((bit + len(_SENTINEL) + 7) // 8, "little")


Ending = Literal["boundary", "final", "missed", "broken"]


class Arrival(Struct, frozen=True):
    """How inflating a segment ended.

    * "boundary": at a block header, exactly at the segment's stop bit.
    * "final": at the end of the stream, after its final block.
    * "missed": past the stop bit, which lies inside a block, so it is a false boundary.
    * "broken": in corrupt data, or because the data ends.
    """

    ending: Ending
    length: int  # total bytes of output
    used: int = 0  # if "final": bytes of the member's data up to the end of the stream
    fault: Finding | None = None  # if "broken"


class SegmentInflater:
    """Inflates the bits from `start_bit` to `stop_bit` of a member's compressed data.

    It needs two buffers of a few hundred KiB, at any compression ratio.

    Args:
        start_bit: where a block header begins.
        stop_bit: where a later block header begins, or None for the end of the stream.
        window: the output before the segment, at most the last 32 KiB.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None, window: bytes = b"") -> None:
        # A segment of fewer than 16 bits could begin and end in one byte.
        if start_bit < 0 or (stop_bit is not None and stop_bit < start_bit + 16):
            raise ValueError(f"no segment from bit {start_bit} to bit {stop_bit}")
        self._inflate = IgzipDecompressor(zdict=window)
        self._first_bit = start_bit % 8
        self._start = start_bit // 8
        # Positions are in bytes from the start of the member's data.
        self._position = self._start  # where the next chunk begins
        self._stop: int | None = None  # after the last byte to feed; None: no stop bit
        self._last_bit = 0  # number of bits of the last byte in the segment; 0: all 8 bits
        if stop_bit is not None:
            self._stop = -(-stop_bit // 8)
            self._last_bit = stop_bit % 8
        self._last_byte = b""  # kept for `finish` if only some of its bits are in the segment
        self._used = 0  # position after the last byte that the library has used
        self._fault: Finding | None = None
        self.length = 0  # bytes of output so far

    @property
    def ended(self) -> bool:
        """Whether the stream has ended or is broken, so that more input changes nothing."""
        return self._fault is not None or self._inflate.eof

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output of the next bytes."""
        is_first = self._position == self._start
        self._position += len(chunk)
        if self.ended or not chunk:
            return
        # The last byte also has bits of the next segment.
        if self._last_bit and self._position == self._stop:
            self._last_byte = bytes(chunk[-1:])
            chunk = chunk[:-1]
        # The first byte may also have bits of the previous segment.
        if is_first and chunk:
            chunk = align(bytes(chunk), self._first_bit)
        yield from self._drain(chunk)
        self._used = self._position - len(self._last_byte) - len(self._inflate.unused_data)

    def finish(self) -> tuple[bytes, Arrival]:
        """Return the last output, at most a few KiB, and how inflating ended."""
        # Without a stop bit `_stop` is None, so only the end of the stream is right.
        if not self.ended and self._position == self._stop:
            return self._seal()
        if self._fault is None and self._inflate.eof:
            return b"", Arrival("final", self.length, self._used)
        fault = self._fault or Finding(
            "stream-truncated", f"the deflate stream goes on after its {self._position} bytes"
        )
        return b"", Arrival("broken", self.length, fault=fault)

    def _seal(self) -> tuple[bytes, Arrival]:
        """Append a sentinel block at the stop bit; return what `finish` must return.

        The text of the sentinel at the end of the output proves that a block ends at the stop bit.
        """
        length = self.length  # `_drain` adds the sentinel to it
        output = b"".join(self._drain(seal(self._last_byte, self._last_bit)))
        # The sentinel block is final, so the stream must end with it.
        has_ended = self._inflate.eof and not self._inflate.unused_data
        if self._fault is None and has_ended and output.endswith(_SENTINEL_TEXT):
            output = output[: -len(_SENTINEL_TEXT)]
            self.length = length + len(output)
            return output, Arrival("boundary", self.length)
        return b"", Arrival("missed", length)

    def _drain(self, data: Buffer) -> Iterator[bytes]:
        """Yield all output of `data`; note a fault."""
        while not self._inflate.eof:
            try:
                output = self._inflate.decompress(data, PIECE_SIZE)
            except InflateError as error:
                self._fault = Finding(
                    "corrupt-stream", f"{error}, before byte {self._position} of the member's data"
                )
                return
            data = b""  # the library has all of it
            if output:
                self.length += len(output)
                yield output
            if self._inflate.needs_input:
                return
