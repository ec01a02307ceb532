"""Where a segment begins: the first dynamic-Huffman block header after a position.

The only module with numpy. The rule depends on the compressed data alone, so
two workers that look for the same boundary find the same one:

1. Test every bit offset at once: BFINAL 0, BTYPE 2, at most 286 literal and
   30 distance codes, and a code-length code that is complete. About 3,400
   candidates a MiB of random data pass.
2. Inflate 16 KiB, then 128 KiB, from each candidate in order, after an
   arbitrary window. zlib is used, because ISA-L accepts incomplete literal codes, which most false
   headers have.
3. Inflate 1 MiB from the remaining candidates, with ISA-L for speed: one false candidate survived
   64 KiB. This also rejects real headers of a deflate stream that is stored inside the stream:
   a stored block has at most 64 KiB, and the bytes after it do not fit.

Final blocks are ignored: little work remains after one.
"""

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from s3unzip.deflate.alignment import align
from s3unzip.deflate.inflater import InflateError
from s3unzip.deflate.scan import FIRST_WINDOW
from s3unzip.deflate.segmentation import Read, Segmentation, Span

LOOKAHEAD: Final = 1 << 20
"""Bytes that must follow a candidate's first byte, unless the member ends before them."""

READ_BYTES: Final = 1 << 19
"""Bytes that `locate_boundary` searches at a time."""

_MAX_TRIAL_OUTPUT: Final = 64 << 20  # stop a trial after this much output: the header is real
_TRIAL_PIECE: Final = 1 << 20  # most bytes of output of one call
_BLOCK_BYTES: Final = 32 << 10  # tested at once: about 6 MB of arrays

_HEADER_BITS: Final = 17  # BFINAL, BTYPE, HLIT, HDIST, HCLEN (RFC 1951, 3.2.7)
_WORD_BYTES: Final = 8


class _Trial(NamedTuple):
    """One inflate from a candidate."""

    size: int  # bytes of input
    is_strict: bool  # with zlib, not with ISA-L


_TRIALS: Final = (
    _Trial(16 << 10, is_strict=True),
    _Trial(128 << 10, is_strict=True),
    _Trial(LOOKAHEAD, is_strict=False),
)


def _header_table() -> NDArray[np.bool_]:
    """Return, for each value of 13 bits, whether a header may begin with them."""
    values = np.arange(1 << 13)
    table: NDArray[np.bool_] = (
        (values & 7 == 0b100) & (values >> 3 & 31 <= 29) & (values >> 8 & 31 <= 29)
    )
    return table


def _kraft_table() -> NDArray[np.uint16]:
    """Return, for each four code lengths of 3 bits, the sum of 128 / 2**length."""
    values = np.arange(1 << 12)
    total = np.zeros(1 << 12, np.uint16)
    for shift in (0, 3, 6, 9):
        length = values >> shift & 7
        total += np.where(length > 0, 128 >> length, 0).astype(np.uint16)
    return total


_LENGTH_BITS: Final = (1 << 3 * np.arange(4, 20)) - 1
"""For each HCLEN, the bits of the code lengths: 3 to a length, HCLEN + 4 lengths."""
_IS_HEADER: Final = _header_table()
_KRAFT: Final = _kraft_table()


def find_boundary(data: bytes, start_bit: int, stop_bit: int, *, at_end: bool) -> int | None:
    """Return the first boundary from `start_bit` up to, not including, `stop_bit` of `data`.

    `at_end` says that `data` ends with the member's data. If not, `LOOKAHEAD` bytes must follow the
    last byte to try.
    """
    for bit in _candidates(data, start_bit, stop_bit):
        if all(_inflates(data, bit, trial, at_end=at_end) for trial in _TRIALS):
            return bit
    return None


def locate_boundary(layout: Segmentation, segment: int, read: Read) -> int | None:
    """Return the bit where `segment` (from 1) begins, or None: it joins the one before it.

    At most 1.5 MiB are read at a time.
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


def _candidates(data: bytes, start_bit: int, stop_bit: int) -> Iterator[int]:
    """Yield the bits in range where the header's fields make sense, in order."""
    for start in range(start_bit // 8, -(-stop_bit // 8), _BLOCK_BYTES):
        stop = min(start + _BLOCK_BYTES, -(-stop_bit // 8))
        block = data[start : stop + 3 * _WORD_BYTES].ljust(stop - start + 3 * _WORD_BYTES, b"\0")
        for offset in _headers(block, stop - start):
            bit = 8 * start + int(offset)
            if start_bit <= bit < stop_bit:
                yield bit


def _headers(block: bytes, size: int) -> NDArray[np.int64]:
    """Return the bit offsets of possible headers in the first `size` bytes of `block`."""
    octets = np.frombuffer(block, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(octets, _WORD_BYTES)
    words64 = np.ascontiguousarray(windows).view("<u8")[:, 0]  # 64 bits from each byte on
    words32 = words64[:size].astype(np.uint32)
    by_bit = [np.flatnonzero(_IS_HEADER[words32 >> bit & 0x1FFF]) * 8 + bit for bit in range(8)]
    offsets = np.concatenate(by_bit)
    # The code-length code is complete if the sum of 128 / 2**length is 128.
    count = _bits_at(words64, offsets + _HEADER_BITS - 4) & 15  # HCLEN
    lengths = _bits_at(words64, offsets + _HEADER_BITS) & _LENGTH_BITS[count]
    total = np.zeros(len(offsets), np.uint16)
    for shift in range(0, 60, 12):
        total += _KRAFT[lengths >> shift & 0xFFF]
    # Few offsets have a complete code. To sort all of them takes almost half of the time.
    complete: NDArray[np.int64] = np.sort(offsets[total == 128])
    return complete


def _bits_at(words64: NDArray[np.uint64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 57 bits from each bit offset on, and up to 6 more."""
    shifts = (offsets & 7).view(np.uint64)
    values: NDArray[np.int64] = (words64[offsets >> 3] >> shifts).view(np.int64)
    return values


def _inflates(data: bytes, bit: int, trial: _Trial, *, at_end: bool) -> bool:
    """Return whether the trial's bytes inflate, or all up to the end of the member."""
    start = bit // 8
    stop = start + trial.size
    chunk = align(data[start:stop], bit % 8)
    must_end = at_end and stop >= len(data)
    decompressobj = zlib.decompressobj if trial.is_strict else isal_zlib.decompressobj
    inflate = decompressobj(-zlib.MAX_WBITS, zdict=FIRST_WINDOW)
    length = 0
    try:
        while length < _MAX_TRIAL_OUTPUT:
            output = inflate.decompress(chunk, _TRIAL_PIECE)
            length += len(output)
            chunk = inflate.unconsumed_tail
            if inflate.eof or (not chunk and len(output) < _TRIAL_PIECE):
                return inflate.eof == must_end and not inflate.unused_data
    except (zlib.error, InflateError):
        return False
    return True
