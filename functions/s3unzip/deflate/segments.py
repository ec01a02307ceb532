"""Segments of a deflate stream: place, inflate, scan while the window is unknown, link the scans.

All positions count from the first byte of the member's compressed data, not of the archive. A
`Segmentation` says where segments are looked for, `boundary` where they really begin.

`SegmentInflater` inflates from one bit to another with a given window. It never raises for bad
data: it returns where it arrived. `inflate_segment` is the strict form, which raises.

A segment may copy from the 32 KiB before it. Its worker does not have them, so `SegmentScan`
inflates the segment twice, after two invented windows that differ at every position. A byte equal
in both outputs is known; two bytes that differ are, together, the position in the window that the
byte was copied from. The second inflate stops as soon as both outputs agree over a whole window:
from there on they cannot differ. No output precedes the beginning of the stream, so one inflate is
enough there.

`link_segments` looks up what is unknown in the window before, segment by segment. The chain begins
at bit 0 and goes from a segment's stop bit to the segment that starts there. A scan at which no
segment ends is ignored: its boundary was false, or the segment before it continued through its
bytes. Joined segments need no special case: the segment is longer. Nothing here checks a CRC: the
directory declares one for all segments.

zlib and ISA-L begin at bit 0 of a byte and report no bit position. Extra deflate blocks before and
after the segment's bits remove both limits (`align`, `seal`; RFC 1951, section 3.2). `locate`,
`scan_segment` and `split_inflate` compose the steps over a ``read(span)``, which gives the bytes of
a span of the member's compressed data in chunks.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from threading import Thread
from typing import Final, Literal, NamedTuple, Self, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor
from isal.isal_zlib import crc32_combine
from msgspec import DecodeError, Struct, msgpack

from s3unzip.finding import DeflateError, Finding, SegmentRecordError

Buffer = bytes | memoryview

SEARCH_BYTES: Final = 2 << 20
"""A segment's boundary is looked for in so many bytes. Blocks are shorter than that: zlib's have
at most 32,767 symbols, libdeflate's some 300 KB and zopfli's 1 MB of output. The limit is for
stretches without any dynamic block, where each MiB costs 0.2 s to no avail."""

WINDOW_SIZE: Final = 1 << 15
"""Bytes that deflate can look back (RFC 1951, 2)."""

FIRST_WINDOW: Final = bytes(range(256)) * 128
"""A made-up window: the low byte of each position."""

SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)
"""The other: the high seven bits, and a top bit that makes it differ from the first."""

PIECE_SIZE: Final = 1 << 18
"""No piece of output is longer, in bytes."""

InflateError: Final = cast("type[Exception]", isal_zlib.error)  # the stubs declare an instance
"""What ISA-L raises; no kin of `zlib.error`."""

_STRIDE = 1 << 16  # how far a scan's first inflate may be ahead of its second, in bytes of input
_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # bytes of a record before they are deflated


class Span(NamedTuple):
    """Bytes of the member's compressed data from `start` up to, not including, `stop`."""

    start: int
    stop: int


Read = Callable[[Span], Iterable[Buffer]]


