"""Splitting one deflate stream: boundaries, and what scans, links and segments say of it."""

import random
import zlib
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from s3unzip.deflate import (
    WINDOW_SIZE,
    Arrival,
    DeflateError,
    LinkedSegment,
    ScannedSegment,
    Segmentation,
    SegmentInflater,
    inflate_segment,
    link_segments,
    locate,
    scan_bits,
    scan_segment,
    segment_span,
)
from s3unzip.deflate.boundary import LOOKAHEAD, READ_BYTES, find_boundary
from s3unzip.deflate.segments import FIRST_WINDOW, PIECE_SIZE, SECOND_WINDOW
from tests.support.streams import DATA, ENCODER_NAMES, ENCODERS, mixed, scan, split_inflate
from tests.support.zips import log_lines
from tests.unit.deflate.blocks import DYNAMIC, STORED, walk

SAMPLE = mixed([("words", 6_000), ("noise", 3_000), ("zeros", 4_000), ("echo", 9_000)], 5)
STREAM = ENCODERS["zlib-9-small-blocks"](SAMPLE)
BLOCKS = walk(STREAM)


@settings(max_examples=40, deadline=None)
@given(DATA, ENCODER_NAMES, st.data())
def test_tail_resolves_to_the_output(raw: bytes, encoder: str, draw: st.DataObject) -> None:
    """Between any two block headers, the tail and the true window give the true output."""
    data = ENCODERS[encoder](raw)
    blocks = walk(data)
    place = st.integers(0, len(blocks))
    first, last = sorted((draw.draw(place), draw.draw(place)))
    starts = [(block.start_bit, block.offset) for block in blocks]
    start, begin = starts[min(first, len(blocks) - 1)]
    stop, end = (None, len(raw)) if last == len(blocks) else starts[last]
    if stop is not None and stop < start + 16:
        return
    scanned = scan(data, start, stop)
    ending = "final" if stop is None else "boundary"
    assert (scanned.arrival.ending, scanned.arrival.length) == (ending, end - begin)
    window = raw[max(0, begin - WINDOW_SIZE) : begin]
    assert scanned.resolve(window, end) == raw[max(0, end - WINDOW_SIZE) : end]


ONE_BLOCK = zlib.compress(random.Random(4).randbytes(900).hex().encode(), wbits=-15)
# Empty blocks with fixed codes, of ten bits each, and a last one.
SHORT_BLOCKS = int(("0100000000" * 40 + "1100000000")[::-1], 2).to_bytes(52, "little")


@pytest.mark.parametrize(
    ("data", "start", "stop"),
    [
        (STREAM, 4 * len(STREAM), 4 * len(STREAM) + 4_000),
        (ONE_BLOCK, 64, 8 * (len(ONE_BLOCK) - 2)),
        (SHORT_BLOCKS, 8, 8 * (len(SHORT_BLOCKS) - 2)),
    ],
    ids=["many blocks", "the last block", "short blocks"],
)
def test_arrival_is_exact(data: bytes, start: int, stop: int) -> None:
    """Of all stop bits in a row, just those of block headers are arrived at.

    A false boundary inside the final block is not taken for the stream's end.
    """
    stops = range(start, stop)
    headers = {block.start_bit for block in walk(data)}
    assert {stop: scan(data, 0, stop).arrival.ending for stop in stops} == dict.fromkeys(
        stops, "missed"
    ) | dict.fromkeys(headers.intersection(stops), "boundary")


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 12_000), max_size=30), st.integers(0, 2))
def test_cuts_of_the_input_change_nothing(cuts: set[int], which: int) -> None:
    """With any pieces of input, a scan gives the same value."""
    start, stop = [
        (0, BLOCKS[9].start_bit),
        (BLOCKS[4].start_bit, BLOCKS[20].start_bit),
        (BLOCKS[20].start_bit, None),
    ][which]
    assert scan(STREAM, start, stop, cuts) == scan(STREAM, start, stop)


