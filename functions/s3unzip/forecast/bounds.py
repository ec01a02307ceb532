"""Lower bounds of the tasks' time that hold for every schedule, one for each resource."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.forecast.demand import Job
    from s3unzip.platforms import Platform


class Bound(Struct, frozen=True):
    """The tasks take at least `seconds`, because of `name`."""

    name: str
    seconds: float
    detail: str


def list_bounds(jobs: Sequence[Job], platform: Platform, at_once: int) -> tuple[Bound, ...]:
    """Return the bounds on `jobs`, the highest first."""
    writes = sum(job.writes for job in jobs)
    reads = sum(job.gets for job in jobs)
    floors = [job.floor + job.fixed for job in jobs]
    bounds = [
        Bound("write rate", write_seconds(writes, platform), f"{writes:,} writes on one prefix"),
        Bound("read rate", reads / platform.prefix_reads, f"{reads:,} reads on one prefix"),
        Bound("dispatch", max(0, len(jobs) - 1) / platform.dispatch_rate, f"{len(jobs):,} tasks"),
        Bound("longest task", max(floors, default=0.0), "bandwidth and CPU of one worker"),
        Bound("workers", sum(floors) / max(1, at_once), f"{at_once:,} tasks at once"),
    ]
    return tuple(sorted(bounds, key=lambda bound: -bound.seconds))


def write_seconds(writes: float, platform: Platform) -> float:
    """Return the seconds that `writes` take on a prefix whose rate S3 raises while it throttles."""
    rate, seconds, left = platform.prefix_writes, 0.0, float(writes)
    if math.isinf(rate):
        return 0.0
    while left > rate * platform.growth_seconds:
        left -= rate * platform.growth_seconds
        seconds += platform.growth_seconds
        rate *= 2
    return seconds + left / rate
