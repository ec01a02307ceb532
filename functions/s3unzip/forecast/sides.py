"""The work of a simulated run: tasks of whole members, beside them scans, link and slices.

On AWS both sides run at the same time, each with its share of the workers, by Distributed or inline
Maps. On one machine all jobs go through one pool of workers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast.demand import Demand, Job
from s3unzip.forecast.simulation import Simulation, Timeline
from s3unzip.forecast.steps import Step, draw_cold_start, last_of
from s3unzip.model import TaskKind
from s3unzip.planning.lists import (
    Shares,
    WorkList,
    can_overlap,
    choose_inline,
    divide_tasks,
    mix,
    share_workers,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning


# Requests of the link step, one after the other. For the run: the list of scans and the plan, both
# with a HEAD, the scans that are done, and the requests of earlier attempts, which it writes again.
LINK_READS = 6
# For each split member: its row, its link, its local header, and what follows its data; the record
# of its upload, twice, the upload, and the link.
LINK_MEMBER_READS = 4
LINK_MEMBER_WRITES = 4


class MapRun(Struct, frozen=True):
    """One simulated Map, or the part of a pool's work that takes its place."""

    jobs: tuple[Job, ...]
    timeline: Timeline
    inline: bool = False
    waited: float = 0.0  # seconds that each child waits before it calls its worker


class Side(Struct, frozen=True):
    """One branch of the work; seconds since the end of the plan."""

    steps: tuple[Step, ...] = ()
    maps: tuple[MapRun, ...] = ()
    chain: tuple[str, ...] = ()  # the tasks in a row that end last
    first_object: float = math.inf  # infinite if only the report makes the members visible

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return sum(step.seconds for step in self.steps)


class Sides:
    """Simulates the work of one run; each method draws from `rng`.

    `ready` says when each worker that was started before is idle, in seconds after the plan. A Map
    finds those that are idle when it dispatches its first task; a later one counts as not started,
    as Lambda starts another environment. Tasks of whole members get them first.
    """

    def __init__(
        self,
        workload: Workload,
        platform: Platform,
        tuning: Tuning,
        rng: random.Random,
        ready: Sequence[float] = (),
    ) -> None:
        self._platform = platform
        self._rng = rng
        whole, slices = divide_tasks(workload.tasks)
        bound = replace(tuning, max_workers=min(tuning.max_workers, platform.workers))
        at_once = max(1, min(workload.at_once, platform.workers, len(workload.tasks)))
        shares = share_workers(workload.tasks, bound) if slices else Shares(at_once, 1)
        self._shares = shares if platform.inline_at_once else Shares(at_once, at_once)
        inline = platform.inline_at_once > 0
        self._inline = choose_inline(workload.tasks, shares, bound) if inline else {}
        demand = Demand(platform, tuning, at_once)
        self._split = [task for task in slices if task.part == 0]
        self._whole = [demand.job_of(task) for task in whole]
        self._slices = [demand.job_of(task) for task in slices]
        segments = [task for task in slices if task.kind is TaskKind.SEGMENT]
        self._scans = [demand.scan_of(task) for task in segments]
        idle = self._idle_at_start(ready, WorkList.WHOLE)
        self._warm_whole = min(idle, self._shares.whole, len(self._whole))
        idle = self._idle_at_start(ready, WorkList.SCAN)
        self._warm_scans = max(0, idle - self._warm_whole)
        longest = max((task.seconds for task in workload.tasks), default=0.0)
        self._overlaps = (
            inline
            and self._inline.keys().isdisjoint((WorkList.SCAN, WorkList.SLICES))
            and can_overlap(len(segments), len(slices), self._shares.split, longest)
        )

    def simulate(self) -> tuple[Side, ...]:
        """Return the branches of the work; on one machine it is one."""
        if not self._platform.inline_at_once:
            return (self._in_one_pool(),)
        sides = (self._extract_whole(), self._extract_split())
        return tuple(side for side in sides if side.steps) or (Side(),)

    def _idle_at_start(self, ready: Sequence[float], name: WorkList) -> int:
        """Return how many workers are idle when the Map of this list dispatches its first task."""
        platform = self._platform
        inline = name in self._inline
        start = platform.inline_start_seconds if inline else platform.start_seconds
        return sum(one <= start for one in ready)

    def _in_one_pool(self) -> Side:
        """Return the work on one machine, which begins with scans and small members by turns.

        Linking counts as if nothing else ran meanwhile.
        """
        jobs = mix(self._scans, self._whole, self._shares.whole)
        begun = self._run(jobs, WorkList.WHOLE, "tasks")
        if not self._slices:
            return begun
        link = self._link()
        rest = self._run(self._slices, WorkList.SLICES, "slices")
        return _joined(begun, Side((link,)), rest)

    def _extract_whole(self) -> Side:
        return self._run(self._whole, WorkList.WHOLE, "tasks", self._warm_whole)

    def _extract_split(self) -> Side:
        if not self._slices:
            return Side()
        scans = self._run(self._scans, WorkList.SCAN, "scans", self._warm_scans)
        warm = sum(one.timeline.environments for one in scans.maps)  # the same function
        if self._overlaps:
            return self._overlapped(scans, warm)
        slices = self._run(self._slices, WorkList.SLICES, "slices", warm)
        return _joined(scans, Side((self._link(),)), slices)

    def _overlapped(self, scans: Side, warm: int) -> Side:
        """Return the split members' work if slices wait beside `scans`, whose Map ends unnoticed.

        The link function starts with the scans, so it is warm when they end. The slices begin
        within one interval in which they ask for the link.
        """
        scanned = Side(scans.steps[:-1], scans.maps)
        link = self._link(cold=False)
        noticed = Step("notice scans", rates.LINK_POLL_SECONDS / 2 + 3 * self._platform.get.mean)
        waited = scanned.seconds + noticed.seconds + link.seconds - self._platform.start_seconds
        rate = len(self._slices) / rates.SLICE_POLL_SECONDS
        asking = replace(self._platform, start_seconds=0.0, dispatch_rate=rate)
        slices = self._run(self._slices, WorkList.SLICES, "slices", warm, asking)
        maps = tuple(replace(one, waited=waited) for one in slices.maps)
        return _joined(scanned, Side((noticed, link)), replace(slices, maps=maps))

    def _run(
        self,
        jobs: Sequence[Job],
        name: WorkList,
        told: str,
        warm: int = 0,
        platform: Platform | None = None,
    ) -> Side:
        """Return a Map over `jobs`, with its start and its end; no time without jobs.

        `warm` environments of the function are idle when it starts.
        """
        if not jobs:
            return Side()
        platform, inline = platform or self._platform, name in self._inline
        start, end = platform.start_seconds, platform.end_seconds
        at_once = min(
            len(jobs), self._shares.whole if name is WorkList.WHOLE else self._shares.split
        )
        if inline:
            start, end = platform.inline_start_seconds, platform.inline_end_seconds
            at_once = min(at_once, platform.inline_at_once)
            platform = replace(platform, dispatch_rate=platform.inline_rate)
        line = Simulation(jobs, platform, at_once, self._rng, warm).run()
        path, chain = _last_chain(jobs, line)
        return Side(
            steps=(Step(f"start {told}", start), *path, Step(f"end {told}", end)),
            maps=(MapRun(tuple(jobs), line, inline),),
            chain=chain,
            first_object=start + _first_object(jobs, line, platform),
        )

    def _link(self, *, cold: bool = True) -> Step:
        """Return the link step; its requests are those of `extraction.split.link`.

        The segments are read and written several at once, so the slowest requests of each kind
        come on top of the mean. Several members are linked at once.
        """
        get, put = self._platform.get, self._platform.put
        segments, members = len(self._scans), len(self._split)
        at_once = min(members, rates.LINKED_MEMBERS_AT_ONCE)
        lanes = min(segments, at_once * rates.SMALL_CALLS_AT_ONCE)
        one = LINK_MEMBER_READS * get.mean + LINK_MEMBER_WRITES * put.mean
        cpu = segments * rates.LINK_SEGMENT_SECONDS
        if lanes:
            one += last_of(get, lanes) + last_of(put, lanes)
            calls = (segments - lanes) * max(get.mean, put.mean) / lanes
            cpu = max(cpu, calls)
        around = LINK_READS * get.mean + put.mean + math.ceil(members / at_once) * one + cpu
        start = draw_cold_start(self._platform, self._rng) if cold else 0.0
        return Step("link", around + start)


