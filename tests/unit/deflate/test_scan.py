"""Scans: what a segment leaves behind, and whether it arrived where it should."""

import random
import zlib
from functools import cache
from itertools import pairwise
from operator import ne

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3unzip.deflate import (
    WINDOW_SIZE,
    ScannedSegment,
    SegmentRecordError,
    SegmentScan,
    segment_span,
)
from s3unzip.deflate.segments import (
    FIRST_WINDOW,
    PIECE_SIZE,
    SECOND_WINDOW,
    Arrival,
    SegmentInflater,
)
from tests.unit.deflate.blocks import walk
from tests.unit.deflate.streams import DATA, ENCODER_NAMES, ENCODERS, log_lines, mixed


def scan(data: bytes, start: int, stop: int | None, cuts: tuple[int, ...] = ()) -> ScannedSegment:
    """Scan from bit to bit, fed in pieces cut at `cuts`."""
    span = segment_span(start, stop, len(data))
    segment = data[span.start : span.stop]
    places = sorted({0, len(segment), *(cut for cut in cuts if cut < len(segment))})
    work = SegmentScan(start, stop)
    for one, two in pairwise(places):
        work.feed(segment[one:two])
    return work.finish()


@cache
def sample() -> tuple[bytes, bytes]:
    """Return data of all kinds and a stream with many blocks of it."""
    raw = mixed([("words", 6_000), ("noise", 3_000), ("zeros", 4_000), ("echo", 9_000)], 5)
    return raw, ENCODERS["zlib-9-small-blocks"](raw)


def test_windows_name_every_position() -> None:
    """The two made-up windows differ everywhere, and together give the position back."""
    for position, (low, high) in enumerate(zip(FIRST_WINDOW, SECOND_WINDOW, strict=True)):
        assert low != high
        assert low | (high & 0x7F) << 8 == position


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
    assert scanned.arrival.ending == ("final" if stop is None else "boundary")
    assert scanned.arrival.length == end - begin
    window = raw[max(0, begin - WINDOW_SIZE) : begin]
    assert scanned.resolve(window, end) == raw[max(0, end - WINDOW_SIZE) : end]


def test_arrival_is_exact() -> None:
    """Of 4,000 stop bits in a row, just those of block headers are arrived at."""
    _, data = sample()
    headers = {block.start_bit for block in walk(data)}
    middle = 8 * (len(data) // 2)
    for stop in range(middle, middle + 4_000):
        ending = scan(data, 0, stop).arrival.ending
        assert (ending == "boundary") == (stop in headers), stop
        assert ending in {"boundary", "missed"}


def test_stop_in_the_last_block_is_missed() -> None:
    """A false boundary inside the final block is not taken for the stream's end."""
    data = zlib.compress(random.Random(4).randbytes(900).hex().encode(), wbits=-15)
    assert len(walk(data)) == 1
    for stop in range(64, 8 * (len(data) - 2)):
        assert scan(data, 0, stop).arrival.ending == "missed", stop


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 12_000), max_size=30), st.integers(0, 2))
def test_cuts_of_the_input_change_nothing(cuts: set[int], which: int) -> None:
    """With any pieces of input, a scan gives the same value."""
    _, data = sample()
    blocks = walk(data)
    start, stop = [
        (0, blocks[9].start_bit),
        (blocks[4].start_bit, blocks[20].start_bit),
        (blocks[20].start_bit, None),
    ][which]
    assert scan(data, start, stop, tuple(cuts)) == scan(data, start, stop)


