"""Where segments are looked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3unzip.deflate import Segmentation, Span, cut, segment_span


@given(st.integers(1, 2**43), st.integers(1, 2**40))
def test_cut_covers_the_member(size: int, segment: int) -> None:
    """Steps have at most the requested size, are nearly equal, and cover the member."""
    layout = cut(size, segment)
    assert layout.step <= segment
    assert (layout.count - 1) * layout.step < size <= layout.count * layout.step


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_searches_never_overlap(size: int, step: int, search: int) -> None:
    """Each search is within its own step, so no two segments find the same boundary."""
    layout = Segmentation(size, step, search)
    for segment in range(1, min(layout.count, 50)):
        span = layout.search_span(segment)
        assert segment * step == span.start < span.stop <= min((segment + 1) * step, size)
        assert span.stop - span.start <= search
        assert {span.start // step, (span.stop - 1) // step} == {segment}


def test_segment_span_takes_both_partial_bytes() -> None:
    """Neighbours share the byte of their boundary, unless it is between two bytes."""
    assert segment_span(0, 17, 100) == Span(0, 3)
    assert segment_span(17, 64, 100) == Span(2, 8)
    assert segment_span(64, None, 100) == Span(8, 100)


@pytest.mark.parametrize(("size", "segment"), [(0, 1), (1, 0), (-1, 5)])
def test_cut_refuses_nothing_to_cut(size: int, segment: int) -> None:
    """An empty member or segment is a mistake of the caller."""
    with pytest.raises(ValueError, match="cannot cut"):
        cut(size, segment)
