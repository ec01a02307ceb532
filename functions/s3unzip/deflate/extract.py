"""Return a linked segment's bytes, or raise: the strict form of `inflate`.

No CRC is checked here: the directory declares one for all segments together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.deflate.errors import DeflateError
from s3unzip.deflate.inflate import Ending, SegmentInflater
from s3unzip.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.deflate.inflate import Buffer
    from s3unzip.deflate.link import LinkedSegment


def inflate_segment(segment: LinkedSegment, chunks: Iterable[Buffer]) -> Iterator[bytes]:
    """Yield the segment's output in pieces of at most `inflate.PIECE_SIZE` bytes.

    Args:
        segment: As `link` gave it.
        chunks: The bytes of ``segment.span``, cut anywhere.

    Raises:
        DeflateError: The bytes are not those that were scanned, or corrupt. Pieces may have
            been yielded before.
    """
    inflater = SegmentInflater(segment.start_bit, segment.stop_bit, segment.window)
    for chunk in chunks:
        for piece in inflater.feed(chunk):
            if inflater.length > segment.length:
                raise _unlike(segment, f"more than {segment.length} bytes")
            yield piece
    piece, arrival = inflater.finish()
    wanted = Ending.FINAL if segment.stop_bit is None else Ending.BOUNDARY
    if arrival.fault is not None:
        raise DeflateError(arrival.fault)
    if (arrival.ending, arrival.length) != (wanted, segment.length):
        raise _unlike(segment, f"{arrival.length} bytes and ending {arrival.ending}")
    if piece:
        yield piece


def _unlike(segment: LinkedSegment, found: str) -> DeflateError:
    return DeflateError(
        Finding(
            "size-mismatch",
            f"the segment from bit {segment.start_bit} of the member's data gave {found}, "
            f"its scan {segment.length} bytes; fall back to one stream",
        )
    )
