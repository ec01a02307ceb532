"""One simulated run from the event to the report: its steps and its critical path.

`simulate_orchestrated` runs the sides of the work and returns a `SimulatedRun`. The forecast
combines several simulated runs: usual days, a good day and a bad day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from s3unzip import rates
from s3unzip.forecast.cost import Usage, express_seconds
from s3unzip.forecast.demand import requests_of
from s3unzip.forecast.sides import Sides
from s3unzip.forecast.steps import Step, calls_seconds, draw_cold_start
from s3unzip.model import Requests, TaskKind
from s3unzip.planning.cut import first_workers

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from s3unzip.forecast.demand import Job
    from s3unzip.forecast.sides import MapRun
    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning


HAND_OVER_WRITES = 3  # the ledger is listed and written, the execution is started
# Calls around a plan for a state machine, one after the other. The plan function: the claim, the
# earlier plan, the short lists, and the ledger, which is listed and written. The planner: the
# earlier plan, and beside the short lists the ledger, which is listed, written and cleared.
START_CALLS, PLANNER_CALLS = 5, 4
PLAN_CALLS = 4  # of a plan besides tail and probe, one after the other
HAND_OVER_STATES = 2  # before the planner: its branches, the planner's own
# That an execution without a plan enters besides the others: the branches, the planner, beside it a
# choice and the Map that starts workers, and whether the archive is refused. Workers come on top.
PLANNER_STATES = 5
# Seconds until the cold start of a worker beside the planner begins, after that of the planner: a
# choice and a Map come before the call, and Lambda queues its event. The start of the execution is
# added, because the forecast has it in the seconds of the first Map, and not before the planner.
WARM_BEGINS = 2 * rates.STATE_SECONDS + rates.ASYNC_SECONDS + rates.EXECUTION_START_SECONDS


class SimulatedRun(Struct, frozen=True):
    """One simulated run; seconds since the event or the start of the command."""

    seconds: float
    first_object: float
    steps: tuple[Step, ...]
    chain: tuple[str, ...]  # the chain of tasks that ends last
    usage: Usage
    jobs: tuple[Job, ...]
    tasks_seconds: float  # from the dispatch of the first task of a Map to the end of its last
    throttled_seconds: float  # of them, in which the demand exceeds the prefix's rate
    longest: float  # task, from dispatch to end


def simulate_orchestrated(
    workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random
) -> SimulatedRun:
    """Return one run of `workload` on `platform`; equal states of `rng` give equal runs."""
    begun = _begin(workload, platform, tuning, rng)
    planned = sum(step.seconds for step in begun.steps)
    sides = Sides(workload, platform, tuning, rng, begun.ready).simulate()
    longest = max(sides, key=lambda side: side.seconds)
    report, warmed = _report_step(workload, platform, rng, longest.seconds)
    steps = [*begun.steps, *longest.steps, report]
    seconds = sum(step.seconds for step in steps)
    maps = [one for side in sides for one in side.maps]
    links = [step for side in sides for step in side.steps if step.name == "link"]
    lines = [one.timeline for one in maps if any(job.kind != "scan" for job in one.jobs)]
    return SimulatedRun(
        seconds=seconds,
        first_object=min(seconds, planned + min(side.first_object for side in sides)),
        steps=tuple(step for step in steps if step.seconds > 0),
        chain=longest.chain,
        usage=_usage(workload, tuning, maps, begun, _Ended((*links, report), warmed)),
        jobs=tuple(job for one in maps for job in one.jobs if job.kind != "scan"),
        tasks_seconds=max((line.end for line in lines), default=0.0),
        throttled_seconds=max((line.throttled_seconds for line in lines), default=0.0),
        longest=max((one for run in maps for one in _seconds_of(run)), default=0.0),
    )


def plan_requests(workload: Workload, tuning: Tuning) -> Requests:
    """Return the requests of plan and report, without those of the tasks.

    The plan reads the tail and the rest of the directory, probes the destination (it begins and
    aborts an upload) and writes seven objects, the large ones in parts, and the divided list of
    tasks if a member is split. The report reads five records
    besides the outcomes, lists retries, outcomes and uploads, and writes two objects. The tasks are
    read twice, each time after a HEAD: short lists are in the execution's input.
    """
    scans = sum(task.kind is TaskKind.SEGMENT for task in workload.tasks)
    split = sum(task.parts > 1 and task.part == 0 for task in workload.tasks)
    tasks = len(workload.tasks)
    beyond = max(0, workload.directory_bytes - tuning.tail_bytes)
    rows = math.ceil(workload.rows_bytes / tuning.part_bytes)
    map_reads = 1 + bool(scans)
    return Requests(
        get=1 + math.ceil(beyond / tuning.directory_piece) + map_reads + 5 + tasks + 2 * scans,
        put=7 + 2 + bool(scans) + 2 * bool(split) + scans + split,
        head=2,
        create=1 + (rows > 1),
        part=rows if rows > 1 else 0,
        complete=int(rows > 1),
        abort=1,
        list=3 + math.ceil((tasks + 1) / 1_000),
    )


def needs_planner(workload: Workload, platform: Platform, tuning: Tuning) -> bool:
    """Say whether the directory is too large for the plan function, if the platform has one."""
    return bool(platform.inline_at_once) and workload.directory_bytes > tuning.tail_bytes


class _Begun(NamedTuple):
    """What comes before the work."""

    steps: tuple[Step, ...]
    functions: tuple[Step, ...]  # of them, those that are an invocation each
    warmed: tuple[float, ...] = ()  # seconds of each call that started a worker beside the planner
    ready: tuple[float, ...] = ()  # when each of these workers is idle, in seconds after the plan
    states: int = 0  # that the execution enters for the planner and these calls


class _Ended(NamedTuple):
    """What follows the work."""

    functions: tuple[Step, ...]  # link and report
    warmed: tuple[float, ...]  # seconds of the call that started the report's function


def _begin(workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random) -> _Begun:
    """Return what comes before the work: the event, the plan, and where needed the planner.

    If the directory is too large for the plan function, this one reads the tail, writes to the
    ledger of shares and starts an execution. Its first task is the planner, and beside that the
    first workers are started; nothing waits for them. To start an execution is in the seconds
    before the first Map.
    """
    event = Step("event", platform.event_seconds, "until the function is invoked")
    seconds = _plan_seconds(workload, platform, tuning)
    cold = draw_cold_start(platform, rng)
    plan = Step("plan", seconds + cold, f"members: {workload.members:,}")
    if not needs_planner(workload, platform, tuning):
        return _Begun((event, plan), (plan,))
    calls = platform.get.mean + HAND_OVER_WRITES * platform.put.mean
    planner = draw_cold_start(platform, rng)
    handed = calls + HAND_OVER_STATES * rates.STATE_SECONDS + planner
    hand_over = Step("hand over", handed, "from the plan function to the planner")
    warmed = _warm_workers(workload, platform, tuning, rng)
    return _Begun(
        (event, hand_over, plan),
        (hand_over, plan),
        warmed,
        tuple(WARM_BEGINS + each - planner - seconds for each in warmed),
        PLANNER_STATES + len(warmed),
    )


def _warm_workers(
    workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random
) -> tuple[float, ...]:
    """Return the seconds of each call that starts a worker beside the planner."""
    size = workload.bytes_in + workload.directory_bytes
    count = min(platform.workers, first_workers(workload.members, size, tuning))
    return tuple(draw_cold_start(platform, rng) for _ in range(count))


def _plan_seconds(workload: Workload, platform: Platform, tuning: Tuning) -> float:
    beyond = max(0, workload.directory_bytes - tuning.tail_bytes)
    moved = beyond / min(platform.bandwidth_in, tuning.directory_readers * platform.download_rate)
    written = workload.rows_bytes / min(platform.bandwidth_out, platform.total_bandwidth)
    cpu = workload.members * platform.plan_member_seconds
    calls = PLAN_CALLS * platform.put.mean
    if platform.inline_at_once:
        around = PLANNER_CALLS if needs_planner(workload, platform, tuning) else START_CALLS
        calls += around * platform.get.mean
    return rates.PLAN_SECONDS + calls + max(moved, cpu) + written


def _report_step(
    workload: Workload, platform: Platform, rng: random.Random, beside: float
) -> tuple[Step, tuple[float, ...]]:
    """Return the report, and the seconds of the call that started its function.

    Where there is a state machine, that call is made when the work begins, `beside` seconds ago.
    """
    scans = sum(task.kind is TaskKind.SEGMENT for task in workload.tasks)
    # The outcomes of all tasks, and the reports of the scans.
    calls = sum(
        calls_seconds(platform.get, count, at_once)
        for count, at_once in (
            (len(workload.tasks), rates.OUTCOMES_AT_ONCE),
            (scans, rates.RECORDS_AT_ONCE),
        )
    )
    cpu = workload.members * rates.REPORT_MEMBER_SECONDS
    seconds = rates.REPORT_SECONDS + max(calls, cpu) + 3 * platform.put.mean
    cold = draw_cold_start(platform, rng)
    if not platform.inline_at_once:
        return Step("report", seconds + cold), ()
    return Step("report", seconds + max(0.0, cold - beside)), (cold,)


def _usage(
    workload: Workload,
    tuning: Tuning,
    maps: Sequence[MapRun],
    begun: _Begun,
    ended: _Ended,
) -> Usage:
    """Return what is billed of the jobs of `maps`, and of what comes before and after them."""
    warmed = begun.warmed + ended.warmed
    jobs = [job for one in maps for job in one.jobs]
    seconds = [each for one in maps for each in _seconds_of(one)]
    children = [one.waited + each for one in maps if not one.inline for each in _seconds_of(one)]
    asked = sum(len(one.jobs) * math.ceil(one.waited) for one in maps)  # by HEAD, for the link
    own = [step.seconds for step in begun.functions + ended.functions if step.seconds]
    split = any(job.shared for job in jobs)
    states = rates.TRANSITIONS_SPLIT if split else rates.TRANSITIONS
    if asked:
        states = rates.TRANSITIONS_OVERLAP
    states += begun.states
    return Usage(
        members=workload.members,
        requests=requests_of(jobs) + plan_requests(workload, tuning) + Requests(head=asked),
        invocations=len(seconds) + len(own) + len(warmed),
        lambda_seconds=sum(seconds) + sum(own) + sum(warmed),
        children=len(children),
        express_seconds=express_seconds(children),
        transitions=states + len(seconds) - len(children),
    )


def _seconds_of(run: MapRun) -> list[float]:
    """Return the seconds of each job, from its dispatch to its end."""
    line = run.timeline
    return [end - start for start, end in zip(line.dispatched, line.ended, strict=True)]
