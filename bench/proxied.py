"""Forecast against measured on a real S3 server, through a proxy with known latency and links.

The tool's worker processes each have their own link to VersityGW. The forecast gets the shape of
the proxy and the measured latency of a few requests through it. It gets no data of the runs.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace
from s3unzip.local.pool import WorkerPool

from bench.workers import start_workers
from bench.zipped import random_archive
from s3unzip.forecast import Latency, local, make_forecast, make_workload
from s3unzip.model import PlanSummary, Task, decode
from s3unzip.planning.plan import make_plan
from s3unzip.settings import KIB, MIB, Tuning
from s3unzip.stores.clock import LocalClock
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Shape
from tests.faults.stores import DESTINATION
from tests.faults.versity import Versity
from tests.faults.world import World

if TYPE_CHECKING:
    from s3unzip.forecast import Platform

PROBES = 40  # requests that are timed
INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class ProxiedCase:
    """An archive of equal members, and the links it is extracted over."""

    name: str
    members: int
    size: int
    workers: int
    shape: Shape
    stored: bool = True
    puts: int = 32


PROXIED = (
    ProxiedCase("proxied_latency", 4_000, KIB, 2, Shape(latency=0.030), puts=8),
    ProxiedCase("proxied_read", 60, MIB, 1, Shape(down=8e6, latency=0.010)),
    ProxiedCase("proxied_write", 60, MIB, 2, Shape(up=4e6, latency=0.010)),
    ProxiedCase("proxied_stream", 2, 48 * MIB, 2, Shape(up=6e6, latency=0.010), stored=False),
)


def measure_proxied(case: ProxiedCase) -> tuple[float, float]:
    """Return the forecast and the measured seconds of the tasks of a case."""
    tuning = Tuning(max_workers=case.workers, puts_in_flight=case.puts, copy_from=1 << 40)
    with (
        Versity() as server,
        FaultProxy(server.port, listeners=case.workers, shape=case.shape) as proxy,
    ):
        world = World(server, proxy)
        world.clear()
        world.put_archive(random_archive(case.members, case.size, stored=case.stored))
        platform = _platform(case, world)
        maker = world.maker(tuning)
        context = maker(LocalClock())
        summary = make_plan(world.request(), context)
        assert isinstance(summary, PlanSummary)
        work = context.stores.run_store(summary.run.id)
        tasks = [decode(line, Task) for line in work.read("plan.jsonl").splitlines()]
        workload = replace(make_workload(tasks, tuning, title=case.name), at_once=case.workers)
        forecast = make_forecast(workload, platform, tuning)
        pool = WorkerPool(summary.run, case.workers, maker, None)
        start_workers(pool, case.workers, work)
        started = time.perf_counter()
        result = pool.work(tasks)
        seconds = time.perf_counter() - started
        pool.close()
        assert len(result.done) == len(tasks), result
        assert len(world.listing()) == case.members
    return forecast.tasks_seconds, seconds


def _platform(case: ProxiedCase, world: World) -> Platform:
    """Return the machine for the forecast: the proxy's shape, and timed requests."""
    probe = world.maker()(LocalClock()).stores.destination(world.request().destination)
    seconds = []
    for _ in range(PROBES):
        before = time.perf_counter()
        assert probe.head(f"{DESTINATION}-nothing") is None
        seconds.append(time.perf_counter() - before)
    seconds.sort()
    latency = Latency(statistics.median(seconds), max(seconds[-2], statistics.median(seconds)))
    plain = local(workers=case.workers, put=latency)
    return replace(
        plain,
        get=latency,
        total_bandwidth=INFINITE,
        start_seconds=0.0,
        bandwidth_in=case.shape.down or plain.bandwidth_in,
        bandwidth_out=case.shape.up or plain.bandwidth_out,
    )


if __name__ == "__main__":
    for one in PROXIED:
        print(json.dumps([one.name, *measure_proxied(one)]))
