"""The deflate core: split one raw deflate stream over workers. Bytes in, values out, no I/O.

``docs/deflate-splitting.md`` explains the method. `layout` says where segments are looked for,
`boundary` where they begin, to the bit (needs numpy). `segments` scans them, links the scans and
inflates. `crc32_combine` (isal) makes the checksum of the whole from those of the parts. `split`
composes all of these over a ``read(span)``.

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

from typing import TYPE_CHECKING

from s3unzip.lazy import lazy_names

if TYPE_CHECKING:
    from isal.isal_zlib import crc32_combine as crc32_combine

    from s3unzip.deflate.layout import DeflateError as DeflateError
    from s3unzip.deflate.layout import Layout as Layout
    from s3unzip.deflate.layout import SegmentRecordError as SegmentRecordError
    from s3unzip.deflate.layout import Span as Span
    from s3unzip.deflate.layout import cut as cut
    from s3unzip.deflate.layout import segment_span as segment_span
    from s3unzip.deflate.segments import WINDOW_SIZE as WINDOW_SIZE
    from s3unzip.deflate.segments import Arrival as Arrival
    from s3unzip.deflate.segments import Ending as Ending
    from s3unzip.deflate.segments import LinkedSegment as LinkedSegment
    from s3unzip.deflate.segments import ScannedSegment as ScannedSegment
    from s3unzip.deflate.segments import SegmentInflater as SegmentInflater
    from s3unzip.deflate.segments import SegmentScan as SegmentScan
    from s3unzip.deflate.segments import SymbolicTail as SymbolicTail
    from s3unzip.deflate.segments import inflate_segment as inflate_segment
    from s3unzip.deflate.segments import link_segments as link_segments
    from s3unzip.deflate.split import locate as locate
    from s3unzip.deflate.split import scan_segment as scan_segment
    from s3unzip.deflate.split import split_inflate as split_inflate
    from s3unzip.finding import Finding as Finding

_LAYOUT = ("DeflateError", "Layout", "SegmentRecordError", "Span", "cut", "segment_span")
_VALUES = ("WINDOW_SIZE", "Arrival", "Ending", "LinkedSegment", "ScannedSegment", "SymbolicTail")
_STEPS = ("SegmentInflater", "SegmentScan", "inflate_segment", "link_segments")

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "isal.isal_zlib": ("crc32_combine",),
            "s3unzip.deflate.layout": _LAYOUT,
            "s3unzip.deflate.segments": (*_VALUES, *_STEPS),
            "s3unzip.deflate.split": ("locate", "scan_segment", "split_inflate"),
            "s3unzip.finding": ("Finding",),
        },
    )
