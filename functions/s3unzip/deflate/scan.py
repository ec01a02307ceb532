"""Scan a segment while its window, the output before it, is not known.

A segment may copy from the last 32 KiB of its window. Its worker does not have them, so
`SegmentScan` inflates the segment twice, after two invented windows that differ at every position.
A byte is known if it is equal in both outputs. Two different bytes together give the position in
the window from which the byte was copied. The second inflate stops as soon as both outputs are
equal for 32 KiB, because they cannot differ after that. Segment 0 has no window, so it is inflated
once.
"""

import zlib
from typing import Final, Self

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from s3unzip.deflate.inflater import WINDOW_SIZE, Arrival, SegmentInflater
from s3unzip.deflate.segmentation import Buffer
from s3unzip.finding import SegmentRecordError

# The first invented window has the low byte of each position, the second one the high seven bits.
# The top bit makes each byte of the second window differ from that of the first.
FIRST_WINDOW: Final = bytes(range(256)) * 128
SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)

_STEP_BYTES = 1 << 16  # input between two comparisons of both outputs
_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # bytes of an inflated record


class Record(Struct, frozen=True):
    """A value that one worker writes for another: deflated MessagePack, 100 bytes to 65 KiB."""

    def to_bytes(self) -> bytes:
        """Return the deflated bytes of the record."""
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
                raise SegmentRecordError(f"a {cls.__name__} with too many or too few bytes")
            return msgpack.decode(plain, type=cls)
        except (zlib.error, DecodeError) as error:
            raise SegmentRecordError(f"not a {cls.__name__} of this version: {error}") from error


class ScannedSegment(Record, frozen=True, tag="scanned 3"):
    """A segment from bit to bit of the member's compressed data, and its last bytes of output.

    `first` and `second` are the last 32 KiB after the first and after the second invented window.
    If the segment has less output, they begin with the end of the invented window, so the positions
    of these bytes are known, too. Only those of segment 0 may be shorter.
    """

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    arrival: Arrival
    first: bytes
    second: bytes | None = None  # None: equal to the first

    def resolve(self, window: bytes, history: int) -> bytes:
        """Return the true last bytes, which are the window of the next segment.

        Args:
            window: the output before the segment, at most the last 32 KiB.
            history: bytes of output of this segment and all segments before it.

        Raises:
            IndexError: A byte was copied from before the beginning of the stream.
        """
        start = max(0, len(self.first) - history)  # no byte is before the beginning of the stream
        if self.second is None:  # no byte was copied from the window
            return self.first[start:]
        missing = WINDOW_SIZE - len(window)
        padded = bytes(missing) + window
        resolved = bytearray(self.first[start:])
        for index, (low, high) in enumerate(zip(resolved, self.second[start:], strict=True)):
            if low != high:  # the byte was copied from this position of the window
                position = low | (high & 0x7F) << 8  # see `FIRST_WINDOW`
                if position < missing:
                    raise IndexError(f"window of {len(window)} bytes has no position {position}")
                resolved[index] = padded[position]
        return bytes(resolved)


class _TailInflater:
    """Inflates after an invented window; keeps only the last 32 KiB of window and output."""

    def __init__(self, start_bit: int, stop_bit: int | None, window: bytes) -> None:
        self._inflater = SegmentInflater(start_bit, stop_bit, window)
        self.tail = window

    def feed(self, chunk: Buffer) -> None:
        for output in self._inflater.feed(chunk):
            self._append(output)

    def finish(self) -> Arrival:
        output, arrival = self._inflater.finish()
        self._append(output)
        return arrival

    def _append(self, output: bytes) -> None:
        if len(output) < WINDOW_SIZE:
            output = self.tail + output
        self.tail = output[-WINDOW_SIZE:]


class SegmentScan:
    """Scans the bits from `start_bit` to `stop_bit`; feed it `segment_span`, then call `finish`.

    It needs about 1 MiB of memory.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None) -> None:
        self._start_bit = start_bit
        self._stop_bit = stop_bit
        first_window = b""
        self._second: _TailInflater | None = None  # None: it would have the same output
        if start_bit:
            first_window = FIRST_WINDOW
            self._second = _TailInflater(start_bit, stop_bit, SECOND_WINDOW)
        self._first = _TailInflater(start_bit, stop_bit, first_window)

    def feed(self, chunk: Buffer) -> None:
        """Take the next bytes."""
        for start in range(0, len(chunk), _STEP_BYTES):
            data = chunk[start : start + _STEP_BYTES]
            self._first.feed(data)
            if self._second is not None:
                self._second.feed(data)
                # From here on both outputs are equal.
                if self._second.tail == self._first.tail:
                    self._second = None

    def finish(self) -> ScannedSegment:
        """Return the scanned segment; its `arrival` says whether the data is bad."""
        arrival = self._first.finish()
        if arrival.ending in {"missed", "broken"}:
            # Nothing is linked to such a segment, so its last bytes are left out.
            return ScannedSegment(self._start_bit, self._stop_bit, arrival, b"")
        scanned = ScannedSegment(self._start_bit, self._stop_bit, arrival, self._first.tail)
        if self._second is not None:
            self._second.finish()
            if self._second.tail != scanned.first:
                return replace(scanned, second=self._second.tail)
        return scanned
