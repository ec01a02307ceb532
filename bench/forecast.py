"""Forecast against measured: the real pipeline on shaped stores, and the published fixtures.

    uv run python -m bench.forecast

For each case, threads plan and extract an archive on stores with known latencies, bandwidths and
rates (`bench.shaped`), or worker processes do so on a real S3 server through a shaped proxy
(`bench.proxied`), or the deployed plan function does direct runs (`bench.direct`), or the deployed
state machine does inline Maps and both branches of its work (`bench.machine`). The forecast gets
the same numbers. `forecast.error.<case>` is forecast / measured - 1 for the tasks' part of the run;
the aim is 0.2. Plan and report are compared by themselves (`bench.ends`). The share of a prefix's
rate that throttled workers use is measured (`bench.throttling`). At the end, published fixtures are
forecast for AWS, beside the published measurements.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bench.direct import measure_direct
from bench.ends import measure_ends
from bench.machine import measure_machine
from bench.measure import median, print_figure
from bench.proxied import PROXIED, measure_proxied
from bench.shaped import Prefix, ShapedStores, WallClock, World
from bench.throttling import measure_share
from bench.zipped import random_archive
from s3unzip import rates
from s3unzip.context import Context
from s3unzip.extraction.task import run_task
from s3unzip.forecast import (
    FIXTURES,
    Latency,
    Platform,
    aws,
    forecast_archive,
    local,
    make_fixture,
    make_forecast,
    make_workload,
    merge_tasks,
    one_function,
)
from s3unzip.model import (
    Location,
    PlanSummary,
    Request,
    Requests,
    Task,
    TaskReport,
    decode,
)
from s3unzip.planning.plan import make_plan
from s3unzip.settings import KIB, MIB, Tuning

if TYPE_CHECKING:
    from s3unzip.forecast import Workload
    from s3unzip.model import Run

S3_LIKE = Latency(0.030, 0.200)
WARM_DAYS = 101  # forecasts with different random numbers


@dataclass(frozen=True, slots=True)
class Case:
    """An archive of equal members, and the simulated platform of its extraction."""

    name: str
    members: int
    size: int
    platform: Platform
    stored: bool = True
    changes: tuple[tuple[str, float], ...] = ()


def machine(workers: int, **changes: float) -> Platform:
    """Return a machine with S3's latencies; each worker has its own link, as in Lambda."""
    plain = local(workers=workers, put=S3_LIKE)
    unlimited = replace(plain, total_bandwidth=float("inf"), start_seconds=0.0)
    return replace(unlimited, **changes)


CASES = (
    Case("latency", 8_000, KIB, machine(2)),
    Case("throttled", 5_000, KIB, machine(3, prefix_writes=700.0, efficiency=0.9)),
    Case("read", 60, MIB, machine(1, bandwidth_in=10e6)),
    Case("write", 60, MIB, machine(2, bandwidth_out=5e6)),
    Case("stream", 2, 48 * MIB, machine(2, bandwidth_out=8e6), stored=False),
    Case("copy", 4, 64 * MIB, machine(2, copy_rate=8e6), changes=(("copy_part_bytes", 16 * MIB),)),
)


