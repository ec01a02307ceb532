"""Archives for the harness: one with every kind of task, small enough to be extracted often."""

import random
from functools import lru_cache

from s3unzip.settings import KIB, MIB, Tuning
from tests.support.zips import DEFLATE, Entry, build, log_lines

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

    The large ones are a stream of 2 MiB, a stored copy of 11 MiB and a deflated
    member of 12 MiB that is split; an empty one comes with them. The same
    names have other bytes under another `seed`.
    """
    dice = random.Random(seed)
    words = [f"{dice.getrandbits(40):x}" for _ in range(5_000)]

    def text(size: int) -> bytes:
        return " ".join(dice.choices(words, k=size // 11 + 1)).encode()[:size]

    names = (f"json/{number % 7}/{number:06d}.json" for number in range(small))
    entries = [Entry(name, text(size), DEFLATE) for name in names]
    if large:
        entries += [
            Entry("stream.txt", text(2 * MIB), DEFLATE),
            Entry("stored.bin", dice.randbytes(11 * MIB)),
            Entry("split.log", 12 * log_lines(MIB, seed), DEFLATE),
            Entry("empty"),
        ]
    return build(*entries)
