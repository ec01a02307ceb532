"""Everything together: linked and extracted segments are the inflated whole, or an error."""

import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from s3unzip.deflate import (
    WINDOW_SIZE,
    DeflateError,
    LinkedSegment,
    ScannedSegment,
    Segmentation,
    SegmentRecordError,
    SegmentScan,
    Span,
    cut,
    inflate_segment,
    link_segments,
    segment_span,
)
from s3unzip.deflate.segments import locate, scan_segment, split_inflate
from tests.unit.deflate.blocks import walk
from tests.unit.deflate.streams import DATA, ENCODER_NAMES, ENCODERS, log_lines, mixed


class Slices:
    """Reads spans of a stream in chunks of one size, and counts the bytes."""

    def __init__(self, data: bytes, chunk: int = 1 << 20) -> None:
        self.data, self.chunk, self.bytes_read = data, chunk, 0

    def __call__(self, span: Span) -> list[bytes]:
        """Return the chunks of `span`."""
        self.bytes_read += span.stop - span.start
        at = range(span.start, span.stop, self.chunk)
        return [self.data[one : min(one + self.chunk, span.stop)] for one in at]


def scans_of(data: bytes, layout: Segmentation) -> list[ScannedSegment]:
    """Return the scans of all segments that have a boundary of their own."""
    every = (scan_segment(layout, segment, Slices(data)) for segment in range(layout.count))
    return [scan for scan in every if scan is not None]


def scan(data: bytes, start: int, stop: int | None) -> ScannedSegment:
    """Scan from bit to bit."""
    work = SegmentScan(start, stop)
    for chunk in Slices(data)(segment_span(start, stop, len(data))):
        work.feed(chunk)
    return work.finish()


def extract(data: bytes, segment: LinkedSegment, chunk: int = 1 << 20) -> bytes:
    """Return the segment's output."""
    return b"".join(inflate_segment(segment, Slices(data, chunk)(segment.span)))


@settings(max_examples=60, deadline=None)
@given(DATA, ENCODER_NAMES, st.integers(1, 12))
def test_segments_are_the_whole(raw: bytes, encoder: str, segments: int) -> None:
    """For all data, encoders and numbers of segments, the bytes and the CRC are right."""
    assert split_inflate(ENCODERS[encoder](raw), segments) == (raw, zlib.crc32(raw))


@settings(max_examples=15, deadline=None)
@given(DATA, st.sampled_from(["zlib-9-small-blocks", "sync-flush-small"]), st.integers(1, 999))
def test_segments_below_a_window_carry_it_along(raw: bytes, encoder: str, step: int) -> None:
    """Segments of a few hundred bytes, far below 32 KiB, still link exactly."""
    data = ENCODERS[encoder](raw[:12_000])
    segments = list(link_segments(scans_of(data, cut(len(data), step)), len(data)))
    assert b"".join(extract(data, segment, 999) for segment in segments) == raw[:12_000]
    for segment in segments:
        before = raw[: segment.offset]
        assert segment.window == before[-WINDOW_SIZE:]


SAMPLES: dict[str, Callable[[], bytes]] = {
    "logs": cache(lambda: log_lines(30_000)),
    "mixed": cache(
        lambda: mixed([("words", 300_000), ("noise", 300_000), ("echo", 300_000)] * 2, 3)
    ),
    "noise": lambda: random.Random(5).randbytes(500_000),
    "zeros": lambda: bytes(8_000_000),
    "nothing": lambda: b"",
    "one byte": lambda: b"x",
}


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("data", SAMPLES)
def test_every_encoder(encoder: str, data: str) -> None:
    """Each encoder's blocks are split, or joined, and give the data back."""
    raw = SAMPLES[data]()
    assert split_inflate(ENCODERS[encoder](raw), 5) == (raw, zlib.crc32(raw))


