"""Inflate one stream in segments: locate the boundaries, then scan, link and inflate the segments.

A segment can copy bytes from its window, the last 32 KiB of the output before the segment. This
window is not available to the worker that scans the segment. Therefore `scan_bits` inflates the
segment twice, with two invented windows that differ at every position. If a byte is equal in both
outputs, the byte is known. If the two bytes differ, they together encode the position in the window
from which the byte was copied. The second inflation stops as soon as the last 32 KiB of both
outputs are equal, because later bytes cannot differ. Segment 0 has no window, so it is inflated
only once.

Rules:

* Each call of `scan_segment` and `inflate_segment` can run on a different machine.
* All workers must use equal segmentations, so that they find the same boundaries.
* A call can be repeated: the same bytes always produce the same result.
* `link_segments` needs all scans. If the function fails, inflate the member as one stream.
* None of these functions checks a CRC-32: the directory declares only the CRC-32 of the whole
  member.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self

from msgspec import DecodeError, Struct, msgpack

from s3unzip.deflate.segments import (
    FIRST_WINDOW,
    SECOND_WINDOW,
    WINDOW_SIZE,
    Arrival,
    Buffer,
    Ending,
    Read,
    Segmentation,
    SegmentInflater,
    segment_span,
)
from s3unzip.errors import DeflateError, Finding

_MAX_SCANS: Final = 3  # maximum number of scans of a segment; each false boundary costs one scan
_STEP_BYTES = 1 << 16  # number of input bytes between two comparisons of the two outputs
_MAX_RECORD = 2 * WINDOW_SIZE + 4_096  # maximum size of an inflated record, in bytes


class Record(Struct, frozen=True):
    """A value that one worker stores for another: deflated MessagePack of 100 bytes to 65 KiB."""

    def to_bytes(self) -> bytes:
        """Return the record as deflated bytes."""
        return zlib.compress(msgpack.encode(self), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the record that `to_bytes` wrote.

        Raises:
            DeflateError: The record is damaged, or a different version wrote it.
        """
        try:
            inflate = zlib.decompressobj()
            plain = inflate.decompress(data, _MAX_RECORD)
            # zlib compares the checksum only at the end of the stream.
            if not inflate.eof or inflate.unused_data:
                raise _join_error(f"a {cls.__name__} has too many or too few bytes")
            return msgpack.decode(plain, type=cls)
        except (zlib.error, DecodeError) as error:
            raise _join_error(f"not a {cls.__name__} of this version: {error}") from error


class ScannedSegment(Record, frozen=True, tag="scanned 3"):
    """A segment between two bits of the compressed data, with the last bytes of its output.

    `first` and `second` contain the last 32 KiB of the output. The first invented window produced
    the output in `first`, and the second invented window produced the output in `second`. If the
    segment produces less output, `first` and `second` begin with the last bytes of these windows.
    `first` is shorter than 32 KiB only for segment 0. If the ending is "missed" or "broken",
    `first` and `second` are not used.
    """

    start_bit: int
    stop_bit: int | None  # None means the end of the stream
    arrival: Arrival
    first: bytes
    second: bytes | None = None  # None if equal to `first`

    def resolve(self, window: bytes, history: int) -> bytes:
        """Return the actual last bytes of the output, which are the window of the next segment.

        Args:
            window: the output before the segment, at most the last 32 KiB.
            history: total output of this segment and all earlier segments, in bytes.

        Raises:
            DeflateError: A byte was copied from before the beginning of the stream.
        """
        # Drop the bytes of an invented window that lie before the start of the stream.
        start = max(0, len(self.first) - history)
        if self.second is None:  # no byte is copied from the window
            return self.first[start:]
        # Positions count from the beginning of a full window, so pad a shorter window.
        missing = WINDOW_SIZE - len(window)
        padded = bytes(missing) + window
        resolved = bytearray(self.first[start:])
        for index, (low, high) in enumerate(zip(resolved, self.second[start:], strict=True)):
            # Two different values mean that the byte was copied from the window. The first value is
            # the low byte of the position in the window. The lower seven bits of the second value
            # are the high seven bits of the position.
            if low != high:
                position = low | (high & 0x7F) << 8
                if position < missing:
                    raise _join_error(
                        f"segment from bit {self.start_bit}: "
                        f"the window of {len(window)} bytes does not contain position {position}"
                    )
                resolved[index] = padded[position]
        return bytes(resolved)


