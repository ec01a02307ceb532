"""One simulated run from the event to the report: its steps and its critical path.

`simulate_orchestrated` runs the Maps and returns a `SimulatedRun`. The forecast combines several
simulated runs: usual days, a good day and a bad day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import rates
from s3unzip.forecast.cost import Usage, express_seconds
from s3unzip.forecast.demand import Demand, requests_of
from s3unzip.forecast.simulation import simulate
from s3unzip.model import Requests, TaskKind

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from s3unzip.forecast.demand import Job
    from s3unzip.forecast.simulation import Timeline
    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning


class Step(Struct, frozen=True):
    """One stretch of the critical path, in seconds."""

    name: str
    seconds: float
    detail: str = ""


class SimulatedRun(Struct, frozen=True):
    """One simulated run; seconds since the event or the start of the command."""

    seconds: float
    first_object: float
    steps: tuple[Step, ...]
    chain: tuple[str, ...]  # the chain of tasks that ends last
    usage: Usage
    jobs: tuple[Job, ...]
    timeline: Timeline
    longest: float  # task, from dispatch to end


def simulate_orchestrated(
    workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random
) -> SimulatedRun:
    """Return one run of `workload` on `platform`; equal states of `rng` give equal runs."""
    at_once = max(1, min(workload.at_once, platform.workers, len(workload.tasks)))
    demand = Demand(platform, tuning, at_once)
    split = sum(task.parts > 1 for task in workload.tasks)
    scans = [demand.scan_of(task) for task in workload.tasks if task.kind is TaskKind.SEGMENT]
    jobs = tuple(demand.job_of(task) for task in workload.tasks)
    plan = _plan_step(workload, platform, tuning, rng)
    steps = [Step("event", platform.event_seconds, "until the planner is invoked")]
    steps += [plan]
    lines: list[Timeline] = []
    if scans:
        scanned = simulate(scans, platform, min(platform.workers, len(scans)), rng)
        lines.append(scanned)
        steps += [
            Step("start scans", platform.start_seconds),
            Step("scan", scanned.end, f"{len(scans):,} segments"),
            Step("end scans", platform.end_seconds),
        ]
    if split:
        steps.append(_link_step(split, platform, rng))
    steps.append(Step("start tasks", platform.start_seconds))
    before = sum(step.seconds for step in steps)
    timeline = simulate(jobs, platform, at_once, rng)
    lines.append(timeline)
    path, chain = _last_chain(jobs, timeline)
    steps += path
    steps.append(Step("end tasks", platform.end_seconds))
    steps.append(_report_step(workload, platform, rng))
    seconds = sum(step.seconds for step in steps)
    return SimulatedRun(
        seconds=seconds,
        first_object=min(seconds, before + _first_object(jobs, timeline, platform)),
        steps=tuple(step for step in steps if step.seconds > 0),
        chain=chain,
        usage=_usage(workload, tuning, (*scans, *jobs), lines, steps),
        jobs=jobs,
        timeline=timeline,
        longest=max((end - start for line in lines for start, end in _spans(line)), default=0.0),
    )


def plan_requests(workload: Workload, tuning: Tuning) -> Requests:
    """Return the requests of plan and report, without those of the tasks.

    The plan reads the tail and the rest of the directory, probes the destination (it begins and
    aborts an upload) and writes seven objects, the large ones in parts. The report reads six
    records besides the outcomes, two of them after a HEAD, lists retries, outcomes and uploads,
    and writes two objects.
    """
    scans = sum(task.kind is TaskKind.SEGMENT for task in workload.tasks)
    split = sum(task.parts > 1 and task.part == 0 for task in workload.tasks)
    tasks = len(workload.tasks)
    beyond = max(0, workload.directory_bytes - tuning.tail_bytes)
    rows = math.ceil(workload.rows_bytes / tuning.part_bytes)
    map_reads = 1 + bool(scans)
    return Requests(
        get=1 + math.ceil(beyond / tuning.directory_piece) + map_reads + 6 + tasks + 2 * scans,
        put=7 + 2 + bool(scans) + scans + split,
        head=2,
        create=1 + (rows > 1),
        part=rows if rows > 1 else 0,
        complete=int(rows > 1),
        abort=1,
        list=3 + math.ceil((tasks + 1) / 1_000),
    )


def _plan_step(workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random) -> Step:
    beyond = max(0, workload.directory_bytes - tuning.tail_bytes)
    moved = beyond / min(platform.bandwidth_in, tuning.directory_readers * platform.download_rate)
    written = workload.rows_bytes / min(platform.bandwidth_out, platform.total_bandwidth)
    cpu = workload.members * platform.plan_member_seconds
    calls = 8 * platform.put.mean
    seconds = rates.PLAN_SECONDS + calls + max(moved, cpu) + written
    return Step("plan", seconds + draw_cold_start(platform, rng), f"members: {workload.members:,}")


def _link_step(segments: int, platform: Platform, rng: random.Random) -> Step:
    calls = math.ceil(2 * segments / rates.SMALL_CALLS_AT_ONCE) * platform.get.mean
    seconds = segments * rates.LINK_SEGMENT_SECONDS + calls + 4 * platform.put.mean
    return Step("link", seconds + draw_cold_start(platform, rng))


def _report_step(workload: Workload, platform: Platform, rng: random.Random) -> Step:
    calls = math.ceil(len(workload.tasks) / rates.SMALL_CALLS_AT_ONCE) * platform.get.mean
    cpu = workload.members * rates.REPORT_MEMBER_SECONDS
    seconds = rates.REPORT_SECONDS + max(calls, cpu) + 3 * platform.put.mean
    return Step("report", seconds + draw_cold_start(platform, rng))


def draw_cold_start(platform: Platform, rng: random.Random) -> float:
    """Return the seconds of one cold start, 0 if the platform has none."""
    if platform.cold_start is None:
        return 0.0
    return platform.cold_start.quantile(rng.random() * 0.98 + 0.01)


def _last_chain(jobs: Sequence[Job], line: Timeline) -> tuple[list[Step], tuple[str, ...]]:
    """Return the steps of the chain of jobs that ended last; each took its predecessor's place."""
    if not jobs:
        return [], ()
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
            if not job.shared
        ),
        default=math.inf,
    )


def _usage(
    workload: Workload,
    tuning: Tuning,
    jobs: Sequence[Job],
    lines: Sequence[Timeline],
    steps: Sequence[Step],
) -> Usage:
    seconds = [end - start for line in lines for start, end in _spans(line)]
    own = [step.seconds for step in steps if step.name in {"plan", "link", "report"}]
    split = any(job.shared for job in jobs)
    return Usage(
        members=workload.members,
        requests=requests_of(jobs) + plan_requests(workload, tuning),
        invocations=len(seconds) + len(own),
        lambda_seconds=sum(seconds) + sum(own),
        children=len(seconds),
        express_seconds=express_seconds(seconds),
        transitions=rates.TRANSITIONS_SPLIT if split else rates.TRANSITIONS,
    )


def _spans(line: Timeline) -> list[tuple[float, float]]:
    return list(zip(line.dispatched, line.ended, strict=True))