@pytest.mark.parametrize("encoder", ["zlib-1", "zlib-6", "zlib-9", "isal-1", "isal-3", "pigz-like"])
def test_ordinary_streams_are_split(encoder: str) -> None:
    """Ordinary encoders give the requested number of segments."""
    data = ENCODERS[encoder](log_lines(40_000) * 6)
    layout = cut(len(data), -(-len(data) // 4))
    scans = scans_of(data, layout)
    assert [scan.start_bit // 8 // layout.step for scan in scans] == [0, 1, 2, 3]


@pytest.mark.parametrize("encoder", ["zlib-0-stored", "zlib-fixed", "isal-0"])
def test_streams_without_dynamic_blocks_are_one_segment(encoder: str) -> None:
    """Where no boundary is, the first segment takes everything."""
    data = ENCODERS[encoder](log_lines(30_000))
    (scan,) = scans_of(data, cut(len(data), -(-len(data) // 4)))
    assert (scan.start_bit, scan.stop_bit) == (0, None)
    assert scan.first == scan.second


def test_stored_stretch_joins_the_segment_before() -> None:
    """A stretch of noise in the middle makes one longer segment, and no gap."""
    raw = log_lines(20_000) + random.Random(9).randbytes(3_000_000) + log_lines(20_000)
    data = ENCODERS["zlib-6"](raw)
    layout = cut(len(data), 350_000)
    scans = scans_of(data, layout)
    assert len(scans) < layout.count
    assert split_inflate(data, layout.count) == (raw, zlib.crc32(raw))
    longest = max(link_segments(scans, len(data)), key=lambda segment: segment.length)
    assert longest.length > 2_500_000


def test_false_boundary_is_passed_by() -> None:
    """A scan that misses a false boundary continues to the next; the false scan is left out."""
    raw = log_lines(40_000)
    data = ENCODERS["zlib-6"](raw)
    blocks = walk(data)
    false = blocks[3].start_bit + 5_001
    second, third = blocks[5].start_bit, blocks[8].start_bit
    assert scan(data, 0, false).arrival.ending == "missed"
    scans = [scan(data, 0, second), scan(data, false, second), scan(data, second, third)]
    scans.append(scan(data, third, None))
    segments = list(link_segments(scans, len(data)))
    assert [segment.start_bit for segment in segments] == [0, second, third]
    assert b"".join(extract(data, segment) for segment in segments) == raw


def test_stream_at_the_very_end_deceives_the_search_alone() -> None:
    """A compressed file in a stored block at the end looks real; the scan before it finds out."""
    logs = log_lines(10_000)
    inner = ENCODERS["zlib-6"](random.Random(2).randbytes(40_000).hex().encode())
    encoder = zlib.compressobj(6, zlib.DEFLATED, -15)
    head = encoder.compress(logs) + encoder.flush(zlib.Z_FULL_FLUSH) + b"\x01"
    size = len(inner).to_bytes(2, "little")
    data = head + size + bytes(byte ^ 0xFF for byte in size) + inner
    layout = Segmentation(len(data), len(head) + 4)
    assert locate(layout, 1, Slices(data)) == 8 * layout.step
    scans = scans_of(data, layout)
    assert len(scans) == 2
    (segment,) = link_segments(scans, len(data))
    assert extract(data, segment) == logs + inner


def test_missed_boundary_does_not_link() -> None:
    """A chain that ends at a false boundary is refused, and says to use one stream."""
    data = ENCODERS["zlib-6"](log_lines(20_000))
    false = walk(data)[2].start_bit + 333
    with pytest.raises(DeflateError, match="ended as missed; fall back to one stream"):
        list(link_segments([scan(data, 0, false), scan(data, false, None)], len(data)))


def test_missing_scan_does_not_link() -> None:
    """A gap between scans is refused, at the beginning, in the middle and at the end."""
    data = ENCODERS["zlib-6"](log_lines(40_000))
    one, two, three = scans_of(data, cut(len(data), -(-len(data) // 3)))
    for scans in ([], [one], [two, three], [one, three], [one, two]):
        with pytest.raises(DeflateError, match="no scan starts at bit"):
            list(link_segments(scans, len(data)))


def test_bytes_after_the_stream_do_not_link() -> None:
    """Compressed data that the stream does not use gives a finding."""
    data = ENCODERS["zlib-6"](log_lines(1_000)) + b"more"
    with pytest.raises(DeflateError, match=r"ends after \d+ of \d+ compressed bytes") as caught:
        list(link_segments([scan(data, 0, None)], len(data)))
    assert caught.value.finding.code == "compressed-trailing-bytes"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_streams_never_pass(draw: st.DataObject) -> None:
    """A flipped bit or a cut gives an error or another CRC, never bytes that pass."""
    raw = mixed([("words", 20_000), ("echo", 20_000), ("noise", 3_000), ("words", 9_000)], 7)
    data = bytearray(ENCODERS[draw.draw(ENCODER_NAMES)](raw))
    place = draw.draw(st.integers(0, 8 * len(data) - 1))
    if draw.draw(st.booleans()):
        del data[place // 8 :]
    else:
        data[place // 8] ^= 1 << place % 8
    if not data:
        return
    try:
        output, crc = split_inflate(bytes(data), 4)
    except DeflateError as error:
        assert error.finding.code in {  # noqa: PT017  an error is one of two right answers
            "corrupt-stream",
            "stream-truncated",
            "compressed-trailing-bytes",
        }
    else:
        assert crc == zlib.crc32(output)
        assert (len(output), crc) != (len(raw), zlib.crc32(raw)) or output == raw


def test_data_changed_after_the_scan_is_refused() -> None:
    """An extraction that does not repeat its scan ends as an error."""
    data = ENCODERS["zlib-6"](log_lines(20_000))
    first, second, *_ = link_segments(scans_of(data, cut(len(data), len(data) // 3)), len(data))
    false = second.start_bit - 77
    for wrong in (
        replace(second, length=second.length - 1),
        replace(second, length=second.length + 1),
        replace(first, stop_bit=false, span=segment_span(0, false, len(data))),
    ):
        with pytest.raises(DeflateError) as caught:
            extract(data, wrong)
        assert caught.value.finding.code == "size-mismatch"
    with pytest.raises(DeflateError, match="goes on after"):
        list(inflate_segment(first, [data[:1000]]))
    with pytest.raises(DeflateError) as caught:
        list(inflate_segment(first, [random.Random(1).randbytes(first.span.stop)]))
    assert caught.value.finding.code == "corrupt-stream"


def test_linked_segments_survive_their_bytes() -> None:
    """A linked segment is the same after a trip through bytes; other bytes are refused."""
    data = ENCODERS["zlib-6"](log_lines(20_000))
    for segment in link_segments(scans_of(data, cut(len(data), len(data) // 3)), len(data)):
        packed = segment.to_bytes()
        assert LinkedSegment.from_bytes(packed) == segment
        for damaged in (packed + b"x", b"", b"{}\n", b"[]", packed[:1] + b"\x01" + packed[2:]):
            with pytest.raises(SegmentRecordError, match="linked segment"):
                LinkedSegment.from_bytes(damaged)


def test_reading_is_little_more_than_the_stream() -> None:
    """A scan reads its own segment once, and otherwise only where it searches for boundaries."""
    data = ENCODERS["zlib-6"](log_lines(200_000))
    layout = cut(len(data), len(data) // 3)
    read = Slices(data)
    assert locate(layout, 1, read) is not None
    looking = read.bytes_read
    read = Slices(data)
    scan_segment(layout, 1, read)
    assert read.bytes_read < 2 * looking + layout.step + 100_000


def test_package_loads_without_numpy() -> None:
    """A worker that only extracts does not load numpy."""
    code = "import s3unzip.deflate, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
