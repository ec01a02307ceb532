"""Scan a segment while the output before it, its window, is not known.

A segment may copy from the 32 KiB before it. Its worker does not have them, so `SegmentScan`
inflates the segment twice, after two invented windows that differ at every position. A byte is
known if it is equal in both outputs. Two different bytes give, together, the position in the window
that the byte was copied from. The second inflate stops as soon as both outputs agree over a whole
window, because they cannot differ after that. Segment 0 has no output before it, so one inflate is
enough there.
"""

import zlib
from typing import Final, Self

from msgspec import DecodeError, Struct, msgpack

from s3unzip.deflate.inflater import WINDOW_SIZE, Arrival, SegmentInflater
from s3unzip.deflate.segmentation import Buffer
from s3unzip.finding import SegmentRecordError

FIRST_WINDOW: Final = bytes(range(256)) * 128
"""The first invented window: the low byte of each position."""

SECOND_WINDOW: Final = b"".join(
    bytes([high | 0x80]) * 128 + bytes([high]) * 128 for high in range(128)
)
"""The second invented window: the high seven bits of each position.

The top bit makes each byte differ from that of the first window.
"""

_LEAD_BYTES = 1 << 16  # of input, by which the first inflate may be ahead of the second


_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # bytes of a record before they are deflated


class Record(Struct, frozen=True):
    """A value that one worker writes for another: deflated MessagePack, 100 bytes to 65 KiB."""

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


class ScannedSegment(Record, frozen=True, tag="scanned 3"):
    """A segment from bit to bit of the member's compressed data, and its last bytes of output.

    `first` and `second` are the last bytes after the first and after the second window. Both have
    32 KiB, even if the segment wrote less: the invented window counts as output before it, so parts
    of an older window go on as positions. Only segment 0 may have less.
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
            history: bytes of output from the beginning of the stream to the end of the segment.

        Raises:
            IndexError: A byte was copied from before the beginning of the stream.
        """
        start = max(0, len(self.first) - history)
        if self.second is None:
            return self.first[start:]
        missing = WINDOW_SIZE - len(window)
        padded = bytes(missing) + window
        resolved = bytearray(self.first[start:])
        for index, (low, high) in enumerate(zip(resolved, self.second[start:], strict=True)):
            if low != high:
                position = low | (high & 0x7F) << 8
                if position < missing:
                    raise IndexError(f"window of {len(window)} bytes has no position {position}")
                resolved[index] = padded[position]
        return bytes(resolved)


class _TailInflater:
    """An inflate after an invented window; keeps only the last 32 KiB of window and output."""

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
    """A scan of the bits from `start_bit` to `stop_bit`: feed it `segment_span`, then `finish`.

    Memory: about 1 MiB.
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
        for start in range(0, len(chunk), _LEAD_BYTES):
            stretch = chunk[start : start + _LEAD_BYTES]
            self._first.feed(stretch)
            if self._second is not None:
                self._second.feed(stretch)
                if self._second.tail == self._first.tail:
                    self._second = None

    def finish(self) -> ScannedSegment:
        """Return the scanned segment; bad data is a value, too."""
        arrival = self._first.finish()
        if arrival.ending in {"missed", "broken"}:
            return ScannedSegment(self._start_bit, self._stop_bit, arrival, b"")
        first = self._first.tail
        second = None
        if self._second is not None:
            self._second.finish()
            if self._second.tail != first:
                second = self._second.tail
        return ScannedSegment(self._start_bit, self._stop_bit, arrival, first, second=second)
