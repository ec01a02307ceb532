"""Boundaries: all of them true, the first of them found, bounded reads."""

import random
import zlib

from hypothesis import given, settings, strategies as st

from s3unzip.deflate import Segmentation, Span, cut, locate
from s3unzip.deflate.boundary import LOOKAHEAD, READ_BYTES, find_boundary
from tests.support.streams import DATA, ENCODER_NAMES, ENCODERS, log_lines
from tests.unit.deflate.blocks import DYNAMIC, STORED, walk


def _boundaries(data: bytes) -> list[int]:
    return [block.start_bit for block in walk(data) if block.kind == DYNAMIC and not block.final]


@settings(max_examples=40, deadline=None)
@given(DATA, ENCODER_NAMES, st.integers(0, 2**32))
def test_first_boundary_is_found(raw: bytes, encoder: str, place: int) -> None:
    """From any bit on, the first non-final dynamic block is found, as a plain reader says."""
    data = ENCODERS[encoder](raw)
    start = place % (8 * len(data))
    wanted = next((bit for bit in _boundaries(data) if bit >= start), None)
    assert find_boundary(data, start, 8 * len(data), at_end=True) == wanted


def test_range_is_half_open() -> None:
    """The first bit of a search counts, the one that it stops at does not."""
    data = ENCODERS["zlib-6"](log_lines(14_000))
    first, second, *_ = _boundaries(data)[1:]
    ranges = [(first, second + 1), (first + 1, second + 1), (first + 1, second)]
    found = [find_boundary(data, *bits, at_end=True) for bits in ranges]
    assert found == [first, second, None]


def test_windows_agree_with_the_whole() -> None:
    """What a search finds does not depend on how much data it was given."""
    data = ENCODERS["zlib-1"](random.Random(2).randbytes(1_200_000).hex().encode())
    whole = find_boundary(data, 8 * 60_000, 8 * 130_000, at_end=True)
    assert len(data) > 130_000 + LOOKAHEAD
    window = data[: 130_000 + LOOKAHEAD]
    assert find_boundary(window, 8 * 60_000, 8 * 130_000, at_end=False) == whole is not None


def test_stream_within_the_stream_is_not_taken() -> None:
    """Headers of a compressed file held in stored blocks are not boundaries of the outer stream."""
    inner = ENCODERS["zlib-6"](random.Random(3).randbytes(1_000_000).hex().encode())
    data = ENCODERS["zlib-6"](inner + log_lines(8_000))
    assert [block.kind for block in walk(data)].count(STORED) > 20
    outer = next(bit for bit in _boundaries(data) if bit >= 8 * 10_000)
    assert outer > 8 * (len(inner) - 50_000)
    assert find_boundary(data, 8 * 10_000, 8 * len(data), at_end=True) == outer


def test_truncated_stream_has_no_boundary_at_its_end() -> None:
    """Where the data ends in the middle of a block, no header is believed near it."""
    data = ENCODERS["zlib-6"](log_lines(8_000))
    last = _boundaries(data)[-1]
    streams = (data[: last // 8 + 500], data)
    assert [find_boundary(one, last, last + 1, at_end=True) for one in streams] == [None, last]


def test_locate_asks_for_bounded_spans() -> None:
    """Without any boundary the search reads its whole span, piece by piece, and no more."""
    data = zlib.compressobj(0, zlib.DEFLATED, -15).compress(bytes(4_000_000)).ljust(6_000_000)
    layout = Segmentation(len(data), 3_000_000, search=1_200_000)
    wanted: list[Span] = []

    def read(span: Span) -> list[bytes]:
        wanted.append(span)
        return [data[span.start : span.stop]]

    assert locate(layout, 1, read) is None
    assert [span.start for span in wanted] == [3_000_000 + READ_BYTES * k for k in range(3)]
    assert all(span.stop - span.start <= READ_BYTES + LOOKAHEAD for span in wanted)
    assert wanted[-1].stop == 4_200_000 + LOOKAHEAD


def test_first_segment_needs_no_reading() -> None:
    """The stream begins at bit 0, with any first block."""
    assert locate(cut(1000, 100), 0, lambda _: []) == 0


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_searches_never_overlap(size: int, step: int, search: int) -> None:
    """Each search is within its own step, so no two segments find the same boundary."""
    layout = Segmentation(size, step, search)
    for segment in range(1, min(layout.count, 50)):
        span = layout.search_span(segment)
        assert segment * step == span.start < span.stop <= min((segment + 1) * step, size)
        assert span.stop - span.start <= search
