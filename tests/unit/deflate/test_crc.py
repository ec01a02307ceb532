"""CRC-32 of a whole from its parts."""

from __future__ import annotations

import zlib
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from s3unzip.deflate import crc32_combine


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_combine_equals_crc_of_the_whole(one: bytes, two: bytes) -> None:
    """The combination is the CRC of both parts in a row."""
    assert crc32_combine(zlib.crc32(one), zlib.crc32(two), len(two)) == zlib.crc32(one + two)


@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000)))
def test_combine_over_any_cuts(data: bytes, cuts: list[int]) -> None:
    """For every cut of the data, the parts combine to the CRC of the whole."""
    crc = 0
    for start, stop in pairwise(sorted({*cuts, 0, len(data)} | {len(data)})):
        part = data[start:stop]
        crc = crc32_combine(crc, zlib.crc32(part), len(part))
    assert crc == zlib.crc32(data)


@given(*[st.integers(0, 2**32 - 1)] * 3, *[st.integers(0, 2**62 - 1)] * 2)
def test_combine_is_associative(a: int, b: int, c: int, of_b: int, of_c: int) -> None:
    """Combining from the left or from the right gives the same, up to 2**63 - 2 bytes."""
    left = crc32_combine(crc32_combine(a, b, of_b), c, of_c)
    assert left == crc32_combine(a, crc32_combine(b, c, of_c), of_b + of_c)
