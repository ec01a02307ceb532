"""A slow, plain reader of deflate blocks (RFC 1951): says where each begins, bit by bit.

The reference for `boundary`. It follows the RFC's text, shares no code with
the package, and keeps no output but its length.
"""

from dataclasses import dataclass

STORED, FIXED, DYNAMIC = 0, 1, 2

_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
_LENGTH_EXTRA = (0,) * 8 + (1,) * 4 + (2,) * 4 + (3,) * 4 + (4,) * 4 + (5,) * 4 + (0,)
_LENGTH_BASE = (
    *(3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115),
    *(131, 163, 195, 227, 258),
)
_FIXED_LENGTHS = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8

Codes = dict[int, int]  # symbols by their codes, each with a 1 before its first bit


@dataclass(frozen=True, slots=True)
class Block:
    """A block: the bit of its header, its type, whether it is the last, its output's place."""

    start_bit: int
    kind: int
    final: bool
    offset: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bit = 0

    def field(self, count: int) -> int:
        start = self.bit >> 3
        value = int.from_bytes(self.data[start : start + 4], "little") >> (self.bit & 7)
        self.bit += count
        if self.bit > 8 * len(self.data):
            raise EOFError("the stream has no end")
        return value & ((1 << count) - 1)

    def symbol(self, codes: Codes) -> int:
        start = self.bit >> 3
        ahead = int.from_bytes(self.data[start : start + 4], "little") >> (self.bit & 7)
        code = 1
        for length in range(1, 16):
            code = code << 1 | ahead & 1
            ahead >>= 1
            if code in codes:
                self.field(length)
                return codes[code]
        raise ValueError("no such code")


def _codes(lengths: list[int]) -> Codes:
    codes: Codes = {}
    code = 0
    for length in range(1, 16):
        for symbol, its_length in enumerate(lengths):
            if its_length == length:
                codes[1 << length | code] = symbol
                code += 1
        code <<= 1
    return codes


def _dynamic_codes(reader: _Reader) -> tuple[Codes, Codes]:
    literals, distances, count = reader.field(5) + 257, reader.field(5) + 1, reader.field(4) + 4
    lengths = [0] * 19
    for symbol in _ORDER[:count]:
        lengths[symbol] = reader.field(3)
    codes = _codes(lengths)
    spelled: list[int] = []
    while len(spelled) < literals + distances:
        symbol = reader.symbol(codes)
        if symbol < 16:
            spelled.append(symbol)
        elif symbol == 16:
            spelled += [spelled[-1]] * (3 + reader.field(2))
        else:
            spelled += [0] * (3 + reader.field(3) if symbol == 17 else 11 + reader.field(7))
    return _codes(spelled[:literals]), _codes(spelled[literals:])


def _skip_symbols(reader: _Reader, literals: Codes, distances: Codes) -> int:
    length = 0
    while (symbol := reader.symbol(literals)) != 256:
        if symbol < 256:
            length += 1
            continue
        length += _LENGTH_BASE[symbol - 257] + reader.field(_LENGTH_EXTRA[symbol - 257])
        reader.field(max(0, reader.symbol(distances) // 2 - 1))
    return length


def walk(data: bytes) -> list[Block]:
    """Return the blocks of a whole raw deflate stream."""
    reader = _Reader(data)
    blocks: list[Block] = []
    offset = 0
    while not blocks or not blocks[-1].final:
        start = reader.bit
        final, kind = bool(reader.field(1)), reader.field(2)
        blocks.append(Block(start, kind, final, offset))
        if kind == STORED:
            reader.bit = (reader.bit + 7) // 8 * 8
            length = reader.field(16)
            assert reader.field(16) == length ^ 0xFFFF
            reader.bit += 8 * length
            offset += length
        elif kind == FIXED:
            offset += _skip_symbols(reader, _codes(_FIXED_LENGTHS), _codes([5] * 30))
        else:
            offset += _skip_symbols(reader, *_dynamic_codes(reader))
    return blocks
