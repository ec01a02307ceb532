"""Split the inflate of one stream: locate boundaries, scan, link, inflate.

Rules:

* Each call of `scan_segment` and of `inflate_segment` may run on a machine of its own.
* All workers must use equal segmentations. They then find the same boundaries.
* A call may be repeated: the same bytes give the same value.
* `link_segments` needs all scans. If it refuses them, inflate the member as one stream.

``read(span)`` gives the bytes of a span of the member's compressed data, in chunks.
"""

import zlib
from collections.abc import Iterator
from importlib import import_module
from threading import Thread
from typing import Final

from isal.isal_zlib import crc32_combine

from s3unzip.deflate.link import inflate_segment, link_segments
from s3unzip.deflate.scan import ScannedSegment, SegmentScan
from s3unzip.deflate.segmentation import Read, Segmentation, Span, cut, segment_span

MAX_SCANS: Final = 3
"""Boundaries at which a scan tries to stop; each false one costs a scan."""


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

    Reads about 1.5 MiB to find each boundary, and the segment once. After `MAX_SCANS` false
    boundaries the scan is returned as it is, and `link_segments` refuses it.

    Args:
        longest: number of segments that may join this one; None: any. If more would join, the
            function returns None, and `link_segments` refuses the other scans.
    """
    start_bit = locate(layout, segment, read)
    if start_bit is None:
        return None
    if longest is None:
        longest = layout.count
    is_limited = segment + longest < layout.count  # before the last segment
    last = min(layout.count - 1, segment + longest)
    stop_bits = _locate_each(layout, range(segment + 1, last + 1), read)
    for _ in range(MAX_SCANS):
        stop_bit = next(stop_bits, None)
        if stop_bit is None and is_limited:  # more segments would join
            return None
        scan = SegmentScan(start_bit, stop_bit)
        for chunk in read(segment_span(start_bit, stop_bit, layout.size)):
            scan.feed(chunk)
        scanned = scan.finish()
        if scanned.arrival.ending != "missed":
            break
    return scanned


def _locate_each(layout: Segmentation, segments: range, read: Read) -> Iterator[int]:
    """Yield the bits where these segments begin, but not of joined ones."""
    for segment in segments:
        bit = locate(layout, segment, read)
        if bit is not None:
            yield bit


def split_inflate(data: bytes, segments: int) -> tuple[bytes, int]:
    """Return the output of the raw deflate stream `data`, and its CRC-32, by way of `segments`.

    This is the reference for the order of the calls.

    Raises:
        DeflateError: The stream is corrupt, or its segments do not join. The caller must
            still compare the CRC-32 with the one it trusts.
    """
    layout = cut(len(data), -(-len(data) // segments))

    def read(span: Span) -> list[bytes]:
        return [data[span.start : span.stop]]

    scans = (scan_segment(layout, segment, read) for segment in range(layout.count))
    output = bytearray()
    crc = 0
    for segment in link_segments((scan for scan in scans if scan is not None), layout.size):
        part = b"".join(inflate_segment(segment, read(segment.span)))
        crc = crc32_combine(crc, zlib.crc32(part), len(part))
        output += part
    return bytes(output), crc
