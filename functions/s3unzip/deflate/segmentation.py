"""The segmentation of a member: the bytes in which the boundary of each segment is searched for.

All positions count from the first byte of the member's compressed data, not of the archive.
Segment 0 begins at bit 0. Each other segment begins at a boundary, which `boundary` finds. If it
finds no boundary in the search span, the segment joins the previous one.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from s3unzip.finding import DeflateError, Finding

Buffer = bytes | memoryview

# Bytes in which a boundary is searched for. Blocks are shorter: zlib's have at most 32,767
# symbols, libdeflate's about 300 KB and zopfli's 1 MB of output. The limit is for data without
# dynamic blocks, where the search takes 0.2 s for each MiB and finds nothing.
SEARCH_BYTES: Final = 2 << 20


class Span(NamedTuple):
    """Bytes of the member's compressed data from `start` up to, not including, `stop`."""

    start: int
    stop: int


Read = Callable[[Span], Iterable[Buffer]]  # returns a span of compressed data, in chunks


class Segmentation(Struct, frozen=True):
    """A member's compressed size and the distance between its segments, both in bytes.

    Workers with equal segmentations find equal boundaries. `search` is the maximum number of bytes
    in which the boundary of one segment is searched for.
    """

    size: int
    distance: int
    search: int = SEARCH_BYTES

    @property
    def count(self) -> int:
        """The number of segments, including those that join the previous one."""
        return -(-self.size // self.distance)

    def search_span(self, segment: int) -> Span:
        """Return the bytes in which the boundary of `segment` (from 1) must begin."""
        start = segment * self.distance
        return Span(start, min(start + min(self.distance, self.search), self.size))

    def segment_at(self, boundary: int) -> int:
        """Return the number of the segment that begins at this bit."""
        return boundary // (8 * self.distance)


def cut(compressed_size: int, segment_size: int) -> Segmentation:
    """Return the segmentation into equal segments of at most `segment_size` bytes.

    Raises:
        DeflateError: The member has no compressed data: the shortest stream has two bytes.
    """
    if not compressed_size:
        raise DeflateError(Finding("stream-truncated", "a deflate stream without any bytes"))
    count = -(-compressed_size // segment_size)
    return Segmentation(compressed_size, -(-compressed_size // count))


def segment_span(start_bit: int, stop_bit: int | None, compressed_size: int) -> Span:
    """Return the bytes that a segment's inflate needs.

    They begin with the byte that holds `start_bit` and end after the byte that holds the last bit
    before `stop_bit`. If `stop_bit` is None, they go to the end of the data.
    """
    stop = compressed_size
    if stop_bit is not None:
        stop = -(-stop_bit // 8)
    return Span(start_bit // 8, stop)