def measure(run: Run, tasks: list[Task], world: World, tuning: Tuning) -> tuple[float, Requests]:
    """Do `tasks` with one thread for each worker of the platform; return seconds and calls."""
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    reports: list[TaskReport] = []

    def work(seed: int) -> None:
        context = Context(ShapedStores(world, seed), WallClock(), tuning=tuning)
        while True:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            reports.append(run_task(run, task, context))

    threads = [
        threading.Thread(target=work, args=(seed,)) for seed in range(world.platform.workers)
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    assert sum(report.unfinished + report.failed for report in reports) == 0
    return seconds, sum((report.requests for report in reports), Requests())


def compare(case: Case) -> None:
    """Run one case and print forecast and measurement."""
    tuning = replace(
        Tuning(max_workers=case.platform.workers),
        **dict(case.changes),
    )
    world = World(
        random_archive(case.members, case.size, stored=case.stored),
        case.platform,
        Prefix(case.platform.prefix_writes),
    )
    context = Context(ShapedStores(world, 99), WallClock(), tuning=tuning)
    summary = make_plan(
        Request(Location("s3", "from", "bench.zip"), Location("s3", "to", "")), context
    )
    assert isinstance(summary, PlanSummary)
    tasks = [decode(line, Task) for line in world.work["plan.jsonl"].splitlines()]
    workload = make_workload(tasks, tuning, title=case.name)
    workload = replace(workload, at_once=case.platform.workers)
    forecast = make_forecast(workload, case.platform, tuning)
    seconds, calls = measure(summary.run, tasks, world, tuning)
    writes = calls.put + calls.part + calls.copy + calls.create + calls.complete
    print(
        f"{case.name}: {len(tasks)} tasks, {calls.get} GETs, {writes - calls.throttled} writes, "
        f"{calls.throttled} throttled"
    )
    tell(case.name, forecast.tasks_seconds, seconds)


def published() -> None:
    """Print the forecasts of the fixtures, beside the published measurements."""
    tuning = Tuning()
    for name, fixture in FIXTURES.items():
        started = time.process_time()
        workload = make_fixture(fixture, tuning)
        forecast = forecast_archive(workload, aws(), tuning)
        others = fixture.published
        duration, bound = forecast.duration, forecast.bounds[0]
        print(
            f"{name}: {duration.low:.1f} to {duration.high:.1f} s, ${forecast.cost.total:.4f}; "
            f"the bound is {bound.seconds:.1f} s ({bound.name}); "
            + (f"{others.by} took {others.seconds:.0f} s" if others else "no published measurement")
        )
        print_figure(f"forecast.aws.{name}", duration.expected, "s")
        print_figure(f"forecast.first_object.{name}", forecast.first_object.expected, "s")
        print_figure(f"forecast.times_bound.{name}", forecast.tasks_seconds / bound.seconds, "x")
        beyond = forecast.cost.total - forecast.cost.unavoidable
        print_figure(f"forecast.beyond_puts.{name}", beyond, "dollars")
        if forecast.cost.by_service()["Step Functions"] == 0:  # a direct run
            print_figure(f"forecast.aws_warm.{name}", forecast_warm(workload, tuning), "s")
        print_figure(f"forecast.cpu.{name}", time.process_time() - started, "s")


def forecast_warm(workload: Workload, tuning: Tuning) -> float:
    """Return the seconds of a direct run by a function that runs already.

    A forecast is the median of five simulated days, because a report has to make it quickly. Here
    there is time for more: single slow PUTs decide over a run of a second.
    """
    function = one_function(rates.DIRECT_MEMORY_MB, member_seconds=tuning.member_seconds)
    warm = replace(function, cold_start=None)
    merged = merge_tasks(workload)
    forecasts = [make_forecast(merged, warm, tuning, seed=seed) for seed in range(1, WARM_DAYS + 1)]
    return median([forecast.duration.expected for forecast in forecasts])


def tell(name: str, forecast: float, measured: float) -> None:
    """Print the error of a forecast."""
    print(f"{name}: forecast {forecast:.2f} s, measured {measured:.2f} s")
    print_figure(f"forecast.error.{name}", forecast / measured - 1, "ratio")


MEASURED = {
    "ends": lambda: measure_ends(machine(2)),
    "direct": measure_direct,  # this and the next one on the embedded AWS
    "machine": measure_machine,
}
FIGURES = {"throttling": measure_share, "published": published}


def main() -> None:
    """Run all cases, or those named in S3UNZIP_BENCH_CASES, comma-separated."""
    named = os.environ.get("S3UNZIP_BENCH_CASES")

    def is_wanted(name: str) -> bool:
        return named is None or name in named.split(",")

    for case in filter(lambda one: is_wanted(one.name), CASES):
        compare(case)
    for proxied in filter(lambda one: is_wanted(one.name), PROXIED):
        tell(proxied.name, *measure_proxied(proxied))
    for name in filter(is_wanted, MEASURED):
        for told in MEASURED[name]():
            tell(*told)
    for name in filter(is_wanted, FIGURES):
        FIGURES[name]()


if __name__ == "__main__":
    main()
