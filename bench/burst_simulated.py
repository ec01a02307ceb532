"""Bursts of archives, simulated: the candidates for sharing workers, in one table.

    uv run python -m bench.burst_simulated

`bound` is the time that the work needs at least: of 1,000 concurrent Lambdas 800 are workers, and
200 are left to direct runs, plans and reports; S3 takes 3,150 PUTs a second while it throttles.
Candidate (a) knows no reserve, so it may be below the bound. p95 is of the archives that are looked
at: all in a burst of small ones, else those that come beside. A burst of small ones alone has a
least p95: the time that 95 % of its work needs at least.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bench.burst_model import COLD, DIRECT_SECONDS, Archive, World
from bench.burst_policies import POLICIES
from bench.measure import print_figure
from s3unzip import rates
from s3unzip.forecast import Fixture, aws, make_fixture
from s3unzip.forecast.demand import Demand, put_seconds
from s3unzip.platforms import one_function
from s3unzip.settings import Tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.burst_policies import Policy

TUNING = Tuning()
LARGE_ACCOUNT, SMALL_ACCOUNT = 1_000, 10
RESERVE = 200  # of 1,000: for direct runs, plans and reports
OURS = "(e)"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Archives that come to an account."""

    name: str
    make: Callable[[], list[Archive]]
    concurrency: int = LARGE_ACCOUNT
    workers: int = LARGE_ACCOUNT - RESERVE
    intake: int = RESERVE - 10
    quiet: str = ""  # the tenant with one archive


@dataclass(frozen=True, slots=True)
class Result:
    """What one candidate made of one scenario."""

    failed: int
    makespan: float  # seconds from the first put
    bound: float
    small_p95: float  # seconds from the put; NaN without small archives
    least_p95: float  # that any policy can have; NaN if not all small archives come at once
    dollars: float
    refused: int


@cache
def direct_seconds(members: int) -> float:
    """Return the seconds of the members of a direct run, without throttling."""
    workload = make_fixture(Fixture("d", "d", members, 2_000, 800), TUNING)
    function = one_function(rates.DIRECT_MEMORY_MB, member_seconds=TUNING.member_seconds)
    job = Demand(function, TUNING, 1).job_of(workload.tasks[0])
    return max(job.floor, put_seconds(job, function, random.Random(1)))


@cache
def shape(members: int) -> tuple[int, float, int, int, float]:
    """Return tasks, seconds and PUTs of one, workers and load of an archive of small members."""
    workload = make_fixture(Fixture("o", "o", members, 4_000, 1_600), TUNING)
    platform = aws()
    demand = Demand(platform, TUNING, workload.at_once)
    job = demand.job_of(workload.tasks[0])
    seconds = max(job.floor, put_seconds(job, platform, random.Random(1)))
    load = workload.at_once * job.members / seconds / rates.S3_PREFIX_WRITES
    return len(workload.tasks), seconds, job.members, workload.at_once, load


def direct(name: str, at: float = 0.0, tenant: str = "") -> Archive:
    """Return an archive of 20 members, which is a direct run."""
    return Archive(name, at, 0, direct_seconds(20), 20, tenant=tenant, small=True)


def orchestrated(name: str, members: int, at: float = 0.0) -> Archive:
    """Return an archive of small members that the state machine does."""
    tasks, seconds, puts, workers, load = shape(members)
    return Archive(name, at, tasks, seconds, puts, workers, load)


def wide(name: str, tasks: int, seconds: float = 20.0, at: float = 0.0) -> Archive:
    """Return an archive of tasks that move bytes, not requests."""
    return Archive(name, at, tasks, seconds, workers=min(tasks, 1_000))


def many(count: int, make: Callable[[str], Archive]) -> list[Archive]:
    """Return `count` archives."""
    return [make(f"{number:05d}") for number in range(count)]


def beside_giant() -> list[Archive]:
    """Return an archive of 10,000,000 members, and a small one each second."""
    small = [direct(f"small-{second:04d}", float(second)) for second in range(3_000)]
    return [orchestrated("giant", 10_000_000), *small]


def two_tenants() -> list[Archive]:
    """Return a burst of one tenant, and one archive of another in its middle."""
    loud = many(10_000, lambda name: direct(name, tenant="loud"))
    for one in loud:
        one.small = False
    return [*loud, direct("quiet", 20.0, tenant="quiet")]


def middling_beside_giants() -> list[Archive]:
    """Return two archives of 10,000 long tasks, and one of 100 short tasks each 10 seconds."""
    small = [wide(f"middling-{n:03d}", 100, 2.0, 10.0 * n) for n in range(20)]
    for one in small:
        one.small = True
    return [wide("giant-1", 10_000), wide("giant-2", 10_000), *small]


