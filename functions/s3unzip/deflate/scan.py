"""The end of a segment's output, computed before the output before it is known.

`SegmentScan` inflates a segment twice (`tail` says why) and keeps 32 KiB of
each output. The second inflate stops as soon as both outputs agree over a
whole window: from there on they cannot differ. No output precedes the beginning of the stream, so
one inflate is enough there.
"""

from __future__ import annotations

import json
import zlib

from msgspec import Struct

from s3unzip.deflate.errors import SegmentRecordError
from s3unzip.deflate.inflate import Arrival, Buffer, Ending, SegmentInflater
from s3unzip.deflate.tail import FIRST_WINDOW, SECOND_WINDOW, WINDOW_SIZE, SymbolicTail
from s3unzip.finding import Finding

_VERSION = 1


class ScannedSegment(Struct, frozen=True):
    """A segment from bit to bit of the member's compressed data, and what it leaves behind."""

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    arrival: Arrival
    tail: SymbolicTail

    def to_bytes(self) -> bytes:
        """Return one line of JSON and the deflated tail: from 100 bytes to 65 KiB."""
        fault = self.arrival.fault
        head = {
            "version": _VERSION,
            "start_bit": self.start_bit,
            "stop_bit": self.stop_bit,
            "ending": self.arrival.ending,
            "length": self.arrival.length,
            "used": self.arrival.used,
            "fault": None if fault is None else [fault.code, fault.message],
            "tail": len(self.tail.first),
        }
        second = b"" if self.tail.second == self.tail.first else self.tail.second
        return json.dumps(head).encode() + b"\n" + zlib.compress(self.tail.first + second, 1)

    @staticmethod
    def from_bytes(data: bytes) -> ScannedSegment:
        """Return the segment that `to_bytes` wrote.

        Raises:
            SegmentRecordError: Another version wrote it, or it is damaged.
        """
        line, _, packed = data.partition(b"\n")
        try:
            head = json.loads(line)
            if head["version"] != _VERSION:
                raise SegmentRecordError(
                    f"scanned segment of version {head['version']}, not {_VERSION}"
                )
            inflate = zlib.decompressobj()
            planes = inflate.decompress(packed, 2 * WINDOW_SIZE + 1)
            size = head["tail"]
            if not inflate.eof or len(planes) not in {size, 2 * size}:
                raise SegmentRecordError(
                    f"scanned segment with {len(planes)} bytes of a tail of {size}"
                )
            return ScannedSegment(
                head["start_bit"],
                head["stop_bit"],
                Arrival(
                    Ending(head["ending"]),
                    head["length"],
                    head["used"],
                    None if head["fault"] is None else Finding(*head["fault"]),
                ),
                SymbolicTail(planes[:size], planes[-size:] if size else b""),
            )
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise SegmentRecordError(f"not a scanned segment: {error!r}") from error


class SegmentScan:
    """A scan of the bits from `start_bit` to `stop_bit`: feed it `plan.segment_span`.

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
