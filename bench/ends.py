"""Plan and report of a run with many small members: forecast against measured.

The stores are shaped (`bench.shaped`) with S3's latencies, because both steps are mostly requests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace
from s3unzip.run_files import PLAN
from s3unzip.settling.settle import settle

from bench.measure import median
from bench.shaped import Prefix, ShapedStores, WallClock, World
from bench.zipped import random_archive
from s3unzip.context import Context
from s3unzip.extraction.task import run_task
from s3unzip.forecast import Latency, make_forecast, make_workload
from s3unzip.model import Location, PlanSummary, Request, Task, Verdict, decode
from s3unzip.planning.plan import make_plan
from s3unzip.settings import Tuning

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.forecast import Platform

T = TypeVar("T")
MEMBERS, SIZE, TASKS = 49_152, 64, 39
TIMES = 9
AT_ONCE = Latency(0.000_01, 0.000_02)  # while the tasks are done, which is not measured


def measure_ends(platform: Platform) -> list[tuple[str, float, float]]:
    """Return name, forecast and median seconds of the plan and of the report."""
    tuning = replace(Tuning(max_workers=platform.workers), batch_members=MEMBERS // TASKS)
    archive = random_archive(MEMBERS, SIZE, stored=True)
    world = World(archive, platform, Prefix(platform.prefix_writes))
    context = Context(ShapedStores(world, 7), WallClock(), tuning=tuning)
    request = Request(Location("s3", "from", "ends.zip"), Location("s3", "to", ""))
    plan, summary = _measure(lambda: make_plan(request, context))
    assert isinstance(summary, PlanSummary)
    tasks = [decode(line, Task) for line in world.work[PLAN].splitlines()]
    world.platform = replace(platform, put=AT_ONCE, get=AT_ONCE)
    for task in tasks:
        run_task(summary.run, task, context)
    world.platform = platform
    report, settled = _measure(lambda: settle(summary.run, context))
    assert settled.report.verdict is Verdict.COMPLETED
    workload = make_workload(tasks, tuning, title="ends", summary=summary)
    steps = {step.name: step for step in make_forecast(workload, platform, tuning).steps}
    return [
        ("plan", steps["plan"].seconds, plan),
        ("report", steps["report"].seconds, report),
    ]


def _measure(call: Callable[[], T]) -> tuple[float, T]:
    """Return the median seconds of some calls, and what the last one returned."""
    taken: list[tuple[float, T]] = []
    for _ in range(TIMES):
        started = time.monotonic()
        result = call()
        taken.append((time.monotonic() - started, result))
    return median([seconds for seconds, _ in taken]), taken[-1][1]
