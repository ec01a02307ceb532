"""Data to compress and encoders to compress it with: each makes another kind of blocks."""

import random
import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise

from hypothesis import strategies as st
from isal import isal_zlib

from s3unzip.deflate import (
    ScannedSegment,
    Segmentation,
    inflate_segment,
    link_segments,
    scan_bits,
    scan_segment,
    segment_span,
)

Encoder = Callable[[bytes], bytes]

# Eight non-final dynamic blocks of 91 bits without any output, and the end of a stream.
EMPTY_BLOCKS = bytes.fromhex(
    "04c081000000000010ffd524000e040000000080f8af260170200000000000c47f350980030100000000"
    "20feab49001c080000000000f15f4d02e040000000000088ff6a120007020000000040fc579300381000"
    "00000000e2bf9a"
)
END_OF_STREAM = b"\3\0"

SMALL_BLOCKS = 1  # memLevel: zlib ends a block after 127 symbols


def flushed(data: bytes) -> bytes:
    """Return a raw stream of the data that ends at a whole byte and is not finished."""
    encoder = zlib.compressobj(6, zlib.DEFLATED, -15)
    return encoder.compress(data) + encoder.flush(zlib.Z_FULL_FLUSH)


def _zlib(
    level: int, memory: int = 8, strategy: int = zlib.Z_DEFAULT_STRATEGY, flush_every: int = 0
) -> Encoder:
    def encode(data: bytes) -> bytes:
        encoder = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
        if not flush_every:
            return encoder.compress(data) + encoder.flush()
        output = b""
        for at in range(0, len(data), flush_every):
            mode = zlib.Z_FULL_FLUSH if at // flush_every % 4 == 3 else zlib.Z_SYNC_FLUSH
            output += encoder.compress(data[at : at + flush_every]) + encoder.flush(mode)
        return output + encoder.flush()

    return encode


def _isal(level: int) -> Encoder:
    def encode(data: bytes) -> bytes:
        encoder = isal_zlib.compressobj(level, wbits=-15)
        return encoder.compress(data) + encoder.flush()

    return encode


ENCODERS: dict[str, Encoder] = {
    "zlib-0-stored": _zlib(0),
    "zlib-1": _zlib(1),
    "zlib-6": _zlib(6),
    "zlib-9": _zlib(9),
    "zlib-1-small-blocks": _zlib(1, SMALL_BLOCKS),
    "zlib-9-small-blocks": _zlib(9, SMALL_BLOCKS),
    "zlib-fixed": _zlib(6, strategy=zlib.Z_FIXED),
    "zlib-huffman-only": _zlib(6, 2, zlib.Z_HUFFMAN_ONLY),
    "zlib-rle": _zlib(6, 2, zlib.Z_RLE),
    "pigz-like": _zlib(6, flush_every=9_000),
    "sync-flush-small": _zlib(6, 2, flush_every=700),
    "isal-0": _isal(0),
    "isal-1": _isal(1),
    "isal-2": _isal(2),
    "isal-3": _isal(3),
}


def _words(size: int, rng: random.Random) -> bytes:
    return " ".join(
        rng.choices([rng.randbytes(rng.randrange(2, 9)).hex() for _ in range(300)], k=size // 4 + 1)
    ).encode()[:size]


def mixed(pieces: list[tuple[str, int]], seed: int) -> bytes:
    """Return `pieces` of the kinds words, noise, zeros and echo (of what was there before)."""
    rng = random.Random(seed)
    data = bytearray()
    for kind, size in pieces:
        if kind == "words":
            data += _words(size, rng)
        elif kind == "noise":
            data += rng.randbytes(size)
        elif kind == "zeros":
            data += bytes(size)
        else:
            start = rng.randrange(max(1, len(data)))
            data += data[start : start + size]
    return bytes(data)


# Up to 180 KB of all kinds in turn.
DATA = st.builds(
    mixed,
    st.lists(
        st.tuples(st.sampled_from(["words", "noise", "zeros", "echo"]), st.integers(0, 30_000)),
        max_size=6,
    ),
    st.integers(0, 2**32),
)

ENCODER_NAMES = st.sampled_from(sorted(ENCODERS))


def split_inflate(data: bytes, segments: int) -> bytes:
    """Inflate a raw stream that is cut into about so many segments."""
    layout = Segmentation(len(data), -(-len(data) // segments))

    def read(start: int, stop: int) -> list[bytes]:
        return [data[start:stop]]

    scans = (scan_segment(layout, segment, read) for segment in range(layout.count))
    linked = link_segments(filter(None, scans), layout.size)
    return b"".join(b"".join(inflate_segment(one, read(*one.span))) for one in linked)


def scan(data: bytes, start: int, stop: int | None, cuts: Iterable[int] = ()) -> ScannedSegment:
    """Scan from bit to bit, fed in pieces cut at `cuts`."""
    first, last = segment_span(start, stop, len(data))
    segment = data[first:last]
    places = sorted({0, len(segment), *(cut for cut in cuts if cut < len(segment))})
    return scan_bits(start, stop, (segment[one:two] for one, two in pairwise(places)))
