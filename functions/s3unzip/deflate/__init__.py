"""Splitting one raw deflate stream over workers: bytes in, values out, no I/O.

``docs/deflate-splitting.md`` explains why it is right. In the order of use:

* `plan`: where segments are looked for
* `boundary`: where they begin, to the bit (numpy; only the scan needs it)
* `scan`: what a segment leaves behind, while what came before it is unknown
* `link`: the true 32 KiB before each segment
* `extract`: a segment's bytes
* `crc32_combine`: the checksum of the whole from those of the parts (of isal)
* `split`: all of these composed over a ``read(span)`` (imports `boundary`)

`boundary` and `split` are not imported here, so that a worker that only
extracts never loads numpy.
"""

from __future__ import annotations

from isal.isal_zlib import crc32_combine

from s3unzip.deflate.extract import inflate_segment
from s3unzip.deflate.inflate import Arrival, Ending, SegmentInflater
from s3unzip.deflate.link import LinkedSegment, link
from s3unzip.deflate.plan import Layout, Span, cut, segment_span
from s3unzip.deflate.scan import ScannedSegment, SegmentScan
from s3unzip.deflate.tail import WINDOW_SIZE, SymbolicTail

__all__ = [
    "WINDOW_SIZE",
    "Arrival",
    "Ending",
    "Layout",
    "LinkedSegment",
    "ScannedSegment",
    "SegmentInflater",
    "SegmentScan",
    "Span",
    "SymbolicTail",
    "crc32_combine",
    "cut",
    "inflate_segment",
    "link",
    "segment_span",
]