def scan_bits(start_bit: int, stop_bit: int | None, chunks: Iterable[Buffer]) -> ScannedSegment:
    """Scan the bits from `start_bit` to `stop_bit`; `chunks` are the bytes of `segment_span`.

    The `arrival` of the result shows whether the data is corrupt. A scan needs 1 MiB of memory.
    """
    # For each inflater, the last 32 KiB of its window and output.
    tails = [b""]
    if start_bit:  # the real window is unknown: two inflaters show which output depends on it
        tails = [FIRST_WINDOW, SECOND_WINDOW]
    inflaters = [SegmentInflater(start_bit, stop_bit, window) for window in tails]
    for chunk in chunks:
        for start in range(0, len(chunk), _STEP_BYTES):
            data = chunk[start : start + _STEP_BYTES]
            tails = _extend_tails(tails, [inflater.feed(data) for inflater in inflaters])
            # If a single tail is left, later output does not depend on the window, so a single
            # inflater is enough.
            del inflaters[len(tails) :]
    endings = [inflater.finish() for inflater in inflaters]
    tails = _extend_tails(tails, [[last_output] for last_output, _ in endings])
    # Both inflaters have the same arrival, because the window changes only the output.
    _, arrival = endings[0]
    return ScannedSegment(start_bit, stop_bit, arrival, *tails)


def _extend_tails(tails: Sequence[bytes], outputs: Sequence[Iterable[bytes]]) -> list[bytes]:
    """Return the tails with the next output of each inflater, or a single tail if both are equal.

    If two inflaters with different windows have equal tails, no later byte depends on the window.
    """
    extended = list(map(_extend_tail, tails, outputs))
    if len(extended) == 2 and extended[0] == extended[1]:
        del extended[1]
    return extended


def _extend_tail(tail: bytes, outputs: Iterable[bytes]) -> bytes:
    """Return the last 32 KiB of the concatenation of `tail` and `outputs`."""
    for output in outputs:
        if len(output) < WINDOW_SIZE:
            tail = (tail + output)[-WINDOW_SIZE:]
        else:
            tail = output[-WINDOW_SIZE:]
    return tail


def locate(layout: Segmentation, segment: int, read: Read) -> int | None:
    """Return the first bit of `segment`, or None if it joins the previous segment."""
    if segment == 0:
        return 0
    # Only the search for a boundary needs numpy, which takes 60 ms to import.
    from s3unzip.deflate.boundary import locate_boundary  # noqa: PLC0415

    return locate_boundary(layout, segment, read)


def scan_segment(
    layout: Segmentation, segment: int, read: Read, max_segments: int = 1 << 30
) -> ScannedSegment | None:
    """Scan `segment` up to the next boundary, or return None if it joins the previous segment.

    Reads about 1.5 MiB to find each boundary, and reads the segment once for each scan. If a scan
    finds no block header at its stop bit, that bit is a false boundary, and the scan is repeated up
    to the next boundary. The last of `_MAX_SCANS` scans is returned even if its stop bit is a false
    boundary. `link_segments` then refuses that scan.

    Args:
        max_segments: maximum number of segments that the scan may cover: this segment and the later
            segments that join it. If the scan would cover more segments, the function returns None,
            and `link_segments` refuses the stream because this scan is missing. The default is
            greater than the number of segments of any stream.
    """
    start_bit = locate(layout, segment, read)
    if start_bit is None:
        return None
    # The scan must stop where one of these segments begins, to cover at most `max_segments`.
    next_segments = range(segment + 1, min(layout.count, segment + max_segments + 1))
    stop_bits = (locate(layout, next_segment, read) for next_segment in next_segments)
    boundaries = (bit for bit in stop_bits if bit is not None)
    for _ in range(_MAX_SCANS):
        stop_bit = next(boundaries, None)
        # Without a stop bit, the scan would continue to the end of the stream, which is more than
        # `max_segments` segments away.
        if stop_bit is None and segment + max_segments < layout.count:
            return None
        chunks = read(*segment_span(start_bit, stop_bit, layout.size))
        scanned = scan_bits(start_bit, stop_bit, chunks)
        if scanned.arrival.ending != "missed":
            return scanned
    return scanned  # `link_segments` refuses this scan, because its stop bit is a false boundary


