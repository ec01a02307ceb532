"""The deflate core: split one raw deflate stream over workers. Bytes in, values out, no I/O.

``docs/deflate-splitting.md`` explains the method. The modules, in the order of use:

* `layout`: where segments are looked for
* `boundary`: where segments begin, to the bit (needs numpy)
* `scan`: what a segment leaves behind while the bytes before it are unknown
* `link`: the true 32 KiB before each segment
* `inflate`: a segment's bytes
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
    from isal.isal_zlib import crc32_combine as crc32_combine

    from s3unzip.deflate.errors import DeflateError as DeflateError
    from s3unzip.deflate.errors import SegmentRecordError as SegmentRecordError
    from s3unzip.deflate.inflate import Arrival as Arrival
    from s3unzip.deflate.inflate import Ending as Ending
    from s3unzip.deflate.inflate import SegmentInflater as SegmentInflater
    from s3unzip.deflate.inflate import inflate_segment as inflate_segment
    from s3unzip.deflate.layout import Layout as Layout
    from s3unzip.deflate.layout import Span as Span
    from s3unzip.deflate.layout import cut as cut
    from s3unzip.deflate.layout import segment_span as segment_span
    from s3unzip.deflate.link import LinkedSegment as LinkedSegment
    from s3unzip.deflate.link import link_segments as link_segments
    from s3unzip.deflate.scan import ScannedSegment as ScannedSegment
    from s3unzip.deflate.scan import SegmentScan as SegmentScan
    from s3unzip.deflate.split import locate as locate
    from s3unzip.deflate.split import scan_segment as scan_segment
    from s3unzip.deflate.split import split_inflate as split_inflate
    from s3unzip.deflate.tail import WINDOW_SIZE as WINDOW_SIZE
    from s3unzip.deflate.tail import SymbolicTail as SymbolicTail
    from s3unzip.finding import Finding as Finding


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "isal.isal_zlib": ("crc32_combine",),
            "s3unzip.deflate.errors": ("DeflateError", "SegmentRecordError"),
            "s3unzip.deflate.inflate": ("Arrival", "Ending", "SegmentInflater", "inflate_segment"),
            "s3unzip.deflate.link": ("LinkedSegment", "link_segments"),
            "s3unzip.deflate.layout": ("Layout", "Span", "cut", "segment_span"),
            "s3unzip.deflate.scan": ("ScannedSegment", "SegmentScan"),
            "s3unzip.deflate.split": ("locate", "scan_segment", "split_inflate"),
            "s3unzip.deflate.tail": ("WINDOW_SIZE", "SymbolicTail"),
            "s3unzip.finding": ("Finding",),
        },
    )
