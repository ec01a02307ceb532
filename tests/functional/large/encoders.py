"""Raw deflate streams from several encoders: each cuts its blocks in its own way."""

import random
import zlib
from collections.abc import Callable
from functools import cache

from isal import isal_zlib

Encoder = Callable[[bytes], bytes]


def encode_zlib(level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, memory: int = 8) -> Encoder:
    """Return zlib at a level; level 0 writes stored blocks, `Z_FIXED` fixed ones."""

    def encode(data: bytes) -> bytes:
        stream = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
        return stream.compress(data) + stream.flush()

    return encode


def encode_flushed(data: bytes) -> bytes:
    """Deflate as pigz does: a sync flush each 128 KiB of input."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    output = b""
    for at in range(0, len(data), 128 << 10):
        output += stream.compress(data[at : at + (128 << 10)])
        output += stream.flush(zlib.Z_SYNC_FLUSH)
    return output + stream.flush()


def encode_isal(data: bytes) -> bytes:
    """Deflate by ISA-L."""
    stream = isal_zlib.compressobj(2, isal_zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


@cache
def log_lines(size: int, seed: int = 1) -> bytes:
    """Return log lines: copies reach back over every window for ever."""
    dice = random.Random(seed)
    paths = [f"/api/{dice.getrandbits(20):x}" for _ in range(50)]
    lines = [
        f"2026-01-{dice.randrange(28) + 1:02d} {dice.choice(paths)} {dice.getrandbits(24):06x}\n"
        for _ in range(size // 30)
    ]
    return "".join(lines).encode().ljust(size, b".")[:size]


@cache
def mixed_files(size: int, seed: int = 2) -> bytes:
    """Return stretches of text, of noise, of zeros and of text again."""
    dice = random.Random(seed)
    pieces = bytearray()
    while len(pieces) < size:
        pieces += log_lines(200_000, dice.randrange(4))
        pieces += dice.randbytes(30_000)
        pieces += bytes(20_000)
    return bytes(pieces[:size])