class Segmentation(Struct, frozen=True):
    """A member's compressed size in bytes and the distance of its segments in bytes.

    Two workers with equal layouts find equal boundaries.
    """

    size: int
    step: int
    search: int = SEARCH_BYTES

    @property
    def count(self) -> int:
        """Number of segments looked for; joined ones make it fewer."""
        return -(-self.size // self.step)

    def search_span(self, segment: int) -> Span:
        """Return the bytes in which the boundary of `segment` (from 1) must begin."""
        start = segment * self.step
        return Span(start, min(start + min(self.step, self.search), self.size))


def cut(compressed_size: int, segment_size: int) -> Segmentation:
    """Return the layout of a member in equal segments of at most `segment_size` bytes.

    Raises:
        DeflateError: The member has no compressed data: the shortest stream has two bytes.
    """
    if not compressed_size:
        raise DeflateError(Finding("stream-truncated", "a deflate stream without any bytes"))
    count = -(-compressed_size // segment_size)
    return Segmentation(compressed_size, -(-compressed_size // count))


def segment_span(start_bit: int, stop_bit: int | None, compressed_size: int) -> Span:
    """Return the bytes a segment is fed with.

    It begins with the byte that holds `start_bit` and ends after the byte that
    holds the last bit before `stop_bit`; without one, at the end of the data.
    """
    return Span(start_bit // 8, compressed_size if stop_bit is None else -(-stop_bit // 8))


class Arrival(Struct, frozen=True):
    """How a segment's inflate ended.

    "boundary": at a block header, exactly at the segment's stop bit. "final": at the end of the
    stream, after its final block. "missed": past the stop bit, which lies inside a block, so it is
    a false boundary. "broken": nowhere, because the data is corrupt or ends.
    """

    ending: Literal["boundary", "final", "missed", "broken"]
    length: int  # bytes of output in all
    used: int = 0  # of "final": bytes of the member's data up to and with the stream's last byte
    fault: Finding | None = None  # of "broken"


class SegmentInflater:
    """An inflate of the bits from `start_bit` to `stop_bit` of a member's compressed data.

    Feed it the bytes of `segment_span`, cut anywhere; then `finish`. Both bits are those of block
    headers; the stop is None for the end of the stream. `window` is the output before the segment,
    at most the last 32 KiB. Memory: two buffers of some hundred KiB, whatever the ratio.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None, window: bytes = b"") -> None:
        if start_bit < 0 or (stop_bit is not None and stop_bit < start_bit + 16):
            raise ValueError(f"no segment from bit {start_bit} to bit {stop_bit}")
        self._inflate = IgzipDecompressor(zdict=window)
        self._first_bit = start_bit % 8
        self._last_bit = 0 if stop_bit is None else stop_bit % 8
        self._last_byte = b""
        self._position = self._start = start_bit // 8
        self._stop = None if stop_bit is None else -(-stop_bit // 8)
        self._used = 0
        self._fault: Finding | None = None
        self.length = 0  # bytes of output so far

    @property
    def ended(self) -> bool:
        """Whether more input is useless: the stream has ended or is broken."""
        return self._fault is not None or self._inflate.eof

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output of the next bytes; exhaust the iterator before the next call."""
        begin = self._position == self._start
        self._position += len(chunk)
        if self.ended or not chunk:
            return
        if self._last_bit and self._position == self._stop:
            self._last_byte, chunk = bytes(chunk[-1:]), chunk[:-1]
        if begin and chunk:
            chunk = align(bytes(chunk), self._first_bit)
        yield from self._drain(chunk)
        left = len(self._last_byte) + len(self._inflate.unused_data)
        self._used = self._position - left  # counts where the stream has ended

    def finish(self) -> tuple[bytes, Arrival]:
        """Return the last output, a few KiB at most, and where the inflate arrived."""
        if not self.ended and self._position == self._stop:
            return self._seal()
        if self._fault is None and not self._inflate.eof:
            self._fault = Finding(
                "stream-truncated", f"the deflate stream goes on after its {self._position} bytes"
            )
        if self._fault is not None:
            return b"", Arrival("broken", self.length, fault=self._fault)
        return b"", Arrival("final", self.length, self._used)

    def _seal(self) -> tuple[bytes, Arrival]:
        """End the stream at the stop bit with an extra block, and check whether it is read."""
        length = self.length
        output = b"".join(self._drain(seal(self._last_byte, self._last_bit)))
        sealed = self._inflate.eof and not self._inflate.unused_data
        if self._fault is None and sealed and output.endswith(SENTINEL_TEXT):
            output = output[: -len(SENTINEL_TEXT)]
            self.length = length + len(output)
            return output, Arrival("boundary", self.length)
        return b"", Arrival("missed", length)

    def _drain(self, data: Buffer) -> Iterator[bytes]:
        """Yield all output of `data`."""
        while not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, PIECE_SIZE)
            except InflateError as error:
                self._fault = Finding(
                    "corrupt-stream", f"{error}, before byte {self._position} of the member's data"
                )
                return
            data = b""
            if piece:
                self.length += len(piece)
                yield piece
            if self._inflate.needs_input:
                return


class _Record(Struct, frozen=True):
    """What one worker writes for another, as deflated MessagePack: from 100 bytes to 65 KiB."""

    def to_bytes(self) -> bytes:
        """Return the record's bytes."""
        return zlib.compress(msgpack.encode(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the record that `to_bytes` wrote.

        Raises:
            SegmentRecordError: Another version wrote it, or it is damaged.
        """
        try:
            inflate = zlib.decompressobj()
            plain = inflate.decompress(data, _MAX_RECORD)
            if not inflate.eof or inflate.unused_data:
                raise SegmentRecordError(f"a {cls.__name__} of more or fewer bytes")
            return msgpack.decode(plain, type=cls)
        except (zlib.error, DecodeError) as error:
            raise SegmentRecordError(f"no {cls.__name__} of this version: {error}") from error


class ScannedSegment(_Record, frozen=True, tag="scanned 3"):
    """A segment from bit to bit of the member's compressed data, and what it leaves behind.

    `first` and `second` are its last bytes of output after the first and after the second window.
    Both have 32 KiB, also where the segment wrote less: the made-up window counts as output before
    it, so parts of the older window are carried along as positions. Only a segment at the beginning
    of the stream, which has nothing before it, may have less.
    """

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    arrival: Arrival
    first: bytes
    second: bytes | None = None  # None: as the first

    def resolve(self, window: bytes, history: int) -> bytes:
        """Return the true last bytes, which are the window of the next segment.

        `window` is what came before the segment, up to 32 KiB of it; `history` the bytes of output
        from the beginning of the stream to the end of the segment.

        Raises:
            IndexError: A byte was copied from before the beginning of the stream.
        """
        start = max(0, len(self.first) - history)
        if self.second is None:
            return self.first[start:]
        missing = WINDOW_SIZE - len(window)
        padded = bytes(missing) + window
        resolved = bytearray(self.first[start:])
        for at, (low, high) in enumerate(zip(resolved, self.second[start:], strict=True)):
            if low != high:
                position = low | (high & 0x7F) << 8
                if position < missing:
                    raise IndexError(f"window of {len(window)} bytes has no position {position}")
                resolved[at] = padded[position]
        return bytes(resolved)


class SegmentScan:
    """A scan of the bits from `start_bit` to `stop_bit`: feed it `segment_span`.

    It has two inflates at first, and the last 32 KiB of the output of each. Memory: about 1 MiB.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None) -> None:
        self._start_bit, self._stop_bit = start_bit, stop_bit
        self._tails = [FIRST_WINDOW, SECOND_WINDOW] if start_bit else [b""]
        self._inflaters = [SegmentInflater(start_bit, stop_bit, tail) for tail in self._tails]

    def feed(self, chunk: Buffer) -> None:
        """Take the next bytes."""
        for at in range(0, len(chunk), _STRIDE):
            for number, inflater in enumerate(self._inflaters):
                for piece in inflater.feed(chunk[at : at + _STRIDE]):
                    self._append(number, piece)
            if self._tails[1:] == self._tails[:1]:
                del self._inflaters[1:], self._tails[1:]

    def finish(self) -> ScannedSegment:
        """Return the result for the bytes that were fed; bad data is a value, too."""
        arrivals = []
        for number, inflater in enumerate(self._inflaters):
            piece, arrival = inflater.finish()
            self._append(number, piece)
            arrivals.append(arrival)
        first, second = self._tails[0], self._tails[-1]
        if arrivals[0].ending in {"missed", "broken"}:
            first = second = b""
        other = None if first == second else second
        return ScannedSegment(self._start_bit, self._stop_bit, arrivals[0], first, other)

    def _append(self, number: int, piece: bytes) -> None:
        if len(piece) < WINDOW_SIZE:
            piece = self._tails[number] + piece
        self._tails[number] = piece[-WINDOW_SIZE:]


class LinkedSegment(_Record, frozen=True, tag="linked 3"):
    """A segment that can be extracted alone."""

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    span: Span  # the bytes of compressed data it is fed with
    window: bytes  # the output before it, at most the last 32 KiB
    offset: int  # of its output in the member
    length: int  # of its output


def link_segments(scans: Iterable[ScannedSegment], compressed_size: int) -> Iterator[LinkedSegment]:
    """Yield the segments of the stream in order, each with its window.

    `scans` come by rising `start_bit`, the first from bit 0. The stream must use all of the
    member's `compressed_size` bytes. Holds one window and one scan at a time, a few ms a segment.

    Raises:
        DeflateError: The scans make no whole stream: corrupt data, or a false boundary. One
            stream, inflated from its beginning, tells which.
    """
    window, offset, expected = b"", 0, 0
    for scan in scans:
        if scan.start_bit < expected:
            continue
        if scan.start_bit > expected:
            break
        start_bit, stop_bit, arrival = scan.start_bit, scan.stop_bit, scan.arrival
        if arrival.fault is not None:
            raise DeflateError(arrival.fault)
        if arrival.ending == "final" and arrival.used != compressed_size:
            message = f"the stream ends after {arrival.used} of {compressed_size} compressed bytes"
            raise DeflateError(Finding("compressed-trailing-bytes", message))
        if arrival.ending != ("final" if stop_bit is None else "boundary"):
            raise _unlinked(f"segment from bit {start_bit} ended as {arrival.ending}")
        span = segment_span(start_bit, stop_bit, compressed_size)
        yield LinkedSegment(start_bit, stop_bit, span, window, offset, arrival.length)
        if stop_bit is None:
            return
        expected = stop_bit
        offset += arrival.length
        try:
            window = scan.resolve(window, offset)
        except IndexError as error:
            raise _unlinked(f"segment from bit {start_bit}: {error}") from error
    raise _unlinked(f"no scan starts at bit {expected}")


def _unlinked(fact: str, code: str = "corrupt-stream") -> DeflateError:
    return DeflateError(Finding(code, f"segments do not join: {fact}; fall back to one stream"))


def inflate_segment(segment: LinkedSegment, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the segment's output in pieces of at most `PIECE_SIZE` bytes.

    `chunks` are the bytes of ``segment.span``, cut anywhere.

    Raises:
        DeflateError: The bytes are not those that were scanned, or corrupt. Pieces may have
            been yielded before.
    """
    inflater = SegmentInflater(segment.start_bit, segment.stop_bit, segment.window)
    for chunk in chunks:
        for piece in inflater.feed(chunk):
            if inflater.length > segment.length:
                raise _unlike(segment, f"more than {segment.length} bytes")
            yield piece
    piece, arrival = inflater.finish()
    wanted = "final" if segment.stop_bit is None else "boundary"
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if (arrival.ending, arrival.length) != (wanted, segment.length):
        raise _unlike(segment, f"{arrival.length} bytes and ending {arrival.ending}")
    if piece:
        yield piece


def _unlike(segment: LinkedSegment, found: str) -> DeflateError:
    fact = f"from bit {segment.start_bit} came {found}, in its scan {segment.length} bytes"
    return _unlinked(fact, "size-mismatch")


# Start and stop in the middle of a byte. Within a byte, bit 0 is the lowest; Huffman codes go in
# from their highest bit.

SENTINEL_TEXT: Final = b"s3unzip!"  # what the sentinel block inflates to


# Bits are texts of 0 and 1, the first bit first.


def _field(value: int, length: int) -> str:
    """Return a header field: lowest bit first (RFC 1951, 3.1.1)."""
    return _code(value, length)[::-1]


def _code(value: int, length: int) -> str:
    """Return a Huffman code: highest bit first."""
    return f"{value:0{length}b}"


_END_OF_FIXED_BLOCK = _code(0, 7)
_EMPTY_FIXED_BLOCK = _field(0b010, 3) + _END_OF_FIXED_BLOCK


def _empty_dynamic_block() -> str:
    """Return an empty non-final dynamic block: 91 bits, an odd number.

    The code-length code has two symbols of one bit each, 1 (code 0) and 18 (code 1). They spell two
    literal/length codes of one bit, for 0 and for end-of-block, and one distance code of one bit,
    which every inflate accepts although it is incomplete.
    """
    lengths = [0] * 18  # 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1, the order of 3.2.7
    lengths[2] = lengths[17] = 1
    bits = _field(0b100, 3) + _field(0, 5) + _field(0, 5) + _field(len(lengths) - 4, 4)
    bits += "".join(_field(length, 3) for length in lengths)
    bits += "0"  # symbol 0
    bits += "1" + _field(138 - 11, 7) + "1" + _field(117 - 11, 7)  # symbols 1 to 255
    bits += "0"  # symbol 256, end of block
    bits += "0"  # distance 0
    return bits + "1"  # end of block: the second code of the two


def _lead_in(bit: int) -> tuple[int, int]:
    """Return the fewest empty blocks whose length is `bit` modulo 8: a number, and its bits."""
    bits = _empty_dynamic_block() if bit % 2 else ""
    while len(bits) % 8 != bit:
        bits += _EMPTY_FIXED_BLOCK  # 10 bits: two more, modulo 8
    return int(f"0{bits[::-1]}", 2), len(bits)


_LEAD_INS: Final = tuple(map(_lead_in, range(8)))
# A final fixed block that holds `SENTINEL_TEXT`: 74 bits. Literals 0 to 143: 3.2.6.
_SENTINEL: Final = (
    _field(0b011, 3)
    + "".join(_code(0x30 + byte, 8) for byte in SENTINEL_TEXT)
    + _END_OF_FIXED_BLOCK
)


def align(data: bytes, bit: int) -> bytes:
    """Return a byte-aligned stream for a stream that begins `bit` bits into ``data[0]``.

    Empty blocks precede it. Their total length is `bit` modulo 8, so every later byte keeps its
    position; a shift would break stored blocks, which begin at whole bytes. The last bits of these
    blocks replace the low bits of ``data[0]``, which belong to the segment before. At most 15 bytes
    are added.
    """
    if not bit:
        return data
    value, length = _LEAD_INS[bit]
    whole = length // 8
    merged = value >> 8 * whole | data[0] >> bit << bit
    return (value & (1 << 8 * whole) - 1).to_bytes(whole, "little") + bytes((merged,)) + data[1:]


def seal(last: bytes, bit: int) -> bytes:
    """Return the end of a stream that is cut at a bit, with the sentinel block after the cut.

    `last` is the byte that holds the cut, of which the low `bit` bits are
    kept; it is empty where the cut lies between bytes and `bit` is 0. If, and
    practically only if, an inflate stands at a block header at the cut, it
    now ends its stream with `SENTINEL_TEXT`.
    """
    kept = last[0] & (1 << bit) - 1 if bit else 0
    sealed = kept | int(_SENTINEL[::-1], 2) << bit
    return sealed.to_bytes((bit + len(_SENTINEL) + 7) // 8, "little")


# All steps composed

ATTEMPTS: Final = 3  # boundaries to try to arrive at; each that is missed costs a scan


def preload() -> None:
    """Begin to import `boundary`, and with it numpy, in a thread; `locate` waits for it."""
    Thread(target=import_module, args=["s3unzip.deflate.boundary"], daemon=True).start()


def locate(layout: Segmentation, segment: int, read: Read) -> int | None:
    """Return the bit where `segment` begins, or None: it joins the one before it."""
    if segment == 0:  # with any first block
        return 0
    # numpy takes 60 ms to import; `preload` does it while the caller waits for its first bytes.
    from s3unzip.deflate.boundary import locate_boundary  # noqa: PLC0415

    return locate_boundary(layout, segment, read)


def scan_segment(
    layout: Segmentation, segment: int, read: Read, longest: int | None = None
) -> ScannedSegment | None:
    """Scan `segment` up to the next boundary, or return None: it joins the one before it.

    Reads about 1.5 MiB to find each boundary, and the segment once. After `ATTEMPTS` false
    boundaries the scan is returned as it is, and `link_segments` refuses it. `longest` limits the
    steps that a segment may have: for a longer one None is returned, and `link_segments` refuses
    the rest.
    """
    start_bit = locate(layout, segment, read)
    if start_bit is None:
        return None
    farthest = layout.count if longest is None else min(layout.count, segment + longest + 1)
    following = segment
    for _ in range(ATTEMPTS):
        stop_bit = None
        while stop_bit is None and following + 1 < farthest:
            following += 1
            stop_bit = locate(layout, following, read)
        if stop_bit is None and farthest - segment > (longest or layout.count):
            return None
        scan = SegmentScan(start_bit, stop_bit)
        for chunk in read(segment_span(start_bit, stop_bit, layout.size)):
            scan.feed(chunk)
        scanned = scan.finish()
        if scanned.arrival.ending != "missed":
            break
    return scanned


def split_inflate(data: bytes, segments: int) -> tuple[bytes, int]:
    """Return the output of the raw deflate stream `data`, and its CRC-32, by way of `segments`.

    The reference composition: each call of `scan_segment` and each of
    `inflate_segment` may run on a machine of its own.

    Raises:
        DeflateError: The stream is corrupt, or its segments do not join. The caller must
            still compare the CRC-32 with the one it trusts.
    """
    layout = cut(len(data), -(-len(data) // segments))

    def read(span: Span) -> list[bytes]:
        return [data[span.start : span.stop]]

    scans = (scan_segment(layout, segment, read) for segment in range(layout.count))
    output, crc = bytearray(), 0
    for segment in link_segments((scan for scan in scans if scan is not None), layout.size):
        part = b"".join(inflate_segment(segment, read(segment.span)))
        crc = crc32_combine(crc, zlib.crc32(part), len(part))
        output += part
    return bytes(output), crc
