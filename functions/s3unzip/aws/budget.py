"""The cost limit of an environment: a run above it is refused before its first PUT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.estimate import estimate_run, show_dollars
from s3unzip.model import Report, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.aws.environment import LambdaConfig
    from s3unzip.context import Context
    from s3unzip.model import PlanSummary, Task

REASON = "budget"


def refuse_cost(
    worker: LambdaConfig, context: Context, plan: PlanSummary, tasks: Sequence[Task]
) -> Report | None:
    """Return the report, not written yet, of a run that would cost too much; None if it may run.

    Nothing was extracted, so the verdict is that of a refused archive.
    """
    if worker.max_cost is None:
        return None
    platform = context.platform or worker.platform
    cost = estimate_run(plan, tasks, platform, context.tuning).cost.total
    if cost <= worker.max_cost:
        return None
    message = (
        f"the forecast is {show_dollars(cost, worker.max_cost)} for {plan.selected:,} members, "
        f"above the limit of {show_dollars(worker.max_cost, cost)}: raise "
        f"runs.max_cost of the environment {worker.environment}"
    )
    return _refused(plan, message, cost, context.clock.now())


def _refused(plan: PlanSummary, message: str, cost: float, now: float) -> Report:
    run = plan.run
    return Report(
        run=run.id,
        verdict=Verdict.REJECTED,
        source=run.source.public,
        pin=run.pin,
        destination=run.destination,
        options=run.options,
        reason=REASON,
        message=message,
        members=plan.members,
        directories=plan.directories,
        reasons={REASON: 1},
        event_time=run.event_time,
        started=plan.started,
        finished=now,
        plan_seconds=plan.plan_seconds,
        forecast_seconds=plan.seconds,
        forecast_cost=cost,
    )
