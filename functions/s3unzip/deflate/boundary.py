"""Find where a segment begins: the first header of a dynamic Huffman block after a position.

This is the only module with numpy. The rule depends on the compressed data alone, so two workers
that search for the same boundary find the same one:

1. Test all bit offsets at once: BFINAL 0, BTYPE 2, at most 286 literal and 30 distance codes, and
   a complete code-length code. In a MiB of random data about 3,400 candidates pass.
2. Inflate 16 KiB, then 128 KiB, from each candidate in order, after an arbitrary window. zlib is
   used, because ISA-L accepts incomplete literal codes, which most false headers have.
3. Inflate 1 MiB from the remaining candidates, with ISA-L for speed: one false candidate survived
   64 KiB. This also rejects real headers of a deflate stream that is stored inside the stream:
   a stored block has at most 64 KiB, and the bytes after it are not valid there.

Final blocks are ignored: little work remains after one.
"""

import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from s3unzip.deflate.segments import FIRST_WINDOW, InflateError, Read, Segmentation, Span, align

# Bytes that must follow a candidate's first byte, unless the member ends before them.
LOOKAHEAD: Final = 1 << 20
READ_BYTES: Final = 1 << 19  # bytes that `locate_boundary` searches at a time

_MAX_TRIAL_OUTPUT: Final = 64 << 20  # stop a trial after this much output: the header is real
_TRIAL_PIECE: Final = 1 << 20  # maximum number of bytes of output of one call
_BLOCK_BYTES: Final = 32 << 10  # tested at once, with about 6 MB of arrays

_HEADER_BITS: Final = 17  # BFINAL, BTYPE, HLIT, HDIST, HCLEN (RFC 1951, 3.2.7)
_WORD_BYTES: Final = 8

# The trials of a candidate: bytes of input, and whether zlib is used (otherwise ISA-L).
_TRIALS: Final = ((16 << 10, True), (128 << 10, True), (LOOKAHEAD, False))


def _header_table() -> NDArray[np.bool_]:
    """Return, for each value of 13 bits, whether the header of a block may begin with these bits.

    The block is not the final one and has dynamic codes (BFINAL 0, BTYPE 2). HLIT and HDIST are at
    most 29 (RFC 1951, 3.2.7).
    """
    # From the lowest bit: BFINAL (1 bit), BTYPE (2), HLIT (5), HDIST (5).
    values = np.arange(1 << 13)
    table: NDArray[np.bool_] = (
        (values & 7 == 0b100) & (values >> 3 & 31 <= 29) & (values >> 8 & 31 <= 29)
    )
    return table


def _kraft_table() -> NDArray[np.uint16]:
    """Return, for each value of four code lengths of 3 bits, the sum of 128 / 2**length.

    A length of 0 stands for no code, and adds 0.
    """
    values = np.arange(1 << 12)
    total = np.zeros(1 << 12, np.uint16)
    for shift in (0, 3, 6, 9):
        length = values >> shift & 7
        total += np.where(length > 0, 128 >> length, 0).astype(np.uint16)
    return total


# For each HCLEN a mask of its HCLEN + 4 code lengths, which have 3 bits each.
_LENGTH_MASKS: Final = (1 << 3 * np.arange(4, 20)) - 1
_IS_HEADER: Final = _header_table()
_KRAFT: Final = _kraft_table()


def find_boundary(data: bytes, start_bit: int, stop_bit: int, *, at_end: bool) -> int | None:
    """Return the first boundary from `start_bit` up to, not including, `stop_bit` of `data`.

    `at_end` says whether `data` ends with the member's data. If it is False, `LOOKAHEAD` bytes must
    follow the last byte to try.
    """
    for bit in _find_candidates(data, start_bit, stop_bit):
        if all(
            _inflates(data, bit, size, is_strict=is_strict, at_end=at_end)
            for size, is_strict in _TRIALS
        ):
            return bit
    return None