def test_extreme_ratio_stays_in_bounded_pieces() -> None:
    """A stream of zeros, 1,000 to 1, comes out in small pieces and scans to its exact length."""
    size = 300_000_000
    encoder = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = b"".join(encoder.compress(bytes(1_000_000)) for _ in range(size // 1_000_000))
    data += encoder.flush()
    work = SegmentInflater(0)
    lengths = [len(piece) for piece in work.feed(data)]
    assert max(lengths) <= PIECE_SIZE
    assert sum(lengths) == size
    assert work.finish()[1].used == len(data)


def test_end_of_the_stream_is_told_to_the_byte() -> None:
    """Bytes after the stream are no part of it, wherever the input is cut."""
    raw, data = sample()
    blocks = walk(data)
    for cuts in ((), (len(data) - 1,), (len(data),), (len(data) + 3,), tuple(range(30_000))):
        arrival = scan(data + b"rubbish", 0, None, cuts).arrival
        assert (arrival.ending, arrival.used) == ("final", len(data))
        assert arrival.length == len(raw)
    early = scan(data + bytes(range(200)), blocks[5].start_bit, 8 * len(data) + 803).arrival
    assert (early.ending, early.used) == ("final", len(data))


def test_truncated_stream_is_a_value() -> None:
    """Input that ends too early gives a finding, with and without a stop."""
    _, data = sample()
    for stop in (None, walk(data)[-1].start_bit):
        work = SegmentScan(0, stop)
        work.feed(data[: len(data) // 2])
        fault = work.finish().arrival.fault
        assert fault is not None
        assert fault.code == "stream-truncated"


def test_corrupt_stream_is_a_value() -> None:
    """Bits that are not deflate give a finding, and later input is ignored."""
    _, data = sample()
    stop = walk(data)[-1].start_bit
    work = SegmentScan(0, stop)
    work.feed(data[:1_000])
    work.feed(random.Random(6).randbytes(-(-stop // 8) - 1_000))
    arrival = work.finish().arrival
    assert arrival.ending == "broken"
    assert arrival.fault is not None
    assert arrival.fault.code == "corrupt-stream"


def test_feeding_past_the_stop_is_refused() -> None:
    """More bytes than the segment has are a mistake of the caller."""
    _, data = sample()
    work = SegmentScan(0, walk(data)[5].start_bit)
    with pytest.raises(ValueError, match="was fed up to"):
        work.feed(data)


@pytest.mark.parametrize(("start", "stop"), [(-1, None), (100, 100), (100, 110), (100, 50)])
def test_no_segment_is_refused(start: int, stop: int | None) -> None:
    """Bits that cannot hold a block are a mistake of the caller."""
    with pytest.raises(ValueError, match="no segment"):
        SegmentScan(start, stop)


def test_second_inflate_is_needed_on_log_lines() -> None:
    """Log lines copy from copies for ever: bytes stay unknown to the end of the segment."""
    raw = log_lines(40_000)
    data = ENCODERS["zlib-9"](raw)
    blocks = walk(data)
    tail = scan(data, blocks[3].start_bit, None)
    assert sum(map(ne, tail.first, tail.second)) > 1_000


def test_tail_is_known_after_noise() -> None:
    """After 32 KiB that copy from nowhere, nothing of the window matters any more."""
    raw = log_lines(20_000) + random.Random(8).randbytes(70_000) + log_lines(3_000)
    data = ENCODERS["zlib-6"](raw)
    tail = scan(data, walk(data)[2].start_bit, None)
    assert tail.first == tail.second
    assert tail.resolve(b"", len(raw)) == raw[-WINDOW_SIZE:]


def test_reference_before_the_beginning_is_an_error() -> None:
    """A tail that copies from before the stream's first byte cannot be resolved."""
    tail = ScannedSegment(8, None, Arrival("final", 3), FIRST_WINDOW, SECOND_WINDOW)
    with pytest.raises(IndexError, match="has no position 32667"):
        tail.resolve(b"x" * 100, 101)
    assert tail.resolve(b"x" * 100, 100) == b"x" * 100


@settings(max_examples=25, deadline=None)
@given(raw=DATA, encoder=ENCODER_NAMES, at=st.integers(0, 40), whole=st.booleans())
def test_scans_survive_their_bytes(*, raw: bytes, encoder: str, at: int, whole: bool) -> None:
    """A scanned segment is the same after a trip through bytes, its faults included."""
    data = ENCODERS[encoder](raw)
    blocks = walk(data)
    block = blocks[at % len(blocks)]
    scanned = scan(data if whole else data[: len(data) - 5], block.start_bit, None)
    packed = scanned.to_bytes()
    assert ScannedSegment.from_bytes(packed) == scanned
    assert len(packed) < 2 * WINDOW_SIZE + 1_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"version": 9}\n',
        b'{"version": 1}\nxx',
        sample()[1],
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Bytes that are no scanned segment end as one clear error."""
    with pytest.raises(SegmentRecordError, match="scanned segment"):
        ScannedSegment.from_bytes(data)


def test_damaged_bytes_are_refused() -> None:
    """A cut or changed tail does not pass for a scan."""
    _, data = sample()
    packed = scan(data, walk(data)[9].start_bit, None).to_bytes()
    for damaged in (packed[:-1], packed[: len(packed) // 2], packed[:-3] + b"abc"):
        with pytest.raises(SegmentRecordError, match="scanned segment"):
            ScannedSegment.from_bytes(damaged)


def test_tails_of_different_lengths_are_no_segment() -> None:
    """The link step compares them byte by byte, so a record with such tails is damaged."""
    arrival = Arrival("final", 3, 4)
    packed = ScannedSegment(0, None, arrival, b"abc", b"ab").to_bytes()
    with pytest.raises(SegmentRecordError, match="differ in length"):
        ScannedSegment.from_bytes(packed)