def _joined(*sides: Side) -> Side:
    """Return what runs one after the other; its chain is the last one's."""
    first, before = math.inf, 0.0
    for side in sides:
        first = min(first, before + side.first_object)
        before += side.seconds
    return Side(
        steps=tuple(step for side in sides for step in side.steps),
        maps=tuple(one for side in sides for one in side.maps),
        chain=sides[-1].chain,
        first_object=first,
    )


def _last_chain(jobs: Sequence[Job], line: Timeline) -> tuple[list[Step], tuple[str, ...]]:
    """Return the steps of the chain of jobs that ended last; each took its predecessor's place."""
    index = max(range(len(jobs)), key=line.ended.__getitem__)
    chain: list[int] = []
    while index >= 0:
        chain.append(index)
        index = line.freed_by[index]
    chain.reverse()
    cold = sum(line.cold[i] for i in chain)
    reading = sum(line.working[i] - line.dispatched[i] - line.cold[i] for i in chain)
    slowed = sum(line.ended[i] - line.working[i] - line.alone[i] for i in chain)
    work = sum(line.alone[i] for i in chain)
    waiting = line.end - cold - reading - slowed - work
    last = jobs[chain[-1]].id
    return [
        Step("wait for dispatch", max(0.0, waiting), "the Map's rate, Lambda's scaling"),
        Step("cold start", cold),
        Step("first bytes", reading),
        Step("work", work, _told(chain, last)),
        Step("throttled", max(0.0, slowed), "waiting for the rate of the destination's prefix"),
    ], tuple(jobs[i].id for i in chain)


def _told(chain: Sequence[int], last: str) -> str:
    return last if len(chain) == 1 else f"{len(chain)} tasks in a row; the last is {last}"


def _first_object(jobs: Sequence[Job], line: Timeline, platform: Platform) -> float:
    """Return when the first member becomes visible; infinite if only the report does that."""
    return min(
        (
            working + platform.put.p50 + job.body_seconds if job.members else ended
            for job, working, ended in zip(jobs, line.working, line.ended, strict=True)
            if not job.shared and job.kind != "scan"
        ),
        default=math.inf,
    )
