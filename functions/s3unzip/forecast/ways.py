"""Which way an archive takes on AWS, a direct run or the state machine, and its forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast.estimate import make_forecast
from s3unzip.model import Task, TaskKind
from s3unzip.platforms import one_function

if TYPE_CHECKING:
    from s3unzip.forecast.estimate import Forecast
    from s3unzip.forecast.workload import Workload
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning


def forecast_archive(
    workload: Workload, platform: Platform, tuning: Tuning, *, seed: int = 1
) -> Forecast:
    """Return the forecast of `workload` by the way that it takes; the same for the same seed.

    Args:
        workload: with the tasks for the state machine.
        platform: of the state machine's workers; any other than AWS has one way.
        tuning: has the bounds of direct runs.
        seed: of the simulation.
    """
    orchestrated = make_forecast(workload, platform, tuning, seed=seed)
    if platform.name != "aws" or not is_within(workload, tuning):
        return orchestrated
    function = one_function(rates.DIRECT_MEMORY_MB, member_seconds=tuning.member_seconds)
    direct = make_forecast(merge_tasks(workload), function, tuning, seed=seed)
    seconds = direct.duration.expected
    sooner = seconds <= min(tuning.max_direct_seconds, orchestrated.duration.expected)
    return direct if sooner else orchestrated


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
