"""The deflate core: split one raw deflate stream over workers. Bytes in, values out, no I/O.

``docs/deflate-splitting.md`` explains the method. The modules, in the order of use:

* `plan`: where segments are looked for
* `boundary`: where segments begin, to the bit (needs numpy)
* `scan`: what a segment leaves behind while the bytes before it are unknown
* `link`: the true 32 KiB before each segment
* `extract`: a segment's bytes
* `crc32_combine` (isal): the checksum of the whole from the checksums of the parts
* `split`: all of these composed over a ``read(span)`` (needs numpy)

>>> import zlib
>>> from s3unzip import deflate
>>> compressor = zlib.compressobj(wbits=-15)
>>> stream = compressor.compress(bytes(range(256)) * 4096) + compressor.flush()
>>> content, crc32 = deflate.split_inflate(stream, segments=3)
>>> len(content), crc32 == zlib.crc32(content)
(1048576, True)

Names are loaded when they are first used, so a worker that only extracts never loads numpy.
All errors are below `DeflateError` and `SegmentRecordError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.lazy import lazy_names

if TYPE_CHECKING:
    from isal.isal_zlib import crc32_combine

    from s3unzip.deflate.errors import DeflateError, SegmentRecordError
    from s3unzip.deflate.extract import inflate_segment
    from s3unzip.deflate.inflate import Arrival, Ending, SegmentInflater
    from s3unzip.deflate.link import LinkedSegment, link_segments
    from s3unzip.deflate.plan import Layout, Span, cut, segment_span
    from s3unzip.deflate.scan import ScannedSegment, SegmentScan
    from s3unzip.deflate.split import locate, scan_segment, split_inflate
    from s3unzip.deflate.tail import WINDOW_SIZE, SymbolicTail
    from s3unzip.finding import Finding

__all__ = [
    "WINDOW_SIZE",
    "Arrival",
    "DeflateError",
    "Ending",
    "Finding",
    "Layout",
    "LinkedSegment",
    "ScannedSegment",
    "SegmentInflater",
    "SegmentRecordError",
    "SegmentScan",
    "Span",
    "SymbolicTail",
    "crc32_combine",
    "cut",
    "inflate_segment",
    "link_segments",
    "locate",
    "scan_segment",
    "segment_span",
    "split_inflate",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "isal.isal_zlib": ("crc32_combine",),
            "s3unzip.deflate.errors": ("DeflateError", "SegmentRecordError"),
            "s3unzip.deflate.extract": ("inflate_segment",),
            "s3unzip.deflate.inflate": ("Arrival", "Ending", "SegmentInflater"),
            "s3unzip.deflate.link": ("LinkedSegment", "link_segments"),
            "s3unzip.deflate.plan": ("Layout", "Span", "cut", "segment_span"),
            "s3unzip.deflate.scan": ("ScannedSegment", "SegmentScan"),
            "s3unzip.deflate.split": ("locate", "scan_segment", "split_inflate"),
            "s3unzip.deflate.tail": ("WINDOW_SIZE", "SymbolicTail"),
            "s3unzip.finding": ("Finding",),
        },
    )
