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

Codes = dict[str, int]  # symbols by the bits of their codes


@dataclass(frozen=True, slots=True)
class Block:
    """A block: the bit of its header, whether it is the last, its type, its output's place."""

    start_bit: int
    final: bool
    kind: int
    offset: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.bits = "".join(f"{byte:08b}"[::-1] for byte in data)  # as they come in the stream
        self.bit = 0

    def field(self, count: int) -> int:
        start = self.bit
        self.bit += count
        return int(self.bits[start : self.bit][::-1] or "0", 2)

    def symbol(self, codes: Codes) -> int:
        for stop in range(self.bit + 1, self.bit + 16):
            code = self.bits[self.bit : stop]
            if code in codes:
                self.bit = stop
                return codes[code]
        raise ValueError("no such code")


def _codes(lengths: list[int]) -> Codes:
    codes: Codes = {}
    code = 0  # of 15 bits, of which the first ones count
    for length, symbol in sorted((used, symbol) for symbol, used in enumerate(lengths) if used):
        codes[f"{code:015b}"[:length]] = symbol
        code += 1 << 15 - length
    return codes


def _dynamic_codes(reader: _Reader) -> tuple[Codes, Codes]:
    literals, distances, count = reader.field(5) + 257, reader.field(5) + 1, reader.field(4) + 4
    lengths = {symbol: reader.field(3) for symbol in _ORDER[:count]}
    codes = _codes([lengths.get(symbol, 0) for symbol in range(19)])
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
        else:
            length += _LENGTH_BASE[symbol - 257] + reader.field(_LENGTH_EXTRA[symbol - 257])
            reader.field(max(0, reader.symbol(distances) // 2 - 1))
    return length


def walk(data: bytes) -> list[Block]:
    """Return the blocks of a whole raw deflate stream."""
    reader = _Reader(data)
    blocks: list[Block] = []
    offset = 0
    while not blocks or not blocks[-1].final:
        block = Block(reader.bit, bool(reader.field(1)), reader.field(2), offset)
        blocks.append(block)
        if block.kind == STORED:
            reader.bit = (reader.bit + 7) // 8 * 8
            length = reader.field(16)
            reader.bit += 16 + 8 * length  # the complement of the length comes first
            offset += length
        elif block.kind == FIXED:
            offset += _skip_symbols(reader, _codes(_FIXED_LENGTHS), _codes([5] * 30))
        else:
            offset += _skip_symbols(reader, *_dynamic_codes(reader))
    return blocks
