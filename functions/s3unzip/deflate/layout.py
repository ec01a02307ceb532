"""Where the segments of a member are looked for: sizes in, positions out; and the core's errors.

All positions count from the first byte of the member's compressed data, not
of the archive. `boundary` finds where a segment really begins.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from s3unzip.finding import ArchiveError, S3UnzipError

SEARCH_BYTES: Final = 2 << 20
"""A segment's boundary is looked for in so many bytes. Blocks are shorter than that: zlib's have
at most 32,767 symbols, libdeflate's some 300 KB and zopfli's 1 MB of output. The limit is for
stretches without any dynamic block, where each MiB costs 0.2 s to no avail."""


class DeflateError(ArchiveError):
    """The stream is corrupt, or its segments do not join: inflate it as one stream."""


class SegmentRecordError(S3UnzipError):
    """A stored segment cannot be read: another version wrote it, or it is damaged."""


class Span(NamedTuple):
    """Bytes of the member's compressed data from `start` up to, not including, `stop`."""

    start: int
    stop: int


class Layout(Struct, frozen=True):
    """A member's compressed size in bytes and the distance of its segments in bytes.

    Two workers with equal layouts find equal boundaries.
    """

    size: int
    step: int
    search: int = SEARCH_BYTES

    def __post_init__(self) -> None:
        if min(self.size, self.step, self.search) < 1:
            raise ValueError(f"sizes below 1 byte: {self}")

    @property
    def count(self) -> int:
        """Number of segments looked for; joined ones make it fewer."""
        return -(-self.size // self.step)

    def search_span(self, segment: int) -> Span:
        """Return the bytes in which the boundary of `segment` (from 1) must begin."""
        start = segment * self.step
        return Span(start, min(start + min(self.step, self.search), self.size))


def cut(compressed_size: int, segment_size: int) -> Layout:
    """Return the layout of a member in equal segments of at most `segment_size` bytes.

    Args:
        compressed_size: Bytes of compressed data, at least 1.
        segment_size: Bytes of compressed data a worker should take, at least 1.
    """
    if min(compressed_size, segment_size) < 1:
        raise ValueError(f"cannot cut {compressed_size} bytes into segments of {segment_size}")
    count = -(-compressed_size // segment_size)
    return Layout(compressed_size, -(-compressed_size // count))


def segment_span(start_bit: int, stop_bit: int | None, compressed_size: int) -> Span:
    """Return the bytes a segment is fed with.

    It begins with the byte that holds `start_bit` and ends after the byte that
    holds the last bit before `stop_bit`; without one, at the end of the data.
    """
    return Span(start_bit // 8, compressed_size if stop_bit is None else -(-stop_bit // 8))
