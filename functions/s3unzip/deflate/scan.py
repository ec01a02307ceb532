"""The end of a segment's output, computed before the output before it is known.

`SegmentScan` inflates a segment twice (`tail` says why) and keeps 32 KiB of
each output. The second inflate stops as soon as both outputs agree over a
whole window: from there on they cannot differ. No output precedes the beginning of the stream, so
one inflate is enough there.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

from msgspec import DecodeError, Struct, msgpack

from s3unzip.deflate.errors import SegmentRecordError
from s3unzip.deflate.inflate import Arrival, Buffer, Ending, SegmentInflater
from s3unzip.deflate.tail import FIRST_WINDOW, SECOND_WINDOW, WINDOW_SIZE, SymbolicTail

_VERSION: Final = 2
_FIELDS = msgpack.Decoder(tuple[Literal[2], int, int | None, Arrival, bytes, bytes | None])
_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # bytes before they are deflated


class ScannedSegment(Struct, frozen=True):
    """A segment from bit to bit of the member's compressed data, and what it leaves behind."""

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    arrival: Arrival
    tail: SymbolicTail

    def to_bytes(self) -> bytes:
        """Return the segment as deflated MessagePack: from 100 bytes to 65 KiB."""
        first, second = self.tail.first, self.tail.second
        # Deflate looks back 32 KiB, so it would not find an equal second tail.
        other = None if second == first else second
        fields = (_VERSION, self.start_bit, self.stop_bit, self.arrival, first, other)
        return zlib.compress(msgpack.encode(fields), 1)

    @staticmethod
    def from_bytes(data: bytes) -> ScannedSegment:
        """Return the segment that `to_bytes` wrote.

        Raises:
            SegmentRecordError: Another version wrote it, or it is damaged.
        """
        try:
            inflate = zlib.decompressobj()
            plain = inflate.decompress(data, _MAX_RECORD)
            if not inflate.eof:
                raise SegmentRecordError(f"a scanned segment is cut or above {_MAX_RECORD} bytes")
            _, start_bit, stop_bit, arrival, first, other = _FIELDS.decode(plain)
        except (zlib.error, DecodeError) as error:
            raise SegmentRecordError(f"not a scanned segment of this version: {error}") from error
        tail = SymbolicTail(first, first if other is None else other)
        if len(tail.first) != len(tail.second):
            raise SegmentRecordError("the two tails of a scanned segment differ in length")
        return ScannedSegment(start_bit, stop_bit, arrival, tail)


class SegmentScan:
    """A scan of the bits from `start_bit` to `stop_bit`: feed it `layout.segment_span`.

    Memory: about 1 MiB, whatever the segment.

    Args:
        start_bit: The segment's boundary; 0 for the beginning of the stream.
        stop_bit: The boundary to arrive at; None for the end of the stream.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None) -> None:
        self._start_bit, self._stop_bit = start_bit, stop_bit
        self._first = _Track(start_bit, stop_bit, FIRST_WINDOW if start_bit else b"")
        self._second = _Track(start_bit, stop_bit, SECOND_WINDOW) if start_bit else None

    def feed(self, chunk: Buffer) -> None:
        """Take the next bytes.

        Raises:
            ValueError: More bytes than up to the stop bit.
        """
        for at in range(0, len(chunk), _STRIDE):
            part = chunk[at : at + _STRIDE]
            self._first.feed(part)
            if self._second is not None:
                self._second.feed(part)
                if self._second.tail == self._first.tail:
                    self._second = None

    def finish(self) -> ScannedSegment:
        """Return the result for the bytes that were fed; bad data is a value, too."""
        arrival = self._first.finish()
        tail = second = self._first.tail
        if self._second is not None:
            self._second.finish()
            second = self._second.tail
        if arrival.ending in {Ending.MISSED, Ending.BROKEN}:
            tail = second = b""
        return ScannedSegment(self._start_bit, self._stop_bit, arrival, SymbolicTail(tail, second))


_STRIDE = 1 << 16  # how far the first inflate may be ahead of the second, in bytes of input


class _Track:
    """One of the two inflates, and the last 32 KiB of its output."""

    def __init__(self, start_bit: int, stop_bit: int | None, window: bytes) -> None:
        self._inflater = SegmentInflater(start_bit, stop_bit, window)
        self.tail = window

    def feed(self, chunk: Buffer) -> None:
        for piece in self._inflater.feed(chunk):
            self._append(piece)

    def finish(self) -> Arrival:
        piece, arrival = self._inflater.finish()
        self._append(piece)
        return arrival

    def _append(self, piece: bytes) -> None:
        if len(piece) < WINDOW_SIZE:
            piece = self.tail + piece
        self.tail = piece[-WINDOW_SIZE:]