SCENARIOS = (
    Scenario("10,000 of 20 members", lambda: many(10_000, direct)),
    Scenario(
        "10,000 of 20 members, 10 Lambdas",
        lambda: many(10_000, direct),
        SMALL_ACCOUNT,
        workers=1,
        intake=9,
    ),
    Scenario("50 of 100,000 members", lambda: many(50, lambda name: orchestrated(name, 100_000))),
    Scenario("10,000,000 members, small ones beside", beside_giant),
    Scenario("two tenants, 10,000 and 1", two_tenants, quiet="quiet"),
    Scenario("500 of 8 tasks", lambda: many(500, lambda name: wide(name, 8))),
    Scenario(
        "200 of 8 tasks, 10 Lambdas",
        lambda: many(200, lambda name: wide(name, 8)),
        SMALL_ACCOUNT,
        workers=8,
        intake=2,
    ),
    Scenario("2 of 10,000 tasks, middling ones beside", middling_beside_giants),
)


def find_bound(archives: Sequence[Archive], scenario: Scenario) -> float:
    """Return the least seconds in which the workers and the account can do the work."""
    tasks = sum(one.tasks * one.task_seconds for one in archives)
    small = sum(one.task_seconds + DIRECT_SECONDS for one in archives if not one.tasks)
    puts = sum(max(1, one.tasks) * one.task_puts for one in archives)
    alone = max(one.arrives + rates.EVENT_SECONDS + one.task_seconds for one in archives)
    rate = rates.S3_PREFIX_WRITES * rates.S3_THROTTLED_EFFICIENCY
    all_at_once = (tasks + small) / scenario.concurrency
    return max(tasks / scenario.workers, all_at_once, puts / rate, alone)


def find_least_p95(archives: Sequence[Archive], scenario: Scenario) -> float:
    """Return the least seconds until 95 % of the small archives are done, if all come at once."""
    small = [one for one in archives if one.small]
    if not small or any(one.arrives for one in small):
        return math.nan
    return find_bound(small[: math.ceil(0.95 * len(small))], scenario)


def simulate(scenario: Scenario, kind: type[Policy]) -> Result:
    """Return what a candidate makes of a scenario."""
    archives = scenario.make()
    policy = kind(scenario.workers)
    world = World(scenario.concurrency, policy, scenario.intake, fair_queue=bool(scenario.quiet))
    policy.world = world
    world.run(archives)
    failed = [one for one in archives if one.failed or math.isnan(one.finished)]
    small = sorted(one.finished - one.arrives for one in archives if one.small)
    child = rates.EXPRESS_CHUNK_GB * rates.PRICE_EXPRESS_GB_SECOND
    counts = world.counts
    return Result(
        len(failed),
        max((one.finished for one in archives if not one.failed), default=math.nan),
        find_bound(archives, scenario),
        small[math.ceil(0.95 * len(small)) - 1] if small else math.nan,
        find_least_p95(archives, scenario),
        policy.dollars
        + counts.idle_child_seconds * child
        + counts.rounds * 6 * rates.PRICE_STANDARD_TRANSITION,
        counts.refused,
    )


def alone_seconds() -> float:
    """Return the seconds of one small archive that has everything for itself, cold."""
    return rates.EVENT_SECONDS + COLD.mean + DIRECT_SECONDS + direct_seconds(20)


def tell(scenario: Scenario, found: Result) -> None:
    """Print the figures of the chosen candidate."""
    letters = (letter if letter.isalnum() else "_" for letter in scenario.name)
    name = f"burst.simulated.{''.join(letters)}"
    print_figure(f"{name}.failed", found.failed, "archives")
    print_figure(f"{name}.of_bound", found.makespan / found.bound, "x")
    if not math.isnan(found.small_p95):
        print_figure(f"{name}.small_p95", found.small_p95, "s")
    if not math.isnan(found.least_p95):
        print_figure(f"{name}.small_p95_of_least", found.small_p95 / found.least_p95, "x")
    if scenario.quiet:
        alone = found.small_p95 / alone_seconds()
        print_figure("burst.simulated.quiet_tenant.of_alone", alone, "x")


def main() -> None:
    """Print the table, and the figures of the chosen candidate."""
    for scenario in SCENARIOS:
        print(f"\n{scenario.name}")
        print(f"  {'candidate':<36}failed  of bound  p95 small  refused  dollars more")
        for kind in POLICIES:
            found = simulate(scenario, kind)
            print(
                f"  {kind.title:<36}{found.failed:>6,}{found.makespan / found.bound:>10.2f}"
                f"{found.small_p95:>11.1f}{found.refused:>9,}{found.dollars:>14.4f}",
                flush=True,
            )
            if kind.title.startswith(OURS):
                tell(scenario, found)
    print("\nextra parts: " + "; ".join(f"{kind.title}: {kind.parts}" for kind in POLICIES))


if __name__ == "__main__":
    main()
