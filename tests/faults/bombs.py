"""Archives for the harness: one with every kind of task, and bombs, with what finding out costs."""

import random
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache, partial

from s3unzip import rates
from s3unzip.settings import KIB, MIB, Tuning
from s3unzip.zip import Limits, Policy
from tests.faults.proxy import Record
from tests.support.zips import (
    BZIP2,
    DEFLATE,
    DEFLATE64,
    EOCD,
    LZMA,
    STORED,
    XZ,
    ZSTD,
    Entry,
    Shape,
    build,
    log_lines,
    pack_record,
)

# What an environment might allow: 256 MiB out, 50,000 members.
POLICY = Policy(limits=Limits(members=50_000, total_size=256 * MIB))
WRITES = frozenset({"put", "list", "create", "part", "copy", "complete"})
METHODS = {
    "deflate": DEFLATE, "deflate64": DEFLATE64, "bzip2": BZIP2, "lzma": LZMA, "zstd": ZSTD, "xz": XZ
}  # fmt: skip


def overlap(members: int = 1_000) -> bytes:
    """Return an archive whose members are all the same compressed MiB."""
    first = Entry("0", bytes(MIB), DEFLATE)
    data, at_start = first.stored_data, {"offset": 0}
    others = (
        Entry(f"{n}", first.content, DEFLATE, data=data, present=False, central=at_start)
        for n in range(1, members)
    )
    return build(first, *others)


def quoted_overlap(members: int = 250) -> bytes:
    """Return an archive whose members each hold the next one's header in a stored block.

    The construction of https://www.bamsoftware.com/hacks/zipbomb/, without ZIP64.
    """
    kernel = Entry(f"{members - 1}", bytes(MIB), DEFLATE)
    blob, data = kernel.local_part(), kernel.stored_data
    content = kernel.content
    centrals = [(kernel, len(blob))]
    for number in range(members - 2, -1, -1):
        header = blob[: len(blob) - len(data)]
        data = b"\0" + struct.pack("<HH", len(header), len(header) ^ 0xFFFF) + header + data
        content = header + content
        entry = Entry(f"{number}", content, DEFLATE, data=data)
        blob = entry.local_part()
        centrals.append((entry, len(blob)))
    directory = b"".join(e.central_part(len(blob) - length) for e, length in reversed(centrals))
    end: dict[str, int | bytes] = {
        "signature": b"PK\x05\x06", "disk": 0, "directory_disk": 0, "disk_entries": members,
        "entries": members, "directory_size": len(directory), "directory_offset": len(blob),
        "comment_length": 0,
    }  # fmt: skip
    return blob + directory + pack_record(EOCD, end, {})


def honest(method: int, members: int = 100) -> bytes:
    """Return an archive that says how large it gets: so many times 10 MiB of zeros."""
    data = Entry("0", bytes(10 * MIB), method)
    packed, crc = data.stored_data, zlib.crc32(data.content)
    sizes = {"size": 10 * MIB, "crc32": crc}
    return build(
        *(
            Entry(f"{n}", b"", method, data=packed, local=sizes, central=sizes)
            for n in range(members)
        )
    )


def _lying(method: int, declared: int) -> bytes:
    content = bytes(64 * MIB)
    sizes = {"size": declared, "crc32": zlib.crc32(bytes(declared))}
    return build(Entry("liar", content, method, local=sizes, central=sizes))


def _empty_members(members: int = 70_000) -> bytes:
    return build(*(Entry(f"{n:06d}", b"", STORED) for n in range(members)), shape=Shape(zip64=True))


def cost_of(records: list[Record], seconds: float) -> float:
    """Return the dollars of these requests and of so many seconds of one worker, us-east-1."""
    writes = sum(record.kind in WRITES for record in records)
    return (
        writes * rates.PRICE_S3_WRITE
        + (len(records) - writes) * rates.PRICE_S3_READ
        + seconds * (rates.LAMBDA_VCPU_MB / 1_024) * rates.PRICE_LAMBDA_GB_SECOND
    )


ALL: dict[str, Callable[[], bytes]] = {  # making them takes seconds
    "overlap": overlap,
    "quoted_overlap": quoted_overlap,
    "empty_70000": _empty_members,
    "ratio.bzip2.30": partial(honest, BZIP2, 30),
    **{f"ratio.{name}": partial(honest, method) for name, method in METHODS.items()},
    **{f"lying.small.{name}": partial(_lying, method, 1_000) for name, method in METHODS.items()},
    **{
        f"lying.large.{name}": partial(_lying, method, 100 * KIB)
        for name, method in METHODS.items()
    },
}
SOME = (
    *("overlap", "quoted_overlap", "ratio.deflate", "ratio.bzip2.30"),
    *("lying.small.deflate", "lying.large.zstd"),
)


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
