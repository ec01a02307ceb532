"""Start and stop an inflate in the middle of a byte.

zlib and ISA-L begin at bit 0 of a byte and report no bit position. Extra deflate blocks before and
after the segment's bits remove both limits (RFC 1951, section 3.2).

Within a byte, bit 0 is the lowest. Huffman codes go in from their highest bit. Here bits are texts
of 0 and 1, the first bit first.
"""

from typing import Final

SENTINEL_TEXT: Final = b"s3unzip!"
"""The output of the sentinel block."""


def _field(value: int, length: int) -> str:
    """Return a header field: lowest bit first (RFC 1951, 3.1.1)."""
    return _code(value, length)[::-1]


def _code(value: int, length: int) -> str:
    """Return a Huffman code: highest bit first."""
    return f"{value:0{length}b}"


_END_OF_FIXED_BLOCK = _code(0, 7)
_EMPTY_FIXED_BLOCK = _field(0b010, 3) + _END_OF_FIXED_BLOCK


def _empty_dynamic_block() -> str:
    """Return an empty non-final dynamic block: 91 bits, an odd number.

    The code-length code has two symbols of one bit each, 1 (code 0) and 18 (code 1). They spell two
    literal/length codes of one bit, for 0 and for end-of-block, and one distance code of one bit,
    which every inflate accepts although it is incomplete.
    """
    lengths = [0] * 18  # 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1, the order of 3.2.7
    lengths[2] = lengths[17] = 1
    bits = _field(0b100, 3) + _field(0, 5) + _field(0, 5) + _field(len(lengths) - 4, 4)
    bits += "".join(_field(length, 3) for length in lengths)
    bits += "0"  # symbol 0
    bits += "1" + _field(138 - 11, 7) + "1" + _field(117 - 11, 7)  # symbols 1 to 255
    bits += "0"  # symbol 256, end of block
    bits += "0"  # distance 0
    return bits + "1"  # end of block: the second code of the two


def _lead_in(bit: int) -> tuple[int, int]:
    """Return the fewest empty blocks whose length is `bit` modulo 8, as a number, and its bits."""
    blocks = ""
    if bit % 2:
        blocks = _empty_dynamic_block()
    while len(blocks) % 8 != bit:
        blocks += _EMPTY_FIXED_BLOCK  # 10 bits: two more, modulo 8
    return int(f"0{blocks[::-1]}", 2), len(blocks)


_LEAD_INS: Final = tuple(map(_lead_in, range(8)))
# A final fixed block that holds `SENTINEL_TEXT`: 74 bits. Literals 0 to 143: 3.2.6.
_SENTINEL: Final = (
    _field(0b011, 3)
    + "".join(_code(0x30 + byte, 8) for byte in SENTINEL_TEXT)
    + _END_OF_FIXED_BLOCK
)


def align(data: bytes, bit: int) -> bytes:
    """Return a byte-aligned stream for a stream that begins `bit` bits into ``data[0]``.

    Empty blocks precede it. Their total length is `bit` modulo 8, so every later byte keeps its
    position; a shift would break stored blocks, which begin at whole bytes. The last bits of these
    blocks replace the low bits of ``data[0]``, which belong to the segment before. At most 15 bytes
    are added.
    """
    if not bit:
        return data
    blocks, length = _LEAD_INS[bit]
    whole_bytes = length // 8
    shared_byte = blocks >> 8 * whole_bytes | data[0] >> bit << bit
    lead_in = blocks & (1 << 8 * whole_bytes) - 1
    return lead_in.to_bytes(whole_bytes, "little") + bytes((shared_byte,)) + data[1:]


def seal(last: bytes, bit: int) -> bytes:
    """Return the end of a stream that is cut at a bit, with the sentinel block after the cut.

    An inflate that stands at a block header at the cut reads the sentinel block, and ends with
    `SENTINEL_TEXT`. In practice no other inflate does.

    Args:
        last: the byte that holds the cut; empty if the cut lies between two bytes.
        bit: number of low bits of that byte before the cut.
    """
    low_bits = int.from_bytes(last, "little") & (1 << bit) - 1
    sealed = low_bits | int(_SENTINEL[::-1], 2) << bit
    return sealed.to_bytes((bit + len(_SENTINEL) + 7) // 8, "little")
