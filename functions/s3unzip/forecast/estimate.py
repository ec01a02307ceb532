"""The forecast of a run: its duration, its cost, and what determines both.

`make_forecast` simulates the same plan several times: usual days that differ at random, one good
day and one bad day. The same seed gives the same forecast.
"""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import rates
from s3unzip.errors import BudgetError, UsageError
from s3unzip.forecast.bounds import Bound, list_bounds
from s3unzip.forecast.cost import Cost, price
from s3unzip.forecast.direct import simulate_run
from s3unzip.forecast.steps import Step
from s3unzip.forecast.workload import Bin, make_workload
from s3unzip.model import Requests
from s3unzip.money import show_dollars
from s3unzip.platforms import bracket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.forecast.workload import Workload
    from s3unzip.model import PlanSummary, Task
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning

USUAL_DAYS = 5
MANY_TASKS = (
    20_000  # from this number of tasks on, one usual day is enough: random differences average out
)


class Range(Struct, frozen=True):
    """The values of a good, a usual and a bad day."""

    low: float
    expected: float
    high: float


class Forecast(Struct, frozen=True):
    """The forecast of a run; seconds, bytes and dollars."""

    title: str
    platform: str
    members: int
    kinds: dict[str, int]  # members by task kind
    sizes: tuple[Bin, ...]
    bytes_in: int
    bytes_out: int
    tasks: int
    at_once: int  # tasks
    duration: Range  # from the event, or the command, to the report
    first_object: Range  # when the first member can be read
    members_per_second: float
    steps: tuple[Step, ...]  # the critical path of the usual day
    chain: tuple[str, ...]  # the tasks on it
    bounds: tuple[Bound, ...]  # on the tasks' time, the highest first
    tasks_seconds: float  # the tasks' time on the usual day
    throttled_seconds: float  # share of it in which the prefix's rate is the limit
    longest_task: Range
    requests: Requests
    cost: Cost
    dollars: Range
    warnings: tuple[str, ...]
    seed: int


def make_forecast(
    workload: Workload, platform: Platform, tuning: Tuning, *, seed: int = 1
) -> Forecast:
    """Return the forecast of `workload` on `platform`; equal seeds give equal forecasts."""
    days = USUAL_DAYS if len(workload.tasks) <= MANY_TASKS else 1
    usual = [simulate_run(workload, platform, tuning, _dice(seed, day)) for day in range(days)]
    good, bad = (
        simulate_run(workload, one, tuning, _dice(seed, days + n))
        for n, one in enumerate(bracket(platform))
    )
    seconds = median(course.seconds for course in usual)
    typical = min(usual, key=lambda course: abs(course.seconds - seconds))
    courses = [good, *usual, bad]
    cost = price(typical.usage, platform)
    longest = _range([course.longest for course in courses], typical.longest)
    at_once = max(1, min(workload.at_once, platform.workers, len(workload.tasks)))
    return Forecast(
        title=workload.title,
        platform=platform.name,
        members=workload.members,
        kinds=workload.kinds,
        sizes=workload.sizes,
        bytes_in=workload.bytes_in,
        bytes_out=workload.bytes_out,
        tasks=len(workload.tasks),
        at_once=at_once,
        duration=_range([course.seconds for course in courses], typical.seconds),
        first_object=_range(
            [course.first_object for course in courses],
            median(
                course.first_object for course in usual
            ),  # the typical day is typical at its end
        ),
        members_per_second=workload.members / typical.seconds if typical.seconds else 0.0,
        steps=typical.steps,
        chain=typical.chain,
        bounds=list_bounds(typical.jobs, platform, at_once),
        tasks_seconds=typical.tasks_seconds,
        throttled_seconds=typical.throttled_seconds,
        longest_task=longest,
        requests=typical.usage.requests,
        cost=cost,
        dollars=_range([price(one.usage, platform).total for one in courses], cost.total),
        warnings=_warn(platform, longest),
        seed=seed,
    )


def forecast_run(
    summary: PlanSummary, tasks: Sequence[Task], platform: Platform, tuning: Tuning
) -> Forecast:
    """Return the forecast of a planned run."""
    workload = make_workload(tasks, tuning, title=summary.run.id, summary=summary)
    return make_forecast(workload, platform.storing(summary.run.options.objects), tuning)


def check_budget(forecast: Forecast, max_cost: float | None) -> None:
    """Refuse a run whose expected cost is above `max_cost` dollars; None: no limit.

    Raises:
        BudgetError: the cost is above the limit.
        UsageError: the limit is negative or not a number.
    """
    if max_cost is None:
        return
    if not max_cost >= 0:
        raise UsageError(f"the cost limit must be 0 or more dollars, not {max_cost}")
    expected = forecast.cost.total
    if expected > max_cost:
        raise BudgetError(
            f"the forecast is {show_dollars(expected, max_cost)} for {forecast.members:,} members, "
            f"above the limit of {show_dollars(max_cost, expected)}; "
            f"{show_dollars(forecast.cost.unavoidable)} of it is one PUT a member. "
            "Raise --max-cost, or extract fewer members with --include, --exclude or --limit"
        )


def _dice(seed: int, day: int) -> random.Random:
    return random.Random(seed * 1_000 + day)  # noqa: S311 - a simulation, not a secret


def _range(values: Sequence[float], expected: float) -> Range:
    return Range(min(values), expected, max(values))


def _warn(platform: Platform, longest: Range) -> tuple[str, ...]:
    """Return a warning if a task may outlast its Express execution."""
    if not platform.memory_gb:
        return ()
    limit = rates.EXPRESS_SECONDS  # below that of a Lambda
    if longest.expected > limit:
        said = f"the longest task takes {longest.expected:.0f} s"
    elif longest.high > limit:
        said = f"on a bad day the longest task takes {longest.high:.0f} s"
    else:
        return ()
    return (f"{said}; an Express execution ends at {limit:.0f}",)