def test_extreme_ratio_stays_in_bounded_pieces() -> None:
    """A stream of zeros, 1,000 to 1, comes out in small pieces and scans to its exact length."""
    data = ENCODERS["zlib-9"](bytes(50_000_000))
    work = SegmentInflater(0)
    lengths = [len(piece) for piece in work.feed(data)]
    assert max(lengths) <= PIECE_SIZE
    assert (sum(lengths), work.finish()[1].used) == (50_000_000, len(data))


def test_end_of_the_stream_is_told_to_the_byte() -> None:
    """Bytes after the stream are no part of it, wherever the input is cut."""
    for cuts in ((), (len(STREAM) - 1,), (len(STREAM),), (len(STREAM) + 3,), range(30_000)):
        assert scan(STREAM + b"rubbish", 0, None, cuts).arrival == Arrival(
            "final", len(SAMPLE), len(STREAM)
        )
    early = scan(STREAM + bytes(range(200)), BLOCKS[5].start_bit, 8 * len(STREAM) + 803).arrival
    assert (early.ending, early.used) == ("final", len(STREAM))


@pytest.mark.parametrize(
    ("later", "has_stop", "code"),
    [
        (b"", False, "stream-truncated"),
        (b"", True, "stream-truncated"),
        (random.Random(6).randbytes(20_000), True, "corrupt-stream"),
    ],
)
def test_broken_streams_are_values(later: bytes, code: str, *, has_stop: bool) -> None:
    """Input that ends too early, or bits that are not deflate, give a finding."""
    stop = BLOCKS[-1].start_bit
    arrival = scan_bits(
        0, stop if has_stop else None, (STREAM[:1_000], later[: -(-stop // 8) - 1_000])
    ).arrival
    assert (arrival.ending, arrival.fault and arrival.fault.code) == ("broken", code)


def test_noise_makes_the_window_irrelevant() -> None:
    """Log lines copy from copies for ever; after 32 KiB of noise nothing of the window matters."""
    data = ENCODERS["zlib-9"](log_lines(700_000))
    tail = scan(data, walk(data)[3].start_bit, None)
    assert sum(one != two for one, two in zip(tail.first, tail.second or b"", strict=True)) > 1_000
    raw = log_lines(700_000) + random.Random(8).randbytes(70_000) + log_lines(105_000)
    data = ENCODERS["zlib-6"](raw)
    tail = scan(data, walk(data)[2].start_bit, None)
    assert (tail.second, tail.resolve(b"", len(raw))) == (None, raw[-WINDOW_SIZE:])


def test_reference_before_the_beginning_is_an_error() -> None:
    """A tail that copies from before the stream's first byte cannot be resolved."""
    tail = ScannedSegment(8, None, Arrival("final", 3), FIRST_WINDOW, SECOND_WINDOW)
    with pytest.raises(DeflateError, match=r"from bit 8: .* does not contain position 32667"):
        tail.resolve(b"x" * 100, 101)
    assert tail.resolve(b"x" * 100, 100) == b"x" * 100


@settings(max_examples=25, deadline=None)
@given(raw=DATA, encoder=ENCODER_NAMES, at=st.integers(0, 40), whole=st.booleans())
def test_scans_survive_their_bytes(*, raw: bytes, encoder: str, at: int, whole: bool) -> None:
    """A scanned segment is the same after a trip through bytes, its faults included."""
    data = ENCODERS[encoder](raw)
    blocks = walk(data)
    scanned = scan(
        data if whole else data[: len(data) - 5], blocks[at % len(blocks)].start_bit, None
    )
    packed = scanned.to_bytes()
    assert ScannedSegment.from_bytes(packed) == scanned
    assert len(packed) < 2 * WINDOW_SIZE + 1_000


def test_other_bytes_are_refused() -> None:
    """Bytes that are no record of this kind end as one clear error."""
    packed = scan(STREAM, BLOCKS[9].start_bit, None).to_bytes()
    for other in (
        b"",
        b"{}\n",
        STREAM,
        LinkedSegment(0, None, (0, 9), b"", 0, 9).to_bytes(),
        packed[:-1],
        packed[:-3] + b"abc",
        packed + b"x",
        zlib.compress(b"\x81\xa4type\xa1\xff")[:-1],  # incomplete, with text that is not UTF-8
    ):
        with pytest.raises(DeflateError, match="ScannedSegment"):
            ScannedSegment.from_bytes(other)


def _reader(data: bytes, chunk: int = 1 << 20) -> Callable[[int, int], list[bytes]]:
    def read(start: int, stop: int) -> list[bytes]:
        return [data[one : min(one + chunk, stop)] for one in range(start, stop, chunk)]

    return read


def _scans_of(data: bytes, layout: Segmentation) -> list[ScannedSegment]:
    return list(
        filter(None, (scan_segment(layout, at, _reader(data)) for at in range(layout.count)))
    )


def _extract(data: bytes, segment: LinkedSegment, chunk: int = 1 << 20) -> bytes:
    return b"".join(inflate_segment(segment, _reader(data, chunk)(*segment.span)))


@settings(max_examples=60, deadline=None)
@given(DATA, ENCODER_NAMES, st.integers(1, 12))
def test_segments_are_the_whole(raw: bytes, encoder: str, segments: int) -> None:
    """For all data, encoders and numbers of segments, the bytes are right."""
    assert split_inflate(ENCODERS[encoder](raw), segments) == raw


@settings(max_examples=15, deadline=None)
@given(DATA, st.sampled_from(["zlib-9-small-blocks", "sync-flush-small"]), st.integers(1, 999))
def test_segments_below_a_window_carry_it_along(raw: bytes, encoder: str, step: int) -> None:
    """Segments of a few hundred bytes, far below 32 KiB, still link exactly."""
    data = ENCODERS[encoder](raw[:12_000])
    segments = list(link_segments(_scans_of(data, Segmentation(len(data), step)), len(data)))
    assert b"".join(_extract(data, segment, 999) for segment in segments) == raw[:12_000]
    assert [(one.window, LinkedSegment.from_bytes(one.to_bytes())) for one in segments] == [
        (raw[: one.offset][-WINDOW_SIZE:], one) for one in segments
    ]


SAMPLES: dict[str, Callable[[], bytes]] = {
    "logs": cache(lambda: log_lines(1_050_000)),
    "mixed": cache(
        lambda: mixed([("words", 300_000), ("noise", 300_000), ("echo", 300_000)] * 2, 3)
    ),
    "zeros": lambda: bytes(3_000_000),
}


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("data", SAMPLES)
def test_every_encoder(encoder: str, data: str) -> None:
    """Each encoder's blocks are split, or joined, and give the data back."""
    raw = SAMPLES[data]()
    assert split_inflate(ENCODERS[encoder](raw), 5) == raw


@pytest.mark.parametrize(
    ("encoder", "segments"),
    [
        *((name, [0, 1, 2, 3]) for name in ("zlib-1", "zlib-6", "isal-1", "isal-3", "pigz-like")),
        *((name, [0]) for name in ("zlib-0-stored", "zlib-fixed", "isal-0")),
    ],
)
def test_segments_that_are_found(encoder: str, segments: list[int]) -> None:
    """Ordinary encoders give as many as are asked for; without dynamic blocks there is one."""
    data = ENCODERS[encoder](log_lines(1_050_000) * 4)
    layout = Segmentation(len(data), -(-len(data) // 4))
    scans = _scans_of(data, layout)
    assert [scan.start_bit // 8 // layout.distance for scan in scans] == segments
    assert (scans[-1].stop_bit, scans[0].second) == (None, None)


def test_stored_stretch_joins_the_segment_before() -> None:
    """A stretch of noise in the middle makes one longer segment, and no gap."""
    raw = log_lines(700_000) + random.Random(9).randbytes(3_000_000) + log_lines(700_000)
    data = ENCODERS["zlib-6"](raw)
    layout = Segmentation(len(data), 350_000)
    scans = _scans_of(data, layout)
    assert len(scans) < layout.count
    assert split_inflate(data, layout.count) == raw
    assert max(segment.length for segment in link_segments(scans, len(data))) > 2_500_000


def test_false_boundary_is_passed_by() -> None:
    """A scan that misses a false boundary continues to the next; the false scan is left out."""
    raw = log_lines(1_400_000)
    data = ENCODERS["zlib-6"](raw)
    blocks = walk(data)
    first, second, third = (blocks[number].start_bit for number in (3, 5, 8))
    false = first + 5_001
    assert scan(data, 0, false).arrival.ending == "missed"
    spans = [(0, second), (false, second), (second, third), (third, None)]
    segments = list(link_segments([scan(data, *span) for span in spans], len(data)))
    assert [segment.start_bit for segment in segments] == [0, second, third]
    assert b"".join(_extract(data, segment) for segment in segments) == raw
    with pytest.raises(DeflateError, match="ended as missed; the member is inflated as one"):
        list(link_segments([scan(data, 0, false), scan(data, false, None)], len(data)))


def test_stream_at_the_very_end_deceives_the_search_alone() -> None:
    """A compressed file in a stored block at the end looks real; the scan before it finds out."""
    logs = log_lines(350_000)
    inner = ENCODERS["zlib-6"](random.Random(2).randbytes(40_000).hex().encode())
    encoder = zlib.compressobj(6, zlib.DEFLATED, -15)
    head = encoder.compress(logs) + encoder.flush(zlib.Z_FULL_FLUSH) + b"\x01"
    size = len(inner).to_bytes(2, "little")
    data = head + size + bytes(byte ^ 0xFF for byte in size) + inner
    layout = Segmentation(len(data), len(head) + 4)
    assert locate(layout, 1, _reader(data)) == 8 * layout.distance
    scans = _scans_of(data, layout)
    assert len(scans) == 2
    (segment,) = link_segments(scans, len(data))
    assert _extract(data, segment) == logs + inner


@pytest.mark.parametrize("numbers", [(), (0,), (1, 2), (0, 2), (0, 1)])
def test_missing_scan_does_not_link(numbers: tuple[int, ...]) -> None:
    """A gap between scans is refused, at the beginning, in the middle and at the end."""
    data = ENCODERS["zlib-6"](log_lines(1_400_000))
    scans = _scans_of(data, Segmentation(len(data), -(-len(data) // 3)))
    with pytest.raises(DeflateError, match="no scan starts at bit"):
        list(link_segments([scans[number] for number in numbers], len(data)))


def test_bytes_after_the_stream_do_not_link() -> None:
    """Compressed data that the stream does not use gives a finding."""
    data = ENCODERS["zlib-6"](log_lines(35_000)) + b"more"
    with pytest.raises(
        DeflateError, match=r"compressed-trailing-bytes.*ends after \d+ of \d+ compressed bytes"
    ):
        list(link_segments([scan(data, 0, None)], len(data)))


def test_data_changed_after_the_scan_is_refused() -> None:
    """An extraction that does not repeat its scan ends as an error."""
    data = ENCODERS["zlib-6"](log_lines(700_000))
    layout = Segmentation(len(data), len(data) // 3)
    first, second, *_ = link_segments(_scans_of(data, layout), len(data))
    false = second.start_bit - 77
    for wrong in (
        replace(second, length=second.length - 1),
        replace(second, length=second.length + 1),
        replace(first, stop_bit=false, span=segment_span(0, false, len(data))),
    ):
        with pytest.raises(DeflateError, match="size-mismatch"):
            _extract(data, wrong)
    with pytest.raises(DeflateError, match="does not end within"):
        list(inflate_segment(first, [data[:1000]]))
    with pytest.raises(DeflateError, match="corrupt-stream"):
        list(inflate_segment(first, [random.Random(1).randbytes(first.span[1])]))


def test_reading_is_little_more_than_the_stream() -> None:
    """A scan reads its own segment once, and otherwise only where it searches for boundaries."""
    data = ENCODERS["zlib-6"](log_lines(3_500_000))
    layout = Segmentation(len(data), len(data) // 3)
    lengths: list[int] = []

    def read(start: int, stop: int) -> list[bytes]:
        lengths.append(stop - start)
        return [data[start:stop]]

    assert locate(layout, 1, read) is not None
    looking = sum(lengths)
    scan_segment(layout, 1, read)
    assert sum(lengths) < 3 * looking + layout.distance + 100_000


def _boundaries(data: bytes) -> list[int]:
    return [block.start_bit for block in walk(data) if block.kind == DYNAMIC and not block.final]


@settings(max_examples=40, deadline=None)
@given(DATA, ENCODER_NAMES, st.integers(0, 2**32))
def test_first_boundary_is_found(raw: bytes, encoder: str, place: int) -> None:
    """From any byte on, the first non-final dynamic block is found, as a plain reader says."""
    data = ENCODERS[encoder](raw)
    start = place % len(data)
    assert find_boundary(data[start:], len(data) - start, at_end=True) == next(
        (bit - 8 * start for bit in _boundaries(data) if bit >= 8 * start), None
    )


def test_range_is_half_open() -> None:
    """The last byte of a search counts, the one that it stops at does not."""
    data = ENCODERS["zlib-6"](log_lines(490_000))
    bit = _boundaries(data)[1] - 8  # in the data after the first byte
    sizes = (bit // 8, bit // 8 + 1)
    assert [find_boundary(data[1:], size, at_end=True) for size in sizes] == [None, bit]


def test_windows_agree_with_the_whole() -> None:
    """What a search finds does not depend on how much data it was given."""
    data = ENCODERS["zlib-1"](random.Random(2).randbytes(1_200_000).hex().encode())[60_000:]
    whole = find_boundary(data, 70_000, at_end=True)
    assert len(data) > 70_000 + LOOKAHEAD
    window = data[: 70_000 + LOOKAHEAD]
    assert find_boundary(window, 70_000, at_end=False) == whole is not None


def test_stream_within_the_stream_is_not_taken() -> None:
    """Headers of a compressed file held in stored blocks are not boundaries of the outer stream."""
    inner = ENCODERS["zlib-6"](random.Random(3).randbytes(1_000_000).hex().encode())
    data = ENCODERS["zlib-6"](inner + log_lines(280_000))
    assert [block.kind for block in walk(data)].count(STORED) > 20
    outer = next(bit for bit in _boundaries(data) if bit >= 8 * 10_000)
    assert outer > 8 * (len(inner) - 50_000)
    size = len(data) - 10_000
    assert find_boundary(data[10_000:], size, at_end=True) == outer - 8 * 10_000


def test_truncated_stream_has_no_boundary_at_its_end() -> None:
    """Where the data ends in the middle of a block, no header is believed near it."""
    data = ENCODERS["zlib-6"](log_lines(280_000))
    last = _boundaries(data)[-1]
    assert [
        find_boundary(one[last // 8 :], 1, at_end=True) for one in (data[: last // 8 + 500], data)
    ] == [None, last % 8]


def test_locate_asks_for_bounded_spans() -> None:
    """Without any boundary the search reads its whole span, piece by piece, and no more."""
    data = zlib.compressobj(0, zlib.DEFLATED, -15).compress(bytes(4_000_000)).ljust(6_000_000)
    layout = Segmentation(len(data), 3_000_000, search=1_200_000)
    wanted: list[tuple[int, int]] = []

    def read(start: int, stop: int) -> list[bytes]:
        wanted.append((start, stop))
        return [data[start:stop]]

    assert (locate(layout, 1, read), [start for start, _ in wanted]) == (
        None,
        [3_000_000 + READ_BYTES * k for k in range(3)],
    )
    assert all(stop - start <= READ_BYTES + LOOKAHEAD for start, stop in wanted)
    assert wanted[-1][1] == 4_200_000 + LOOKAHEAD


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_searches_never_overlap(size: int, step: int, search: int) -> None:
    """Each search is within its own step, so no two segments find the same boundary."""
    layout = Segmentation(size, step, search)
    for segment in range(1, min(layout.count, 50)):
        start, stop = layout.search_span(segment)
        assert segment * step == start < stop <= min((segment + 1) * step, size)
        assert stop - start <= search
