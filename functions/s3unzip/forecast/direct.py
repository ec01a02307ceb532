"""One simulated direct run, in which the plan function does all steps.

The rest of the forecast calls `simulate_run`, which chooses the kind of run by the platform.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast.cost import Usage
from s3unzip.forecast.course import SimulatedRun, simulate_orchestrated
from s3unzip.forecast.demand import Demand, requests_of
from s3unzip.forecast.simulation import Simulation
from s3unzip.forecast.steps import Step, draw_cold_start
from s3unzip.model import Requests
from s3unzip.platforms import Latency

if TYPE_CHECKING:
    import random

    from s3unzip.forecast.demand import Job
    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning

NO_TIME = Latency(1e-9, 1e-9)


def simulate_run(
    workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random
) -> SimulatedRun:
    """Return one run of `workload` on `platform`; equal states of `rng` give equal runs."""
    way = _simulate_direct if platform.direct else simulate_orchestrated
    return way(workload, platform, tuning, rng)


def min_orchestrated_seconds(platform: Platform) -> float:
    """Return the minimum seconds of a run by the state machine, from its event to its report."""
    around = platform.inline_start_seconds + platform.inline_end_seconds
    return platform.event_seconds + around + rates.PLAN_SECONDS + rates.REPORT_SECONDS


def _simulate_direct(
    workload: Workload, platform: Platform, tuning: Tuning, rng: random.Random
) -> SimulatedRun:
    get, put = platform.get.mean, platform.put.mean
    beyond = workload.bytes_in + workload.directory_bytes > tuning.tail_bytes
    jobs = _jobs_of(workload, platform, tuning, gets=int(beyond))
    steps = [
        Step("event", platform.event_seconds, "until the function is invoked"),
        Step("cold start", draw_cold_start(platform, rng)),
        Step(
            "plan",
            rates.DIRECT_SECONDS + get + put + workload.members * platform.plan_member_seconds,
            "the archive's end, the checks, the claim",
        ),
        Step("first bytes", get * beyond),
    ]
    before = sum(step.seconds for step in steps)
    # One worker, which is already running; it reads its tasks from memory.
    worker = replace(platform, get=NO_TIME, cold_start=None, burst=math.inf, dispatch_rate=math.inf)
    timeline = Simulation(jobs, worker, 1, rng).run()
    steps.append(Step("work", timeline.end))
    cpu = workload.members * rates.REPORT_MEMBER_SECONDS
    steps.append(Step("report", cpu + 2 * put, "records, report"))
    seconds = sum(step.seconds for step in steps)
    busy = seconds - platform.event_seconds + get  # the function sends the event after the report
    first = platform.put.p50 + jobs[0].body_seconds if jobs else math.inf
    return SimulatedRun(
        seconds=seconds,
        first_object=min(seconds, before + first),
        steps=tuple(step for step in steps if step.seconds > 0),
        chain=tuple(job.id for job in jobs),
        usage=Usage(
            members=workload.members,
            requests=requests_of(jobs) + Requests(get=1, put=rates.DIRECT_WRITES),
            invocations=1,
            lambda_seconds=busy,
            children=0,
            express_seconds=0.0,
            transitions=0,
        ),
        jobs=jobs,
        tasks_seconds=timeline.end,
        throttled_seconds=timeline.throttled_seconds,
        longest=busy,
    )


def _jobs_of(workload: Workload, platform: Platform, tuning: Tuning, gets: int) -> tuple[Job, ...]:
    """Return the demand of each task; `gets` ranges have its data outside the tail.

    The outcomes stay in memory.
    """
    demand = Demand(platform, tuning, 1)
    return tuple(
        demand.job_of(task)._replace(
            gets=gets, puts=task.members, first_lanes=rates.DIRECT_FIRST_PUTS, fixed=0.0
        )
        for task in workload.tasks
    )
