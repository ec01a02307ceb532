"""Inflate from one bit to another with a given window: compressed bytes in, pieces out.

The scan (with invented windows) and the extraction (with the true window) both use
`SegmentInflater`. It never raises for bad data: it returns where it arrived. `inflate_segment` is
the strict form, which raises. Neither checks a CRC: the directory declares one for all segments.
"""

from __future__ import annotations

import zlib
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast

from isal import isal_zlib
from msgspec import Struct

from s3unzip.deflate.bits import SENTINEL_TEXT, align, seal
from s3unzip.deflate.errors import DeflateError
from s3unzip.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.deflate.link import LinkedSegment

Buffer = bytes | memoryview

PIECE_SIZE: Final = 1 << 18
"""No piece of output is longer, in bytes."""

InflateError: Final = cast("type[Exception]", isal_zlib.error)  # the stubs declare an instance
"""What ISA-L raises; no kin of `zlib.error`."""

_INPUT_SIZE: Final = 1 << 16  # each call copies the input that it leaves: keep it small


class Ending(StrEnum):
    """Where the inflate of a segment arrived."""

    BOUNDARY = "boundary"  # at a block header, exactly at the segment's stop bit
    FINAL = "final"  # at the end of the stream, after its final block
    MISSED = "missed"  # past the stop bit, which lies inside a block: a false boundary
    BROKEN = "broken"  # nowhere: corrupt, or out of data


class Arrival(Struct, frozen=True):
    """How a segment's inflate ended."""

    ending: Ending
    length: int  # bytes of output in all
    used: int  # of FINAL: bytes of the member's data up to and with the stream's last byte
    fault: Finding | None = None  # of BROKEN


class SegmentInflater:
    """An inflate of the bits from `start_bit` to `stop_bit` of a member's compressed data.

    Feed it the bytes of `layout.segment_span`, cut anywhere; then `finish`.
    Memory: two buffers of some hundred KiB, whatever the ratio.

    Args:
        start_bit: A block header; 0 for the beginning of the stream.
        stop_bit: The header to arrive at; None for the end of the stream.
        window: The bytes before the segment, at most the last 32 KiB.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None, window: bytes = b"") -> None:
        if start_bit < 0 or (stop_bit is not None and stop_bit < start_bit + 16):
            raise ValueError(f"no segment from bit {start_bit} to bit {stop_bit}")
        self._inflate = (
            isal_zlib.decompressobj(-zlib.MAX_WBITS, zdict=window)
            if window
            else isal_zlib.decompressobj(-zlib.MAX_WBITS)
        )
        self._first_bit = start_bit % 8
        self._last_bit = 0 if stop_bit is None else stop_bit % 8
        self._last_byte = b""
        self._position = self._start = start_bit // 8
        self._stop = None if stop_bit is None else -(-stop_bit // 8)
        self._used = 0
        self._fault: Finding | None = None
        self.length = 0
        """Bytes of output so far."""

    @property
    def ended(self) -> bool:
        """Whether more input is useless: the stream has ended or is broken."""
        return self._fault is not None or self._inflate.eof

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output of the next bytes; exhaust the iterator before the next call.

        Raises:
            ValueError: More bytes than up to the stop bit.
        """
        begin = self._position == self._start
        end = self._position + len(chunk)
        if self._stop is not None and end > self._stop:
            raise ValueError(f"segment ends at byte {self._stop}, was fed up to {end}")
        self._position = end
        if self.ended or not chunk:
            return
        if self._last_bit and end == self._stop:
            self._last_byte, chunk = bytes(chunk[-1:]), chunk[:-1]
        if begin and chunk:
            chunk = align(bytes(chunk), self._first_bit)
        yield from self._take(chunk)

    def _take(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output of `chunk` up to the end of the stream, and note where that is."""
        for at in range(0, len(chunk), _INPUT_SIZE):
            yield from self._drain(chunk[at : at + _INPUT_SIZE])
            if self.ended:
                left = max(0, len(chunk) - at - _INPUT_SIZE) + len(self._last_byte)
                self._used = self._position - left - len(self._inflate.unused_data)
                return

    def finish(self) -> tuple[bytes, Arrival]:
        """Return the last output, a few KiB at most, and where the inflate arrived."""
        if not self.ended and self._position == self._stop:
            return self._seal()
        if self._fault is None and not self._inflate.eof:
            self._fault = Finding(
                "stream-truncated", f"the deflate stream goes on after its {self._position} bytes"
            )
        if self._fault is not None:
            return b"", Arrival(Ending.BROKEN, self.length, 0, self._fault)
        return b"", Arrival(Ending.FINAL, self.length, self._used)

    def _seal(self) -> tuple[bytes, Arrival]:
        """End the stream at the stop bit with an extra block, and check whether it is read."""
        length = self.length
        output = b"".join(self._drain(seal(self._last_byte, self._last_bit)))
        sealed = self._inflate.eof and not self._inflate.unused_data
        if self._fault is None and sealed and output.endswith(SENTINEL_TEXT):
            output = output[: -len(SENTINEL_TEXT)]
            self.length = length + len(output)
            return output, Arrival(Ending.BOUNDARY, self.length, 0)
        return b"", Arrival(Ending.MISSED, length, 0)

    def _drain(self, data: Buffer) -> Iterator[bytes]:
        """Yield all output of `data`; ISA-L holds some back in itself while a piece is full."""
        while True:
            try:
                piece = self._inflate.decompress(data, PIECE_SIZE)
            except InflateError as error:
                self._fault = Finding(
                    "corrupt-stream", f"{error}, before byte {self._position} of the member's data"
                )
                return
            if piece:
                self.length += len(piece)
                yield piece
            data = self._inflate.unconsumed_tail
            if self._inflate.eof or (not data and len(piece) < PIECE_SIZE):
                return


def inflate_segment(segment: LinkedSegment, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the segment's output in pieces of at most `inflate.PIECE_SIZE` bytes.

    Args:
        segment: As `link` gave it.
        chunks: The bytes of ``segment.span``, cut anywhere.

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
    wanted = Ending.FINAL if segment.stop_bit is None else Ending.BOUNDARY
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if (arrival.ending, arrival.length) != (wanted, segment.length):
        raise _unlike(segment, f"{arrival.length} bytes and ending {arrival.ending}")
    if piece:
        yield piece


def _unlike(segment: LinkedSegment, found: str) -> DeflateError:
    return DeflateError(
        Finding(
            "size-mismatch",
            f"the segment from bit {segment.start_bit} of the member's data gave {found}, "
            f"its scan {segment.length} bytes; fall back to one stream",
        )
    )
