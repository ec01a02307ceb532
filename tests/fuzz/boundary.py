"""The fuzzer's fourth target: the search for places to split a deflate stream at.

The oracle is zlib. What the segments give may be a refusal, for then the
member is streamed; it may not be other bytes, and nothing may crash.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from random import Random

from s3unzip.deflate import DeflateError
from s3unzip.deflate.segments import split_inflate
from tests.fuzz.mutations import mutate

MAX_OUTPUT = 1 << 24  # bytes; a mutated stream can grow a thousandfold


def run_boundary(data: bytes, chance: Random) -> bool:
    """Split a stream and inflate its segments; return whether that was refused.

    Args:
        data: a stream of somebody else's, taken now and then.
        chance: chooses everything else.
    """
    seeds = boundary_seeds()
    stream = chance.choice(seeds)
    changed = chance.random() < 0.8
    if changed:
        stream = data if chance.random() < 0.02 else _mutate(stream, seeds, chance)
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
def boundary_seeds() -> list[bytes]:
    """Return raw deflate streams of many blocks, by several settings of zlib."""
    return list(_streams())


def _streams() -> Iterator[bytes]:
    dice = Random(9)
    words = [f"{dice.getrandbits(32):x}" for _ in range(400)]
    text = " ".join(dice.choices(words, k=30_000)).encode()
    mixed = text[:60_000] + dice.randbytes(40_000) + text[60_000:160_000] + bytes(50_000)
    for content in (text, mixed):
        for level, memory, strategy in ((1, 8, 0), (6, 1, 0), (9, 3, 0), (6, 2, zlib.Z_FIXED)):
            packer = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
            yield packer.compress(content) + packer.flush()


def _mutate(stream: bytes, seeds: list[bytes], chance: Random) -> bytes:
    """Change a few bytes anywhere, or mutate a piece; most of the stream stays good."""
    if chance.random() < 0.5:
        changed = bytearray(stream)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    start = chance.randrange(len(stream))
    piece = mutate(stream[start : start + 2_000], [seed[:2_000] for seed in seeds], chance)
    return stream[:start] + piece + stream[start + 2_000 :]


def _inflate(stream: bytes) -> bytes | None:
    """Return what zlib makes of a whole stream, None if it is not one."""
    inflater = zlib.decompressobj(-15)
    try:
        output = inflater.decompress(stream, MAX_OUTPUT + 1)
    except zlib.error:
        return None
    return output if inflater.eof or len(output) > MAX_OUTPUT else None
