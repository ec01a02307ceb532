"""The deflate core: split one raw deflate stream among several workers, without doing any I/O.

``docs/deflate-splitting.md`` explains the method. `segments` computes where to search for the
boundaries of segments, and inflates one segment. `boundary` finds the bit where a segment begins;
it needs numpy, which other workers never load. `splitting` scans segments without the output that
precedes them, links the scans and inflates the linked segments. `crc32_combine` (isal) computes the
CRC-32 of the whole output from the CRC-32s of its parts.

>>> import zlib
>>> from s3unzip import deflate
>>> compressor = zlib.compressobj(wbits=-15)
>>> stream = compressor.compress(bytes(range(256)) * 4096) + compressor.flush()
>>> content, crc32 = deflate.split_inflate(stream, segments=3)
>>> len(content), crc32 == zlib.crc32(content)
(1048576, True)

All errors are instances of `DeflateError`.
"""

from isal.isal_zlib import crc32_combine as crc32_combine

from s3unzip.deflate.segments import (
    WINDOW_SIZE as WINDOW_SIZE,
    Arrival as Arrival,
    Segmentation as Segmentation,
    SegmentInflater as SegmentInflater,
    cut as cut,
    segment_span as segment_span,
)
from s3unzip.deflate.splitting import (
    LinkedSegment as LinkedSegment,
    ScannedSegment as ScannedSegment,
    SegmentScan as SegmentScan,
    inflate_segment as inflate_segment,
    link_segments as link_segments,
    locate as locate,
    scan_segment as scan_segment,
    split_inflate as split_inflate,
)
from s3unzip.errors import (
    DeflateError as DeflateError,
    Finding as Finding,
)
