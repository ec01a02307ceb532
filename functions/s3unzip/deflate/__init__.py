"""The deflate core: split one raw deflate stream among several workers, without doing any I/O.

``docs/deflate-splitting.md`` explains the method. `segments` computes where to search for the
boundaries of segments, and inflates one segment. `boundary` finds the bit at which a segment
begins; it needs numpy, which no other module loads. `splitting` scans segments without the output
that precedes them, links the scans and inflates the linked segments. `crc32_combine` (isal)
computes the CRC-32 of the whole output from the CRC-32s of its parts.

>>> import zlib
>>> from s3unzip import deflate
>>> compressor = zlib.compressobj(wbits=-15)
>>> content = bytes(range(256)) * 4096
>>> stream = compressor.compress(content) + compressor.flush()
>>> def read(start, stop):
...     return [stream[start:stop]]
>>> layout = deflate.Segmentation(len(stream), distance=len(stream) // 3)
>>> scans = [deflate.scan_segment(layout, number, read) for number in range(layout.count)]
>>> segments = deflate.link_segments(filter(None, scans), layout.size)
>>> output = b""
>>> for segment in segments:
...     output += b"".join(deflate.inflate_segment(segment, read(*segment.span)))
>>> output == content
True

All errors are instances of `DeflateError`.
"""

from isal.isal_zlib import crc32_combine as crc32_combine

from s3unzip.deflate.segments import (
    WINDOW_SIZE as WINDOW_SIZE,
    Arrival as Arrival,
    Segmentation as Segmentation,
    SegmentInflater as SegmentInflater,
    segment_span as segment_span,
)
from s3unzip.deflate.splitting import (
    LinkedSegment as LinkedSegment,
    ScannedSegment as ScannedSegment,
    inflate_segment as inflate_segment,
    link_segments as link_segments,
    locate as locate,
    scan_bits as scan_bits,
    scan_segment as scan_segment,
)
from s3unzip.errors import (
    DeflateError as DeflateError,
    Finding as Finding,
)
