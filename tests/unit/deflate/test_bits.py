"""Streams that begin and end inside a byte."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from isal import isal_zlib

from s3unzip.deflate.bits import SENTINEL_TEXT, align, seal
from tests.unit.deflate.streams import ENCODERS, log_lines

TEXT = log_lines(100) + random.Random(1).randbytes(70_000) + log_lines(100)


def shift(data: bytes, bits: int) -> bytes:
    """Return `data` with `bits` foreign bits before it."""
    value = int.from_bytes(data, "little") << bits | (0b1010101 & (1 << bits) - 1)
    return value.to_bytes(len(data) + 1, "little")


@pytest.mark.parametrize("inflate", [zlib.decompressobj, isal_zlib.decompressobj])
@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("encoder", ["zlib-fixed", "zlib-6", "isal-1"])
def test_align_starts_at_any_bit(encoder: str, bit: int, inflate: Any) -> None:
    """A stream without stored blocks inflates from each of the eight bits of a byte."""
    raw = TEXT[:5_000]
    stream = inflate(-15)
    assert stream.decompress(align(shift(ENCODERS[encoder](raw), bit), bit)) == raw
    assert stream.eof


@pytest.mark.parametrize("bit", range(8))
def test_align_keeps_bytes_in_place(bit: int) -> None:
    """Every byte but the first follows unchanged, after at most 15 bytes of lead-in."""
    data = bytes(range(100, 200))
    aligned = align(data, bit)
    assert aligned.endswith(data[1:])
    assert len(aligned) - len(data) <= 15
    assert aligned[-len(data)] >> bit == data[0] >> bit


@pytest.mark.parametrize("inflate", [zlib.decompressobj, isal_zlib.decompressobj])
@pytest.mark.parametrize("bit", range(8))
def test_seal_after_lead_in_is_a_stream(bit: int, inflate: Any) -> None:
    """Lead-in and sentinel meet in one byte at any bit, and hold the sentinel's text alone."""
    joined = seal(align(b"\xff", bit)[-1:], bit)
    stream = inflate(-15)
    lead_in = align(b"\xff", bit)[:-1] if bit else b""
    assert stream.decompress(lead_in + joined) == SENTINEL_TEXT
    assert stream.eof
    assert not stream.unused_data
