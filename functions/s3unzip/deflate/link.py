"""Link scanned segments into one stream, and inflate each linked segment alone.

The chain begins at bit 0. It goes from a segment's stop bit to the segment that starts there. A
scan at which no segment ends is ignored: either its boundary was false, or the segment before it
continued through its bytes. Nothing here checks a CRC: the directory declares one for all segments.
"""

from collections.abc import Iterable, Iterator

from s3unzip.deflate.inflater import Ending, SegmentInflater
from s3unzip.deflate.scan import Record, ScannedSegment
from s3unzip.deflate.segmentation import Buffer, Span, segment_span
from s3unzip.finding import DeflateError, Finding


class LinkedSegment(Record, frozen=True, tag="linked 3"):
    """A segment that can be extracted alone."""

    start_bit: int
    stop_bit: int | None  # None: to the end of the stream
    span: Span  # the compressed bytes that its inflate needs
    window: bytes  # the output before it, at most the last 32 KiB
    offset: int  # of its output in the member
    length: int  # of its output


def link_segments(scans: Iterable[ScannedSegment], compressed_size: int) -> Iterator[LinkedSegment]:
    """Yield the segments of the stream in order, each with its window.

    Holds one window and one scan at a time, and takes a few ms for each segment.

    Args:
        scans: by rising `start_bit`, the first from bit 0.
        compressed_size: the stream must use all these bytes of the member.

    Raises:
        DeflateError: The scans make no whole stream: corrupt data, or a false boundary. Inflate
            the stream from its beginning to learn which.
    """
    window = b""
    offset = 0
    next_bit = 0
    for scan in scans:
        if scan.start_bit < next_bit:
            continue
        if scan.start_bit > next_bit:
            break
        _check_arrival(scan, compressed_size)
        length = scan.arrival.length
        span = segment_span(scan.start_bit, scan.stop_bit, compressed_size)
        yield LinkedSegment(
            scan.start_bit, scan.stop_bit, span, window, offset=offset, length=length
        )
        if scan.stop_bit is None:
            return
        next_bit = scan.stop_bit
        offset += length
        try:
            window = scan.resolve(window, offset)
        except IndexError as error:
            raise _not_joined(f"segment from bit {scan.start_bit}: {error}") from error
    raise _not_joined(f"no scan starts at bit {next_bit}")


def _check_arrival(scan: ScannedSegment, compressed_size: int) -> None:
    """Raise `DeflateError` unless a scan ended at its stop bit, or at the end of all bytes."""
    arrival = scan.arrival
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if arrival.ending == "final" and arrival.used != compressed_size:
        message = f"the stream ends after {arrival.used} of {compressed_size} compressed bytes"
        raise DeflateError(Finding("compressed-trailing-bytes", message))
    if arrival.ending != _expected_ending(scan.stop_bit):
        raise _not_joined(f"segment from bit {scan.start_bit} ended as {arrival.ending}")


def _expected_ending(stop_bit: int | None) -> Ending:
    return "final" if stop_bit is None else "boundary"


def _not_joined(fact: str, code: str = "corrupt-stream") -> DeflateError:
    return DeflateError(Finding(code, f"segments do not join: {fact}; fall back to one stream"))


def inflate_segment(segment: LinkedSegment, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the segment's output in pieces of at most `PIECE_SIZE` bytes.

    Args:
        segment: as it was linked.
        chunks: the bytes of ``segment.span``, in chunks of any length.

    Raises:
        DeflateError: The bytes are corrupt, or not the scanned ones. Some output may have been
            yielded before.
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
    if (arrival.ending, arrival.length) != (_expected_ending(segment.stop_bit), segment.length):
        raise _unlike_scan(segment, f"{arrival.length} bytes and ending {arrival.ending}")
    if last_output:
        yield last_output


def _unlike_scan(segment: LinkedSegment, output: str) -> DeflateError:
    fact = f"from bit {segment.start_bit} came {output}, in its scan {segment.length} bytes"
    return _not_joined(fact, "size-mismatch")
