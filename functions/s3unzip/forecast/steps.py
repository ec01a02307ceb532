"""Steps of a simulated run's critical path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import random

    from s3unzip.platforms import Latency, Platform


class Step(Struct, frozen=True):
    """One stretch of the critical path, in seconds."""

    name: str
    seconds: float
    detail: str = ""


def draw_cold_start(platform: Platform, rng: random.Random) -> float:
    """Return the seconds of one cold start, 0 if the platform has none."""
    if platform.cold_start is None:
        return 0.0
    return platform.cold_start.quantile(rng.random() * 0.98 + 0.01)


def calls_seconds(latency: Latency, count: int, at_once: int) -> float:
    """Return the seconds of `count` calls, `at_once` at a time.

    Like `demand.put_seconds`: all calls but the last of each lane share the lanes evenly, and the
    slowest of the last calls ends it.
    """
    lanes = min(count, at_once)
    if not lanes:
        return 0.0
    return (count - lanes) / lanes * latency.mean + last_of(latency, lanes)


def last_of(latency: Latency, calls: int) -> float:
    """Return the seconds of the slowest of some calls at once: the median of that maximum."""
    return latency.quantile(0.5 ** (1 / calls))
