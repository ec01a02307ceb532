"""What a run asks for, by its plan or before it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.model import TaskKind
from s3unzip.runs.shares import Bid, busy_part

if TYPE_CHECKING:
    from s3unzip.aws.environment import LambdaConfig
    from s3unzip.model import PlanSummary, Request, Run
    from s3unzip.settings import Tuning


def unplanned_bid(run: str, asked: Request | Run, config: LambdaConfig, now: float) -> Bid:
    """Return the bid of a run that is not planned: as much as a run may have.

    Args:
        run: its id.
        asked: has the archive, and the time of its event.
        config: of the function.
        now: Unix seconds, the time of an archive without an event.
    """
    tuning = config.tuning
    return Bid(
        run,
        tenant=config.tenant_of(asked.source.key),
        workers=tuning.max_workers,
        load=tuning.rate_headroom,
        order=asked.event_time or now,
    )


def planned_bid(plan: PlanSummary, config: LambdaConfig, now: float) -> Bid:
    """Return the bid of a planned run.

    Among the runs that wait, a long one counts as if it had come later by its forecast seconds.
    """
    bid = unplanned_bid(plan.run.id, plan.run, config, now)
    tuning = config.tuning
    workers = max(1, plan.concurrency)
    return replace(
        bid,
        workers=workers,
        load=_load(plan, tuning),
        busy=busy_part(plan.tasks, plan.seconds * plan.concurrency, workers),
        order=bid.order + plan.seconds,
    )


def _load(plan: PlanSummary, tuning: Tuning) -> float:
    """Return how many times the rate of one prefix the PUTs of small members need."""
    puts = plan.kinds.get(TaskKind.BATCH.value, 0)
    return puts / plan.seconds / tuning.prefix_put_rate if plan.seconds else 0.0
