"""The true window of each segment, from the scans in order.

The chain begins at bit 0 and goes from a segment's stop bit to the segment
that starts there. A scan at which no segment ends is ignored: its boundary was false, or the
segment before it continued through its bytes. Joined segments need no special case: the segment is
longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import DecodeError, Struct, msgpack

from s3unzip.deflate.errors import DeflateError, SegmentRecordError
from s3unzip.deflate.inflate import Ending
from s3unzip.deflate.layout import Span, segment_span
from s3unzip.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.deflate.scan import ScannedSegment

_VERSION: Final = 2


class LinkedSegment(Struct, frozen=True):
    """A segment that can be extracted alone."""

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    span: Span  # the bytes of compressed data it is fed with
    window: bytes  # the output before it, at most the last 32 KiB
    offset: int  # of its output in the member
    length: int  # of its output

    def to_bytes(self) -> bytes:
        """Return the segment as MessagePack: about 32 KiB."""
        return msgpack.encode((_VERSION, self))

    @staticmethod
    def from_bytes(data: bytes) -> LinkedSegment:
        """Return the segment that `to_bytes` wrote.

        Raises:
            SegmentRecordError: Another version wrote it, or it is damaged.
        """
        try:
            return _FIELDS.decode(data)[1]
        except DecodeError as error:
            raise SegmentRecordError(f"not a linked segment of this version: {error}") from error


_FIELDS = msgpack.Decoder(tuple[Literal[2], LinkedSegment])


def link_segments(scans: Iterable[ScannedSegment], compressed_size: int) -> Iterator[LinkedSegment]:
    """Yield the segments of the stream in order, each with its window.

    Holds one window and one scan at a time, a few ms a segment.

    Args:
        scans: By rising `start_bit`, the first from bit 0.
        compressed_size: Bytes of the member's compressed data, all of which the stream must use.

    Raises:
        DeflateError: The scans make no whole stream: corrupt data, or a false boundary. One
            stream, inflated from its beginning, tells which.
    """
    window, offset, expected = b"", 0, 0
    for scan in scans:
        if scan.start_bit < expected:
            continue
        if scan.start_bit > expected:
            raise _unlinked(f"no scan starts at bit {expected}")
        arrival = scan.arrival
        _check(scan, compressed_size)
        yield LinkedSegment(
            scan.start_bit,
            scan.stop_bit,
            segment_span(scan.start_bit, scan.stop_bit, compressed_size),
            window,
            offset,
            arrival.length,
        )
        if scan.stop_bit is None:
            return
        expected = scan.stop_bit
        offset += arrival.length
        try:
            window = scan.tail.resolve(window, offset)
        except IndexError as error:
            raise _unlinked(f"segment from bit {scan.start_bit}: {error}") from error
    raise _unlinked(f"no scan starts at bit {expected}")


def _check(scan: ScannedSegment, compressed_size: int) -> None:
    """Raise unless `scan` arrived at its stop."""
    arrival = scan.arrival
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if arrival.ending is Ending.FINAL and arrival.used != compressed_size:
        raise DeflateError(
            Finding(
                "compressed-trailing-bytes",
                f"the stream ends after {arrival.used} of {compressed_size} compressed bytes",
            )
        )
    if arrival.ending is not (Ending.FINAL if scan.stop_bit is None else Ending.BOUNDARY):
        raise _unlinked(f"segment from bit {scan.start_bit} ended as {arrival.ending}")


def _unlinked(fact: str) -> DeflateError:
    return DeflateError(
        Finding("corrupt-stream", f"segments do not join: {fact}; fall back to one stream")
    )
