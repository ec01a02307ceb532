"""All steps composed on one machine: the reference for how workers use this package.

``read(span)`` gives the bytes of a span of the member's compressed data in chunks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from importlib import import_module
from threading import Thread
from typing import Final

from isal.isal_zlib import crc32_combine

from s3unzip.deflate.segments import (
    Buffer,
    Layout,
    ScannedSegment,
    SegmentScan,
    Span,
    cut,
    inflate_segment,
    link_segments,
    segment_span,
)

Read = Callable[[Span], Iterable[Buffer]]

ATTEMPTS: Final = 3  # boundaries to try to arrive at; each that is missed costs a scan


def preload() -> None:
    """Begin to import `boundary`, and with it numpy, in a thread; `locate` waits for it."""
    Thread(target=import_module, args=["s3unzip.deflate.boundary"], daemon=True).start()


def locate(layout: Layout, segment: int, read: Read) -> int | None:
    """Return the bit where `segment` begins, or None: it joins the one before it."""
    # numpy takes 60 ms to import; `preload` does it while the caller waits for its first bytes.
    from s3unzip.deflate.boundary import locate_boundary  # noqa: PLC0415

    steps = locate_boundary(layout, segment)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(b"".join(read(wanted)))
    except StopIteration as done:
        bit: int | None = done.value
        return bit


def scan_segment(
    layout: Layout, segment: int, read: Read, longest: int | None = None
) -> ScannedSegment | None:
    """Scan `segment` up to the next boundary, or return None: it joins the one before it.

    Reads about 1.5 MiB to find each boundary, and the segment once. After `ATTEMPTS` false
    boundaries the scan is returned as it is, and `link_segments` refuses it. `longest` limits the
    steps that a segment may have: for a longer one None is returned, and `link_segments` refuses
    the rest.
    """
    start_bit = locate(layout, segment, read)
    if start_bit is None:
        return None
    farthest = layout.count if longest is None else min(layout.count, segment + longest + 1)
    following = segment
    for _ in range(ATTEMPTS):
        stop_bit = None
        while stop_bit is None and following + 1 < farthest:
            following += 1
            stop_bit = locate(layout, following, read)
        if stop_bit is None and farthest - segment > (longest or layout.count):
            return None
        scan = SegmentScan(start_bit, stop_bit)
        for chunk in read(segment_span(start_bit, stop_bit, layout.size)):
            scan.feed(chunk)
        scanned = scan.finish()
        if scanned.arrival.ending != "missed":
            break
    return scanned


def split_inflate(data: bytes, segments: int) -> tuple[bytes, int]:
    """Return the output of the raw deflate stream `data`, and its CRC-32, by way of `segments`.

    The reference composition: each call of `scan_segment` and each of
    `inflate_segment` may run on a machine of its own.

    Raises:
        DeflateError: The stream is corrupt, or its segments do not join. The caller must
            still compare the CRC-32 with the one it trusts.
    """
    layout = cut(len(data), -(-len(data) // segments))

    def read(span: Span) -> list[bytes]:
        return [data[span.start : span.stop]]

    scans = (scan_segment(layout, segment, read) for segment in range(layout.count))
    output, crc = bytearray(), 0
    for segment in link_segments((scan for scan in scans if scan is not None), layout.size):
        part = b"".join(inflate_segment(segment, read(segment.span)))
        crc = crc32_combine(crc, zlib.crc32(part), len(part))
        output += part
    return bytes(output), crc
