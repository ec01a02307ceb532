"""Archives for the harness: one with every kind of task, small enough to be extracted often."""

import io
import random
import zipfile
from functools import lru_cache

from s3unzip.settings import KIB, MIB, Tuning

PREFIX = "archive/"  # of every key: the archive's stem

# Sizes at which a few MiB make batches, streams, a copy and a split member.
TUNING = Tuning(
    small_member=64 * KIB,
    copy_from=5 * MIB,
    split_from=1 * MIB,
    segment_bytes=768 * KIB,
    batch_members=40,
    part_bytes=5 * MIB,
    copy_part_bytes=5 * MIB,
    read_piece=256 * KIB,
    batch_min_seconds=0.001,
    max_workers=8,
)


@lru_cache(maxsize=8)
def make_archive(
    *, small: int = 400, seed: int = 1, large: bool = True, size: int = 1_500
) -> bytes:
    """Return an archive of `small` members of about `size` bytes, and of some large ones.

    The large ones are a stream of 2 MiB, a stored copy of 6 MiB and a deflated
    member of 12 MiB that is split; an empty one comes with them. The same
    names have other bytes under another `seed`.
    """
    dice = random.Random(seed)
    words = [f"{dice.getrandbits(40):x}" for _ in range(5_000)]
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for number in range(small):
            name = f"json/{number % 7}/{number:06d}.json"
            archive.writestr(_info(name), _text(dice, words, size))
        if large:
            archive.writestr(_info("stream.txt"), _text(dice, words, 2 * MIB))
            stored = _info("stored.bin")
            stored.compress_type = zipfile.ZIP_STORED
            archive.writestr(stored, dice.randbytes(6 * MIB))
            archive.writestr(_info("split.log"), _log(dice, 12 * MIB))
            archive.writestr(_info("empty"), b"")
    return raw.getvalue()


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (2024, 1, 2, 3, 4, 6))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _text(dice: random.Random, words: list[str], size: int) -> bytes:
    text = " ".join(dice.choices(words, k=size // 11 + 1))
    return text.encode()[:size]


def _log(dice: random.Random, size: int) -> bytes:
    lines = [
        f"2026-01-02T03:04:{n % 60:02d}Z host-{n % 97} GET /a/{dice.getrandbits(24):06x} 200\n"
        for n in range(20_000)
    ]
    block = "".join(lines).encode()
    shifted = []
    for _ in range(size // len(block) + 1):
        dice.shuffle(lines)
        shifted.append("".join(lines).encode())
    return b"".join(shifted)[:size]
