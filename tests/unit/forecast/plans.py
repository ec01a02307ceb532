"""Plans and platforms for the forecast's tests: small, and easy to reckon by hand."""

from __future__ import annotations

import math

from msgspec.structs import replace

from s3unzip.forecast import Latency, Platform, local
from s3unzip.model import Task, TaskKind

MB = 1_000_000
STEADY = Latency(0.02, 0.02)  # no chance in it


def batch(number: int, members: int = 100, size: int = MB, read: int = MB) -> Task:
    """Return a batch of `members` that reads `read` bytes and writes `size`."""
    return Task(
        id=f"batch-{number:07d}",
        kind=TaskKind.BATCH,
        rows=(number * 10_000, (number + 1) * 10_000),
        members=members,
        span=(number * read, (number + 1) * read),
        size=size,
        seconds=1.0,
    )


def large(kind: TaskKind, number: int, size: int, part: int = 0, parts: int = 1) -> Task:
    """Return one large member, or one slice of it."""
    return Task(
        id=f"{kind.value}-{number:08d}-{part:04d}",
        kind=kind,
        rows=(number * 100, (number + 1) * 100),
        members=1,
        span=(0, size),
        size=size,
        seconds=1.0,
        part=part,
        parts=parts,
    )


def steady(workers: int = 4, **changes: float) -> Platform:
    """Return one machine without chance, without limits but those of `changes`."""
    plain = replace(
        local(workers=workers, put=STEADY, bandwidth=math.inf),
        member_seconds=1e-6,
        inflate_rate=math.inf,
    )
    return replace(plain, **changes)
