"""The fuzzer's fourth target: the search for places to split a deflate stream at.

The oracle is zlib. What the segments give may be a refusal, for then the
member is streamed; it may not be other bytes, and nothing may crash.
"""

import zlib
from functools import cache
from random import Random

from s3unzip.deflate import DeflateError, split_inflate
from tests.fuzz.mutations import mutate
from tests.support.streams import ENCODERS, mixed

MAX_OUTPUT = 1 << 24  # bytes; a mutated stream can grow a thousandfold


def run_boundary(data: bytes, chance: Random) -> bool:
    """Split a stream and inflate its segments; return whether that was refused.

    Args:
        data: a stream of somebody else's, taken now and then.
        chance: chooses everything else.
    """
    stream = chance.choice(_seeds())
    changed = chance.random() < 0.8
    if changed:
        stream = data if chance.random() < 0.02 else _mutate(stream, chance)
    whole = _inflate(stream) if stream else None
    if not stream or (whole is not None and len(whole) > MAX_OUTPUT):
        return True
    try:
        output, crc = split_inflate(stream, chance.randint(1, 6))
    except DeflateError:
        assert changed or whole is None, "a good stream was refused"
        return True
    assert crc == zlib.crc32(output)
    assert whole is None or output == whole
    return False


@cache
def _seeds() -> list[bytes]:
    names = ("zlib-1", "zlib-9-small-blocks", "zlib-fixed", "zlib-6", "isal-2")
    content = mixed([("words", 60_000), ("noise", 40_000), ("words", 90_000), ("zeros", 50_000)], 9)
    return [ENCODERS[name](content) for name in names]


def _mutate(stream: bytes, chance: Random) -> bytes:
    """Change a few bits anywhere, or mutate a piece; most of the stream stays good."""
    if chance.random() < 0.5:
        changed = bytearray(stream)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    start = chance.randrange(len(stream))
    piece = mutate(stream[start : start + 2_000], [seed[:2_000] for seed in _seeds()], chance)
    return stream[:start] + piece + stream[start + 2_000 :]


def _inflate(stream: bytes) -> bytes | None:
    inflater = zlib.decompressobj(-15)
    try:
        output = inflater.decompress(stream, MAX_OUTPUT + 1)
    except zlib.error:
        return None
    return output if inflater.eof or len(output) > MAX_OUTPUT else None
