"""The deflate core: split one raw deflate stream over workers. Bytes in, values out, no I/O.

``docs/deflate-splitting.md`` explains the method. `segments` says where segments are looked for,
scans them, links the scans, inflates, and composes that over a ``read(span)``. `boundary` finds
where they begin, to the bit (needs numpy, which a worker that only extracts never loads).
`crc32_combine` (isal) makes the checksum of the whole from those of the parts.

>>> import zlib
>>> from s3unzip import deflate
>>> compressor = zlib.compressobj(wbits=-15)
>>> stream = compressor.compress(bytes(range(256)) * 4096) + compressor.flush()
>>> content, crc32 = deflate.split_inflate(stream, segments=3)
>>> len(content), crc32 == zlib.crc32(content)
(1048576, True)

All errors are below `DeflateError` and `SegmentRecordError`.
"""

from isal.isal_zlib import crc32_combine

from s3unzip.deflate.segments import (
    WINDOW_SIZE,
    Arrival,
    LinkedSegment,
    ScannedSegment,
    Segmentation,
    SegmentInflater,
    SegmentScan,
    Span,
    cut,
    inflate_segment,
    link_segments,
    locate,
    scan_segment,
    segment_span,
    split_inflate,
)
from s3unzip.finding import DeflateError, Finding, SegmentRecordError
