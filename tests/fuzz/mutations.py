"""Mutations that know where ZIP records are. All chance comes from the `Random` given."""

import re
from collections.abc import Callable
from random import Random

SIGNATURES = (
    b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08",
)  # fmt: skip
# The longest fixed record, the ZIP64 end record, has 56 bytes.
RECORD_LENGTH = 56
VALUES = (0, 1, 2, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
MAX_BYTES = 200_000


Mutation = Callable[[bytearray, list[bytes], Random], None]  # of bytes, and seeds to take from


def _find_records(data: bytes | bytearray) -> list[int]:
    return [found.start() for sign in SIGNATURES for found in re.finditer(re.escape(sign), data)]


def _flip_bit(data: bytearray, others: list[bytes], chance: Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def set_field(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Set a field of some record to a value at the edge of something."""
    records = _find_records(data)
    start = chance.choice(records) if records else chance.randrange(len(data))
    at = start + chance.randrange(4, RECORD_LENGTH)
    length = chance.choice((1, 2, 2, 4, 4, 8))
    value = chance.choice(VALUES) + chance.choice((0, 0, 0, len(data), at))
    data[at : at + length] = (value & (1 << 8 * length) - 1).to_bytes(length, "little")


def nudge_field(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Add or take a little from a 16- or 32-bit field of some record."""
    records = _find_records(data)
    start = chance.choice(records) if records else chance.randrange(len(data))
    at, length = start + chance.randrange(4, RECORD_LENGTH), chance.choice((2, 4))
    value = int.from_bytes(data[at : at + length], "little") + chance.randrange(-40, 41)
    data[at : at + length] = (value & (1 << 8 * length) - 1).to_bytes(length, "little")


def _truncate(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    if chance.random() < 0.5:
        del data[at:]
    else:
        del data[:at]


def _remove(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 40)]


def _repeat(data: bytearray, others: list[bytes], chance: Random) -> None:
    records = _find_records(data) or [0]
    at = chance.choice(records)
    piece = data[at : at + chance.randrange(1, 200)]
    to = chance.choice(records) if chance.random() < 0.5 else chance.randrange(len(data) + 1)
    data[to:to] = piece


def splice(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Put a slice of another seed in, cut at records of both."""
    other = chance.choice(others)
    start = chance.choice([*_find_records(other), 0])
    at = chance.choice([*_find_records(data), len(data)])
    data[at : at + chance.choice((0, 0, 30, 46))] = other[start : start + chance.randrange(1, 400)]


def _overwrite(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    length = chance.randrange(1, 9)
    data[at : at + length] = chance.randbytes(length)


MUTATIONS: tuple[Mutation, ...] = (
    _flip_bit, _flip_bit, set_field, set_field, nudge_field, nudge_field, _truncate, _remove,
    _repeat, splice, _overwrite,
)  # fmt: skip


def mutate(seed: bytes, others: list[bytes], chance: Random) -> bytes:
    """Return `seed` changed by one to six mutations."""
    data = bytearray(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        if not data:
            break
        chance.choice(MUTATIONS)(data, others, chance)
    return bytes(data[:MAX_BYTES])
