"""Shares: how many workers each run has while several runs need them, and who waits.

A run wants workers, and its small members ask for a part of the request rate of the destination.
Workers are shared by max-min fairness: first between tenants, then between the runs of a tenant.
No run gets more than it wants, and each run that was admitted has at least one worker. A run waits
while the admitted runs leave no room for a useful minimum of workers. Nothing here reads or writes.

Shares are advice. Lambda's own limit of concurrency is what holds: a share that is out of date
costs a few refused invocations, which are tried again, and never a task.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MIN_WORKERS = 8  # of an admitted run that wants so many; fewer if the environment has few
MIN_RUNS = 4  # that an environment admits at once, if each can have a worker
# While a run starts, ends and reports, its workers are free: so long, in seconds.
STEPS_SECONDS = 1.5
MAP_SECONDS = 8.5  # with the start and the end of a Distributed Map
MIN_BUSY = 0.25  # so that at most four times the workers are asked for, whatever a forecast says
INLINE_TASKS = 40  # an inline Map has at most so many, and neither start nor end
# Admitted runs may ask for so many times the rate of one prefix. Calls then take so many times
# their time. At 60 times, a batch of 4,000 members would no longer end within a worker's limit.
MAX_LOAD = 10.0


class Bid(Struct, frozen=True):
    """A run that has workers or waits for them."""

    run: str  # the name of its execution
    tenant: str = ""  # what names it; empty if the environment has no tenants
    workers: int = 1  # wanted
    load: float = 0.0  # with these workers: requests a second / the rate of one prefix
    busy: float = 1.0  # with these workers: the part of its time in which it needs them
    order: float = 0.0  # Unix seconds: the archive's time; among the waiting, the earliest is first

    @property
    def load_of_one(self) -> float:
        """The load of one of its workers."""
        return self.load / self.workers

    def busy_with(self, workers: int) -> float:
        """Return the part of its time in which it needs its workers if it has so many.

        Fewer workers take longer for the same tasks, and its start and its end stay as they are.
        """
        if self.busy >= 1:
            return 1.0
        work = self.busy / (1 - self.busy) * self.workers / workers  # in times of start and end
        return work / (work + 1)


def share_workers(workers: int, bids: Sequence[Bid]) -> dict[str, int]:
    """Return the workers of each admitted run, at least one.

    Args:
        workers: of the environment.
        bids: of the admitted runs.
    """
    tenants: dict[str, list[Bid]] = {}
    for bid in bids:
        tenants.setdefault(bid.tenant, []).append(bid)
    wanted = {name: sum(bid.workers for bid in own) for name, own in tenants.items()}
    shares: dict[str, int] = {}
    for name, room in fill(workers, wanted).items():
        shares |= fill(room, {bid.run: bid.workers for bid in tenants[name]})
    level = _level({bid.run: bid.load_of_one * max(1, shares[bid.run]) for bid in bids}, MAX_LOAD)
    return {
        bid.run: min(
            max(shares[bid.run], min_workers(workers, bid)),
            max(1, _within(level, bid.load_of_one)),
        )
        for bid in bids
    }


def busy_part(tasks: int, seconds: float, workers: int) -> float:
    """Return the part of a run's time in which it needs its workers.

    Args:
        tasks: of the plan.
        seconds: forecast of all tasks together.
        workers: of the run.
    """
    work = seconds / max(1, workers)
    around = STEPS_SECONDS if tasks <= INLINE_TASKS else MAP_SECONDS
    return max(MIN_BUSY, work / (work + around))


def fill(total: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share `total` by max-min fairness: nobody gets more than wanted, the rest is even."""
    given: dict[str, int] = {}
    left, takers = total, len(wanted)
    for name in sorted(wanted, key=lambda one: (wanted[one], one)):
        given[name] = min(wanted[name], left // takers)
        left -= given[name]
        takers -= 1
    return given


def _level(loads: Mapping[str, float], limit: float) -> float:
    """Return the load to which the greatest loads are cut so that all together are `limit`."""
    left, takers = limit, len(loads)
    for load in sorted(loads.values()):
        if load * takers > left:
            return left / takers
        left -= load
        takers -= 1
    return math.inf


def _within(level: float, load_of_one: float) -> int:
    """Return how many workers of such a load are within `level`."""
    count = level / load_of_one if load_of_one else math.inf  # infinite also by a tiny load
    return 1 << 30 if math.isinf(count) else int(count)


class _Room:
    """What admitted runs leave of the environment's workers and of the destination's rate."""

    def __init__(self, workers: int, held: Iterable[Bid]) -> None:
        self._workers = workers
        self._used: dict[str, float] = {}  # by tenant: the greater of its two parts
        self._taken = 0.0
        self._load = 0.0
        self._runs = 0
        for bid in held:
            self.add(bid)

    def add(self, bid: Bid) -> None:
        min_share = min_workers(self._workers, bid)
        self._taken += min_share * bid.busy_with(min_share)
        self._load += bid.load_of_one
        self._runs += 1
        part = max(min_share / self._workers, bid.load_of_one / MAX_LOAD)
        self._used[bid.tenant] = self._used.get(bid.tenant, 0.0) + part

    def used_by(self, tenant: str) -> float:
        return self._used.get(tenant, 0.0)

    def fits(self, bid: Bid) -> bool:
        if not self._runs:
            return True
        # Room for half of its workers is enough: a worker that is asked for too early costs a few
        # refused calls, and one that nobody asks for is lost.
        min_share = min_workers(self._workers, bid)
        taken = self._taken + min_share * bid.busy_with(min_share) / 2
        return taken <= self._workers and self._load + bid.load_of_one <= MAX_LOAD


def min_workers(workers: int, bid: Bid) -> int:
    """Return the least number of workers that a run is admitted with."""
    return max(1, min(bid.workers, MIN_WORKERS, workers // MIN_RUNS))


def admit(workers: int, held: Iterable[Bid], waiting: Iterable[Bid]) -> list[Bid]:
    """Return the waiting runs that are admitted now, the first one first.

    The tenant that uses least is served first, and of its runs the earliest. A run that does not
    fit lets nobody pass, so it does not wait forever.
    """
    room = _Room(workers, held)
    lines: dict[str, list[Bid]] = {}
    for bid in sorted(waiting, key=lambda one: (one.order, one.run), reverse=True):
        lines.setdefault(bid.tenant, []).append(bid)
    admitted: list[Bid] = []
    while lines:
        tenant = min(lines, key=lambda name: (room.used_by(name), lines[name][-1].order, name))
        bid = lines[tenant][-1]
        if not room.fits(bid):
            break
        room.add(bid)
        admitted.append(bid)
        lines[tenant].pop()
        if not lines[tenant]:
            del lines[tenant]
    return admitted
