"""Which way an archive takes on AWS, a direct run or the state machine, and its forecast."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast.estimate import make_forecast
from s3unzip.model import Task, TaskKind
from s3unzip.planning.lists import WorkList, choose_inline, divide_tasks, share_workers
from s3unzip.platforms import one_function

if TYPE_CHECKING:
    from s3unzip.forecast.estimate import Forecast
    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning


class Way(StrEnum):
    """How an archive is extracted on AWS."""

    DIRECT = "direct"  # by the function that gets its event
    INLINE = "inline"  # by the state machine, all tasks in inline Maps
    DISTRIBUTED = "distributed"  # by the state machine, with a Distributed Map at least


class ForecastWay(NamedTuple):
    """A forecast, and the way that it is of."""

    way: Way
    forecast: Forecast


def forecast_archive(
    workload: Workload, platform: Platform, tuning: Tuning, *, seed: int = 1
) -> Forecast:
    """Return the forecast of `choose_way`; of any platform other than AWS, its only one."""
    if platform.name != "aws":
        return make_forecast(workload, platform, tuning, seed=seed)
    return choose_way(workload, platform, tuning, seed=seed).forecast


def choose_way(
    workload: Workload, platform: Platform, tuning: Tuning, *, seed: int = 1
) -> ForecastWay:
    """Return the way that `workload` takes, and its forecast; the same for the same seed.

    Args:
        workload: with the tasks for the state machine.
        platform: AWS, of the state machine's workers.
        tuning: has the bounds of direct runs.
        seed: of the simulation.
    """
    orchestrated = make_forecast(workload, platform, tuning, seed=seed)
    way = Way.INLINE if _is_inline(workload, platform, tuning) else Way.DISTRIBUTED
    if not is_within(workload, tuning):
        return ForecastWay(way, orchestrated)
    function = one_function(rates.DIRECT_MEMORY_MB, member_seconds=tuning.member_seconds)
    direct = make_forecast(merge_tasks(workload), function, tuning, seed=seed)
    seconds = direct.duration.expected
    sooner = seconds <= min(tuning.max_direct_seconds, orchestrated.duration.expected)
    return ForecastWay(Way.DIRECT, direct) if sooner else ForecastWay(way, orchestrated)


def _is_inline(workload: Workload, platform: Platform, tuning: Tuning) -> bool:
    """Say whether no list of tasks needs a Distributed Map."""
    bound = replace(tuning, max_workers=min(tuning.max_workers, platform.workers))
    shares = share_workers(workload.tasks, bound)
    chosen = choose_inline(workload.tasks, shares, bound)
    needed = {WorkList.WHOLE}
    if divide_tasks(workload.tasks)[1]:
        needed = set(WorkList)
    return needed <= chosen.keys()


def is_within(workload: Workload, tuning: Tuning) -> bool:
    """Say whether an archive is within the bounds of direct runs, its seconds apart."""
    return (
        workload.members <= tuning.max_direct_members
        and workload.directory_bytes <= tuning.tail_bytes
        and max(workload.bytes_in, workload.bytes_out) <= tuning.max_direct_bytes
        and all(
            task.kind is TaskKind.BATCH
            or max(task.size, task.span[1] - task.span[0]) <= tuning.max_direct_member_bytes
            for task in workload.tasks
        )
    )


def merge_tasks(workload: Workload) -> Workload:
    """Return the workload with all members in one batch, as a direct run does them."""
    if not workload.tasks:
        return workload
    whole = Task(
        id="batch-0000000",
        kind=TaskKind.BATCH,
        rows=(0, workload.rows_bytes),
        members=workload.members,
        span=(0, workload.bytes_in),
        size=workload.bytes_out,
        seconds=sum(task.seconds for task in workload.tasks),
    )
    kinds = {TaskKind.BATCH.value: workload.members}
    return replace(workload, tasks=(whole,), kinds=kinds, at_once=1)
