"""A discrete-event simulation of one Map: dispatch, environments, workers, and S3's rate.

Tasks are dispatched in order while places are free. Dispatch is limited by the
Map's rate and, where no warm environment is free, by Lambda's. A running task first reads (at its
own speed), then works. All working tasks share the rate of the destination's prefix. When their
demand exceeds the rate, all slow down by the same factor. So one number (the speed of a pool) and
one heap represent any number of tasks. No event belongs to a single member.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.forecast.demand import put_seconds

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from s3unzip.forecast.demand import Job
    from s3unzip.platforms import Platform

FIRST_READS = 3  # at once: outcomes, stop, rows; the archive's first bytes come after them


class Timeline(Struct):
    """When each job was dispatched, had its first bytes, and ended; seconds from the Map's start.

    `freed_by[i]` is the job whose end freed the place that job i took, or -1.
    """

    dispatched: list[float]
    working: list[float]
    ended: list[float]
    freed_by: list[int]
    cold: list[float]  # seconds of cold start
    alone: list[float]  # seconds of work without throttling
    throttled_seconds: float = 0.0  # seconds in which the demand exceeds the prefix's rate
    events: int = 0
    environments: int = 0  # that the Map leaves idle

    @property
    def end(self) -> float:
        """When the last job ended; 0 without jobs."""
        return max(self.ended, default=0.0)


class _Pool(Struct):
    """Working jobs that advance at one common speed, which is 1 without a limit."""

    heap: list[tuple[float, int]] = []  # (progress at which it ends, job)
    progress: float = 0.0
    speed: float = 1.0
    writes: float = 0.0  # demand, requests a second
    reads: float = 0.0

    def next_end(self, now: float) -> float:
        if not self.heap:
            return math.inf
        return now + max(0.0, self.heap[0][0] - self.progress) / self.speed


class Simulation:
    """One simulation of a Map; call `run` once. Equal states of `rng` give equal times.

    So many environments as `warm` says are idle at the start.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        platform: Platform,
        at_once: int,
        rng: random.Random,
        warm: int = 0,
    ) -> None:
        self._jobs = jobs
        self._platform = platform
        self._at_once = max(1, min(at_once, platform.workers))
        self._rng = rng
        count = len(jobs)
        self._line = Timeline(
            [0.0] * count, [0.0] * count, [0.0] * count, [-1] * count, [0.0] * count, [0.0] * count
        )
        self._now = 0.0
        self._next = 0  # job to dispatch
        self._running = 0
        self._warm = warm  # idle warm environments
        self._tokens = platform.burst
        self._tokens_at = 0.0
        self._dispatch_free = 0.0
        self._last_ended = -1
        self._starting: list[tuple[float, int]] = []
        self._small = _Pool()  # batches: all PUTs
        self._large = _Pool()  # all others: few long requests
        self._rate = platform.prefix_writes
        self._until_growth = platform.growth_seconds
        self._throttled = False

    def run(self) -> Timeline:
        """Return the times of all events."""
        while True:
            dispatch = self._next_dispatch()
            starting = self._starting[0][0] if self._starting else math.inf
            small, large = self._small.next_end(self._now), self._large.next_end(self._now)
            growth = self._now + self._until_growth if self._throttled else math.inf
            at = min(dispatch, starting, small, large, growth)
            if math.isinf(at):
                self._line.environments = self._warm
                return self._line
            self._line.events += 1
            self._advance(at)
            if at == small:
                self._end(self._small)
            elif at == large:
                self._end(self._large)
            elif at == starting:
                self._begin()
            elif at == dispatch:
                self._dispatch()
            else:
                self._grow()

    def _next_dispatch(self) -> float:
        if self._next >= len(self._jobs) or self._running >= self._at_once:
            return math.inf
        at = max(self._now, self._dispatch_free)
        if self._warm or math.isinf(self._tokens):
            return at
        missing = 1.0 - self._tokens
        return at if missing <= 0 else max(at, self._tokens_at + missing / self._platform.refill)

    def _advance(self, at: float) -> None:
        elapsed = at - self._now
        self._now = at
        self._small.progress += elapsed * self._small.speed
        self._large.progress += elapsed * self._large.speed
        if self._throttled:
            self._line.throttled_seconds += elapsed
            self._until_growth -= elapsed

    def _dispatch(self) -> None:
        platform, line, job = self._platform, self._line, self._next
        self._next += 1
        self._running += 1
        self._dispatch_free = self._now + 1.0 / platform.dispatch_rate
        line.dispatched[job] = self._now
        line.freed_by[job] = self._last_ended
        cold = 0.0
        if self._warm:
            self._warm -= 1
        else:
            self._take_token()
            if platform.cold_start is not None:
                cold = platform.cold_start.quantile(self._share())
        line.cold[job] = cold
        # The slowest of reads at once: a quantile grows with its share.
        reading = platform.get.quantile(max(self._share() for _ in range(FIRST_READS)))
        reading += platform.get.quantile(self._share())
        heapq.heappush(self._starting, (self._now + cold + reading, job))

    def _take_token(self) -> None:
        platform = self._platform
        if math.isinf(self._tokens):
            return
        refilled = self._tokens + (self._now - self._tokens_at) * platform.refill
        self._tokens = min(platform.burst, refilled) - 1.0
        self._tokens_at = self._now

    def _begin(self) -> None:
        _, index = heapq.heappop(self._starting)
        job = self._jobs[index]
        alone = max(job.floor, put_seconds(job, self._platform, self._rng)) + job.fixed
        alone = max(alone, 1e-6)
        self._line.working[index] = self._now
        self._line.alone[index] = alone
        pool = self._pool_of(job)
        pool.writes += job.writes / alone
        pool.reads += job.gets / alone
        heapq.heappush(pool.heap, (pool.progress + alone, index))
        self._share_rate()

    def _end(self, pool: _Pool) -> None:
        _, index = heapq.heappop(pool.heap)
        job, alone = self._jobs[index], self._line.alone[index]
        pool.writes -= job.writes / alone
        pool.reads -= job.gets / alone
        if not pool.heap:  # removes rounding errors
            pool.writes = pool.reads = pool.progress = 0.0
        # The outcomes are written last, before the place is free.
        self._line.ended[index] = self._now
        self._running -= 1
        self._warm += 1
        self._last_ended = index
        self._share_rate()

    def _grow(self) -> None:
        self._rate *= 2
        self._until_growth = self._platform.growth_seconds
        self._share_rate()

    def _share_rate(self) -> None:
        """Set the pools' speeds: large jobs get up to half of the rate, batches the rest."""
        small, large, platform = self._small, self._large, self._platform
        asked = small.writes + large.writes
        self._throttled = asked > self._rate
        if self._throttled:
            rate = self._rate * platform.efficiency
            given = min(large.writes, max(rate / 2, rate - small.writes))
            large.speed = given / large.writes if large.writes > 0 else 1.0
            small.speed = min(1.0, (rate - given) / small.writes) if small.writes > 0 else 1.0
        else:
            small.speed = large.speed = 1.0
        reads = small.reads * small.speed + large.reads * large.speed
        if reads > platform.prefix_reads:
            slower = platform.prefix_reads / reads
            small.speed *= slower
            large.speed *= slower

    def _pool_of(self, job: Job) -> _Pool:
        return self._small if job.members else self._large

    def _share(self) -> float:
        """Draw a number between 0 and 1, never 0 or 1."""
        return self._rng.random() * 0.999_998 + 1e-6
