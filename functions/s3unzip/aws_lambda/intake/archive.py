"""Taking an archive: a direct run where it is small, else its plan and its execution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.aws_lambda.budget import refuse_cost
from s3unzip.aws_lambda.environment import open_client, open_worker
from s3unzip.aws_lambda.events import announce
from s3unzip.aws_lambda.executions import is_started, start_execution
from s3unzip.aws_lambda.intake.direct_run import run_direct
from s3unzip.aws_lambda.refusals import close_refusal, is_refused, note_refusal
from s3unzip.aws_lambda.telemetry import follow, logger, record_archive, record_plan
from s3unzip.direct.plan import plan_direct
from s3unzip.errors import NotFoundError, SourceChangedError
from s3unzip.model import Report, run_id
from s3unzip.planning.archive import make_plan
from s3unzip.reporting.refusal import write_refusal
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.aws_lambda.environment import LambdaConfig
    from s3unzip.aws_lambda.intake.direct_run import Message
    from s3unzip.context import Context
    from s3unzip.direct.plan import DirectPlan
    from s3unzip.model import Pin, PlanSummary, Request
    from s3unzip.platforms import Platform
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Tail


def take_archive(request: Request, message: Message, context: Context, function: Platform) -> None:
    """Extract what is there now, whatever the event said, or start its run.

    Args:
        request: what the event asks for.
        message: of the queue, that has the event.
        context: of the invocation.
        function: the invoked function as a platform of the forecast.
    """
    calls = context.calls()
    source = context.stores.source(request.source)
    length = context.tuning.tail_bytes
    try:
        tail = calls.run("get", lambda: source.tail(request.source, length))
        plan = _plan_direct(request, tail, context, function)
        if plan is None:
            _plan_archive(request, tail.pin, context, calls)
        elif not run_direct(plan, message, context):
            logger.warning("a direct run was lost", run=plan.summary.run.id)
            _plan_archive(request, tail.pin, context, calls, lost=True)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
    except SourceChangedError:  # the newer one has an event of its own
        logger.info("archive changed while it was planned", source=str(request.source))


def _plan_direct(
    request: Request, tail: Tail, context: Context, function: Platform
) -> DirectPlan | None:
    """Return the plan of a direct run, None where the archive is not one for that."""
    plan = plan_direct(request, tail, context, function)
    if plan is None:
        return None
    if refuse_cost(open_worker(), plan.context, plan.summary, plan.tasks) is not None:
        return None  # above the budget it is refused where all are
    return plan


def _plan_archive(
    request: Request, pin: Pin, context: Context, calls: Calls, *, lost: bool = False
) -> None:
    """Plan the archive and start its execution, unless there is one.

    A direct run that was lost may have handed its plan over, and outcomes that fit no other.
    """
    config = open_worker()
    run = run_id(request, pin)
    if is_started(open_client("stepfunctions"), config, run):  # its plan must stay as it is
        logger.info("run is known", run=run)
        return
    if is_refused(request, run, context, calls):
        logger.info("run was refused", run=run)
        return
    afford = partial(refuse_cost, config, context)
    handed = _find_plan(run, context) if lost else None
    plan = handed or make_plan(request, context, afford=afford, calls=calls)
    record_plan(plan, request)
    if isinstance(plan, Report):
        _refuse(plan, config, context)
        return
    follow(plan.run)
    started = start_execution(open_client("stepfunctions"), config, plan)
    logger.info("run started" if started else "run is known", tasks=plan.tasks)


def _find_plan(run: str, context: Context) -> PlanSummary | None:
    """Return the plan that is whole in the run store, None without one."""
    return RunRecords.open(context.stores, run, context.calls()).find_summary()


def _refuse(report: Report, config: LambdaConfig, context: Context) -> None:
    report = write_refusal(report, context)
    record_archive(report)
    note_refusal(config, report, context)
    announce(open_client("events"), config, report)
    close_refusal(report, context)
