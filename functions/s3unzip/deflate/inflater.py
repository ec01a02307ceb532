"""Inflate from one bit of a member's data to another, with a given window.

`SegmentInflater` never raises for bad data: its `Arrival` says where it ended.

Rules of a `SegmentInflater`:

* Feed it the bytes of `segment_span` in order, in chunks of any length.
* Exhaust the iterator of one `feed` before the next call.
* Call `finish` once, last. It has the end of the output.
* One thread uses it.
"""

from collections.abc import Iterator
from typing import Final, Literal, cast

from isal import isal_zlib
from isal.igzip_lib import IgzipDecompressor
from msgspec import Struct

from s3unzip.deflate.alignment import SENTINEL_TEXT, align, seal
from s3unzip.deflate.segmentation import Buffer
from s3unzip.finding import Finding

WINDOW_SIZE: Final = 1 << 15
"""Bytes that deflate can look back (RFC 1951, 2)."""

PIECE_SIZE: Final = 1 << 18
"""Most bytes of one piece of output."""

InflateError: Final = cast("type[Exception]", isal_zlib.error)  # the stubs declare an instance
"""The error of ISA-L. It is not a subclass of `zlib.error`."""

Ending = Literal["boundary", "final", "missed", "broken"]


class Arrival(Struct, frozen=True):
    """How a segment's inflate ended.

    "boundary": at a block header, exactly at the segment's stop bit. "final": at the end of the
    stream, after its final block. "missed": past the stop bit, which lies inside a block, so it is
    a false boundary. "broken": nowhere, because the data is corrupt or ends.
    """

    ending: Ending
    length: int  # bytes of output in all
    used: int = 0  # of "final": bytes of the member's data up to and with the stream's last byte
    fault: Finding | None = None  # of "broken"


class SegmentInflater:
    """An inflate of the bits from `start_bit` to `stop_bit` of a member's compressed data.

    Memory: two buffers of some hundred KiB, whatever the ratio.

    Args:
        start_bit: of a block header.
        stop_bit: of a block header; None: to the end of the stream.
        window: the output before the segment, at most the last 32 KiB.
    """

    def __init__(self, start_bit: int, stop_bit: int | None = None, window: bytes = b"") -> None:
        if start_bit < 0 or (stop_bit is not None and stop_bit < start_bit + 16):
            raise ValueError(f"no segment from bit {start_bit} to bit {stop_bit}")
        self._inflate = IgzipDecompressor(zdict=window)
        self._first_bit = start_bit % 8
        self._start = start_bit // 8
        self._position = self._start  # byte after those that were fed
        self._stop: int | None = None  # byte after the last one to feed
        self._last_bit = 0  # bits of the last byte that belong to the segment; 0: all
        if stop_bit is not None:
            self._stop = -(-stop_bit // 8)
            self._last_bit = stop_bit % 8
        self._last_byte = b""
        self._used = 0
        self._fault: Finding | None = None
        self.length = 0  # bytes of output so far

    @property
    def ended(self) -> bool:
        """Whether more input is useless: the stream has ended or is broken."""
        return self._fault is not None or self._inflate.eof

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Yield the output of the next bytes.

        The segment may begin and end inside a byte. Its first chunk is aligned. A last byte that
        belongs to the segment only in part is held back: `finish` seals the stream with it.
        """
        is_first = self._position == self._start
        self._position += len(chunk)
        if self.ended or not chunk:
            return
        if self._last_bit and self._position == self._stop:
            self._last_byte = bytes(chunk[-1:])
            chunk = chunk[:-1]
        if is_first and chunk:
            chunk = align(bytes(chunk), self._first_bit)
        yield from self._drain(chunk)
        # Where a stream that has ended ends: the library has not used the bytes behind it.
        self._used = self._position - len(self._last_byte) - len(self._inflate.unused_data)

    def finish(self) -> tuple[bytes, Arrival]:
        """Return the last output, a few KiB at most, and where the inflate arrived."""
        if not self.ended and self._position == self._stop:
            return self._seal()
        if self._fault is None and self._inflate.eof:
            return b"", Arrival("final", self.length, self._used)
        fault = self._fault or Finding(
            "stream-truncated", f"the deflate stream goes on after its {self._position} bytes"
        )
        return b"", Arrival("broken", self.length, fault=fault)

    def _seal(self) -> tuple[bytes, Arrival]:
        """End the stream at the stop bit with the sentinel block; check that it is read."""
        length = self.length
        output = b"".join(self._drain(seal(self._last_byte, self._last_bit)))
        is_sealed = self._inflate.eof and not self._inflate.unused_data
        if self._fault is None and is_sealed and output.endswith(SENTINEL_TEXT):
            output = output[: -len(SENTINEL_TEXT)]
            self.length = length + len(output)
            return output, Arrival("boundary", self.length)
        return b"", Arrival("missed", length)

    def _drain(self, data: Buffer) -> Iterator[bytes]:
        """Yield all output of `data`."""
        while not self._inflate.eof:
            try:
                output = self._inflate.decompress(data, PIECE_SIZE)
            except InflateError as error:
                self._fault = Finding(
                    "corrupt-stream", f"{error}, before byte {self._position} of the member's data"
                )
                return
            data = b""
            if output:
                self.length += len(output)
                yield output
            if self._inflate.needs_input:
                return
