"""Contents of large members."""

import random
from functools import cache


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