def locate_boundary(layout: Segmentation, segment: int, read: Read) -> int | None:
    """Return the bit where `segment` (1 or higher) begins, or None if it joins the previous one.

    Reads at most 1.5 MiB at a time.
    """
    search = layout.search_span(segment)
    for start in range(search.start, search.stop, READ_BYTES):
        stop = min(start + READ_BYTES, search.stop)
        span = Span(start, min(stop + LOOKAHEAD, layout.size))
        data = b"".join(read(span))
        bit = find_boundary(data, 0, 8 * (stop - start), at_end=span.stop == layout.size)
        if bit is not None:
            return 8 * start + bit
    return None


def _find_candidates(data: bytes, start_bit: int, stop_bit: int) -> Iterator[int]:
    """Yield, in order, the bits in the range at which a header with valid fields may begin."""
    last_stop = -(-stop_bit // 8)  # in bytes, rounded up
    for start in range(start_bit // 8, last_stop, _BLOCK_BYTES):
        stop = min(start + _BLOCK_BYTES, last_stop)
        # Three more words, so that the longest header can be read from the last byte.
        block = data[start : stop + 3 * _WORD_BYTES].ljust(stop - start + 3 * _WORD_BYTES, b"\0")
        for offset in _find_headers(block, stop - start):
            bit = 8 * start + int(offset)
            if start_bit <= bit < stop_bit:
                yield bit


def _find_headers(block: bytes, size: int) -> NDArray[np.int64]:
    """Return the bit offsets of possible headers in the first `size` bytes of `block`."""
    octets = np.frombuffer(block, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(octets, _WORD_BYTES)
    words64 = np.ascontiguousarray(windows).view("<u8")[:, 0]  # 64 bits, beginning at each byte
    words32 = words64[:size].astype(np.uint32)
    # All offsets with bit 0 of a byte, then all with bit 1, and so on.
    offsets = np.concatenate(
        [np.flatnonzero(_IS_HEADER[words32 >> bit & 0x1FFF]) * 8 + bit for bit in range(8)]
    )
    # HCLEN is the last 4 bits of the header; the code lengths follow it.
    hclen = _read_bits(words64, offsets + _HEADER_BITS - 4) & 15
    lengths = _read_bits(words64, offsets + _HEADER_BITS) & _LENGTH_MASKS[hclen]
    # The code-length code is complete if the sum of 128 / 2**length is 128. The 19 lengths have 57
    # bits; the table adds four lengths at a time.
    total = np.zeros(len(offsets), np.uint16)
    for shift in range(0, 60, 12):
        total += _KRAFT[lengths >> shift & 0xFFF]
    # Few offsets have a complete code. Sorting all offsets would take almost half of the time.
    complete: NDArray[np.int64] = np.sort(offsets[total == 128])
    return complete


def _read_bits(words64: NDArray[np.uint64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at least the 57 bits after each bit offset: 19 code lengths have 57 bits."""
    shifts = (offsets & 7).view(np.uint64)
    values: NDArray[np.int64] = (words64[offsets >> 3] >> shifts).view(np.int64)
    return values


def _inflates(data: bytes, bit: int, size: int, *, is_strict: bool, at_end: bool) -> bool:
    """Return whether the next `size` bytes, or all bytes up to the member's end, are valid."""
    start = bit // 8
    chunk = align(data[start : start + size], bit % 8)
    # The stream must end exactly if its last bytes are in this trial.
    must_end = at_end and start + size >= len(data)
    decompressobj = zlib.decompressobj if is_strict else isal_zlib.decompressobj
    inflate = decompressobj(-zlib.MAX_WBITS, zdict=FIRST_WINDOW)
    length = 0
    try:
        while length < _MAX_TRIAL_OUTPUT:
            output = inflate.decompress(chunk, _TRIAL_PIECE)
            length += len(output)
            chunk = inflate.unconsumed_tail
            # The stream has ended, or the input was used up and all output was returned.
            if inflate.eof or (not chunk and len(output) < _TRIAL_PIECE):
                return inflate.eof == must_end and not inflate.unused_data
    except (zlib.error, InflateError):
        return False
    return True
