"""Find where a segment begins: the first header of a dynamic Huffman block after a position.

This is the only module that imports numpy. The search depends only on the compressed data, so two
workers that search for the same boundary get the same result:

1. Test all bit offsets in parallel for BFINAL 0, BTYPE 2, at most 286 literal and 30 distance
   codes, and a complete code-length code. In 1 MiB of random data, about 3,700 candidates pass.
2. For each candidate in order, inflate 16 KiB of the data that begins at the candidate, then
   128 KiB, starting with an arbitrary window. This step uses zlib, because ISA-L accepts incomplete
   literal codes, which most false headers contain.
3. For each remaining candidate, inflate 1 MiB of the data that begins at the candidate. This step
   uses ISA-L for speed. It inflates 1 MiB, because one false candidate still appeared valid after
   64 KiB. The member can also contain the headers of an inner deflate stream, for example of a gzip
   file in a stored block. Such a block holds at most 64 KiB, so 1 MiB of input includes bytes that
   are not valid in the inner stream.

The headers of final blocks are ignored: a segment that began there would contain only one block.
"""

import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from s3unzip.deflate.segments import FIRST_WINDOW, InflateError, Read, Segmentation, align

# Number of bytes that must follow the first byte of a candidate, unless the member ends earlier.
LOOKAHEAD: Final = 1 << 20
READ_BYTES: Final = 1 << 19  # number of bytes that `locate_boundary` searches at a time

_MAX_TRIAL_OUTPUT: Final = 64 << 20  # bytes of output after which a trial counts as passed
_TRIAL_PIECE: Final = 1 << 20  # maximum output of one call, in bytes
_CHUNK_BYTES: Final = 32 << 10  # bytes to test in one step; the arrays for a step need about 6 MB

# Length of the header of a dynamic block, before its code lengths (RFC 1951, 3.2.7): 1 bit for
# BFINAL, 2 for BTYPE, 5 for HLIT, 5 for HDIST and 4 for HCLEN.
_HEADER_BITS: Final = 17
_WORD_BYTES: Final = 8

# The trials for each candidate: the number of bytes of input, and whether zlib is used instead of
# ISA-L. Short trials come first, because most candidates fail them.
_TRIALS: Final = ((16 << 10, True), (128 << 10, True), (LOOKAHEAD, False))


# For each 13-bit value, whether the header of a block can begin with these bits. The fields, from
# the lowest bit, are BFINAL (1 bit), BTYPE (2), HLIT (5) and HDIST (5). The block must be non-final
# with dynamic codes (BFINAL 0, BTYPE 2), and HLIT and HDIST must be at most 29 (RFC 1951, 3.2.7).
_FIRST_BITS: Final = np.arange(1 << 13)
_CAN_BEGIN_HEADER: Final = (
    (_FIRST_BITS & 7 == 0b100) & (_FIRST_BITS >> 3 & 31 <= 29) & (_FIRST_BITS >> 8 & 31 <= 29)
)
# For each value of HCLEN, a mask for the HCLEN + 4 code lengths (3 bits each) after the header.
_LENGTH_MASKS: Final = (1 << 3 * np.arange(4, 20)) - 1
# A 12-bit value consists of four code lengths of 3 bits. For each value, this is the sum of
# 128 / 2**length. A length of 0 means that there is no code, and adds 0 to the sum.
_FOUR_LENGTHS: Final = np.arange(1 << 12)[:, np.newaxis] >> np.array([0, 3, 6, 9]) & 7
_KRAFT: Final = np.where(_FOUR_LENGTHS > 0, 128 >> _FOUR_LENGTHS, 0).sum(axis=1).astype(np.uint16)


def find_boundary(data: bytes, size: int, *, at_end: bool) -> int | None:
    """Return the first boundary in the first `size` bytes of `data`.

    A boundary is the position of the first bit of a block header. Returns None if there is no
    boundary. `at_end` is True if `data` extends to the end of the member's data. Otherwise,
    `LOOKAHEAD` bytes must follow the first `size` bytes.
    """
    for bit in _find_candidates(data, size):
        if all(
            _inflates(data, bit, input_bytes, uses_zlib=uses_zlib, at_end=at_end)
            for input_bytes, uses_zlib in _TRIALS
        ):
            return bit
    return None