class LinkedSegment(Record, frozen=True, tag="linked 3"):
    """A segment that can be inflated on its own."""

    start_bit: int
    stop_bit: int | None  # None means the end of the stream
    span: tuple[int, int]  # bytes [start, stop) of the compressed data that inflating needs
    window: bytes  # the output before the segment, at most the last 32 KiB
    offset: int  # offset of the output in the member
    length: int  # size of the output, in bytes


def link_segments(scans: Iterable[ScannedSegment], compressed_size: int) -> Iterator[LinkedSegment]:
    """Yield the segments of the stream in order, each with its window.

    The first segment starts at bit 0. Each further segment starts at the stop bit of the previous
    segment. A scan that starts inside another segment is ignored: either it starts at a false
    boundary, or the other segment was scanned past this boundary. The function holds one window and
    one scan in memory at a time, and needs a few ms for each segment.

    Args:
        scans: all scans in ascending order of `start_bit`; the first scan starts at bit 0.
        compressed_size: the member's compressed size in bytes; the stream must use all of these
            bytes.

    Raises:
        DeflateError: The scans do not form a complete stream: either the data is corrupt, or a
            boundary is false. To find the cause, inflate the stream from the beginning.
    """
    window = b""
    offset = 0
    next_bit = 0
    for scan in scans:
        if scan.start_bit < next_bit:  # the scan starts inside the previous segment
            continue
        if scan.start_bit > next_bit:  # the scan that starts at `next_bit` is missing
            break
        _check_arrival(scan, compressed_size)
        yield LinkedSegment(
            start_bit=scan.start_bit,
            stop_bit=scan.stop_bit,
            span=segment_span(scan.start_bit, scan.stop_bit, compressed_size),
            window=window,
            offset=offset,
            length=scan.arrival.length,
        )
        if scan.stop_bit is None:
            return
        next_bit = scan.stop_bit
        offset += scan.arrival.length
        window = scan.resolve(window, offset)  # the window of the next segment
    raise _join_error(f"no scan starts at bit {next_bit}")


def _check_arrival(scan: ScannedSegment, compressed_size: int) -> None:
    """Refuse a scan that did not end at its stop bit.

    The last scan has no stop bit, and must end at the last byte of the compressed data.
    """
    arrival = scan.arrival
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if arrival.ending == "final" and arrival.used != compressed_size:
        raise DeflateError(
            Finding(
                "compressed-trailing-bytes",
                f"the stream ends after {arrival.used} of {compressed_size} compressed bytes",
            )
        )
    if arrival.ending != _expected_ending(scan.stop_bit):
        raise _join_error(f"segment from bit {scan.start_bit} ended as {arrival.ending}")


def _expected_ending(stop_bit: int | None) -> Ending:
    return "final" if stop_bit is None else "boundary"


def _join_error(reason: str, code: str = "corrupt-stream") -> DeflateError:
    return DeflateError(
        Finding(code, f"the segments do not join: {reason}; the member is inflated as one stream")
    )


def inflate_segment(segment: LinkedSegment, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the segment's output in pieces of at most `PIECE_SIZE` bytes.

    Args:
        chunks: the bytes of ``segment.span``, in chunks of any length.

    Raises:
        DeflateError: The bytes are corrupt, or differ from the scanned bytes. Some output might
            already have been yielded.
    """
    inflater = SegmentInflater(segment.start_bit, segment.stop_bit, segment.window)
    for chunk in chunks:
        for output in inflater.feed(chunk):
            if inflater.length > segment.length:
                raise _unlike_scan(segment, f"more than {segment.length} bytes")
            yield output
    last_output, arrival = inflater.finish()
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if arrival.ending != _expected_ending(segment.stop_bit) or arrival.length != segment.length:
        raise _unlike_scan(segment, f"{arrival.length} bytes and ended as {arrival.ending}")
    yield last_output


def _unlike_scan(segment: LinkedSegment, produced: str) -> DeflateError:
    return _join_error(
        f"segment from bit {segment.start_bit} produced {produced}; "
        f"its scan produced {segment.length} bytes",
        "size-mismatch",
    )