def locate_boundary(layout: Segmentation, segment: int, read: Read) -> int | None:
    """Return the position of the first bit of segment number `segment`, which is 1 or higher.

    Returns None if the segment joins the previous segment. Reads at most 1.5 MiB at a time.
    """
    first, search_stop = layout.search_span(segment)
    for start in range(first, search_stop, READ_BYTES):
        stop = min(start + READ_BYTES, search_stop)
        read_stop = min(stop + LOOKAHEAD, layout.size)
        bit = find_boundary(
            b"".join(read(start, read_stop)), stop - start, at_end=read_stop == layout.size
        )
        if bit is not None:
            return 8 * start + bit
    return None


def _find_candidates(data: bytes, size: int) -> Iterator[int]:
    """Yield, in order, the bit offsets in the first `size` bytes where a header can begin."""
    # Three more words are enough for the longest header that begins at the last byte of a chunk.
    padded = data.ljust(size + 3 * _WORD_BYTES, b"\0")
    for start in range(0, size, _CHUNK_BYTES):
        stop = min(start + _CHUNK_BYTES, size)
        for offset in _find_headers(padded[start : stop + 3 * _WORD_BYTES], stop - start):
            yield 8 * start + int(offset)


def _find_headers(chunk: bytes, size: int) -> NDArray[np.int64]:
    """Return the bit offsets of possible headers in the first `size` bytes of `chunk`.

    A header consists of 17 bits: 13 bits that are looked up in `_CAN_BEGIN_HEADER`, and 4 bits of
    HCLEN. Up to 19 code lengths of 3 bits follow.
    """
    # Element i of `words64` contains the 64 bits that begin at byte i of `chunk`.
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(chunk, np.uint8), _WORD_BYTES)
    words64 = np.ascontiguousarray(windows).view("<u8")[:, 0]
    words32 = words64[:size].astype(np.uint32)
    # Test the 13 bits from bit 0 of every byte, then the 13 bits from bit 1 of every byte, and so
    # on. `offsets` has the offsets of the candidates in this order.
    offsets = np.concatenate(
        [8 * np.flatnonzero(_CAN_BEGIN_HEADER[(words32 >> bit) & 0x1FFF]) + bit for bit in range(8)]
    )
    hclen = _read_bits(words64, offsets + _HEADER_BITS - 4) & 15
    code_lengths = _read_bits(words64, offsets + _HEADER_BITS) & _LENGTH_MASKS[hclen]
    # The code-length code is complete if the sum of 128 / 2**length, over all lengths except 0, is
    # 128. The 19 lengths occupy 57 bits in total. `_KRAFT` contains the sum for each group of four
    # lengths, which has 12 bits.
    total = np.zeros(len(offsets), np.uint16)
    for shift in range(0, 60, 12):
        total += _KRAFT[(code_lengths >> shift) & 0xFFF]
    # Sort only the few offsets that have a complete code: sorting all offsets would take almost
    # half of the total time.
    complete: NDArray[np.int64] = np.sort(offsets[total == 128])
    return complete


def _read_bits(words64: NDArray[np.uint64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at least 57 bits from each bit offset, enough for 19 code lengths."""
    shifts = (offsets & 7).view(np.uint64)
    values: NDArray[np.int64] = (words64[offsets >> 3] >> shifts).view(np.int64)
    return values


def _inflates(data: bytes, bit: int, input_bytes: int, *, uses_zlib: bool, at_end: bool) -> bool:
    """Return whether `input_bytes` bytes of `data`, from position `bit`, form a valid stream.

    If `data` ends earlier, the stream must be valid up to the end of `data`. `at_end` has the same
    meaning as in `find_boundary`. zlib rejects more false headers than ISA-L does.
    """
    start = bit // 8
    chunk = align(data[start : start + input_bytes], bit % 8)
    # The stream must end if this trial includes its last bytes, and must not end otherwise.
    must_end = at_end and start + input_bytes >= len(data)
    decompressobj = zlib.decompressobj if uses_zlib else isal_zlib.decompressobj
    # Without a window, a match that refers to earlier output would be an error. The bytes of the
    # window do not matter.
    inflate = decompressobj(-zlib.MAX_WBITS, zdict=FIRST_WINDOW)
    length = 0
    try:
        while length < _MAX_TRIAL_OUTPUT:
            output = inflate.decompress(chunk, _TRIAL_PIECE)
            length += len(output)
            chunk = inflate.unconsumed_tail
            # No more output follows: either the stream has ended, or all input has been used.
            if inflate.eof or (not chunk and len(output) < _TRIAL_PIECE):
                # A stream that ends must end with the last byte of the input.
                return inflate.eof == must_end and not inflate.unused_data
    except (zlib.error, InflateError):
        return False
    return True
