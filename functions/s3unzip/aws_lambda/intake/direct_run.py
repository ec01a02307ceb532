"""A direct run in one invocation: the claim, the work, and what is left behind.

Of all invocations that meet the same archive one has the claim. It writes the
records before the report, and announces the run last. Where it cannot end the
run it writes down what is done and starts the execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.aws_lambda.environment import open_client, open_worker
from s3unzip.aws_lambda.events import announce, queue_nested
from s3unzip.aws_lambda.executions import start_execution
from s3unzip.aws_lambda.intake.claims import FOLDER, Taken, claim_name, take_claim
from s3unzip.aws_lambda.telemetry import (
    follow,
    logger,
    record_archive,
    record_handover,
    record_plan,
    record_task,
)
from s3unzip.direct.bundle import Claim, pack
from s3unzip.direct.run import do_tasks, hand_over, settle_run
from s3unzip.errors import ClaimedError
from s3unzip.model import Report, decode
from s3unzip.reporting.nested import nested_requests
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.aws_lambda.environment import LambdaConfig
    from s3unzip.context import Context
    from s3unzip.direct.plan import DirectPlan


class Message(NamedTuple):
    """The queue's message that an invocation works on."""

    id: str
    attempts: int  # this one included


def run_direct(plan: DirectPlan, message: Message, context: Context) -> bool:
    """Do the run, or leave it to whom it belongs; return False where its invocation was lost.

    Args:
        plan: of the run.
        message: that asks for the run.
        context: of the invocation; unlike the plan's it writes to the run store.

    Raises:
        ClaimedError: an earlier attempt of the same message may still be at work.
        StorageError, ServiceFaultError: the run can be neither ended nor handed over now.
    """
    config, run = open_worker(), plan.summary.run
    follow(run)
    now = context.clock.now()
    claim = Claim(run.id, message.id, now + context.clock.remaining())
    name = claim_name(run.id, plan.modified)
    taken = take_claim(config.stores.run_store(FOLDER, context.calls()), name, claim)
    if taken is not None:
        return _leave(taken, message, config, context)
    record_plan(plan.summary, plan.request)
    reports = do_tasks(plan)
    settled = settle_run(plan) if reports is not None else None
    if reports is None or settled is None or settled.left:
        _hand_over(plan, config, context)
        return True
    for task in reports:
        record_task(task)
    report = replace(settled.report, records=f"{FOLDER}/{name}")
    _finish(plan, report, claim, config, context)
    return True


def _finish(
    plan: DirectPlan, report: Report, claim: Claim, config: LambdaConfig, context: Context
) -> None:
    """Write records and report, and tell of the run."""
    run = plan.summary.run
    requests = list(nested_requests(run, report, plan.context)) if run.options.nested_depth else []
    RunRecords(plan.records).write_report(report)
    records = pack(plan.records.objects, claim)
    name = (report.records or "").removeprefix(f"{FOLDER}/")
    config.stores.run_store(FOLDER, context.calls()).write(name, [records])
    _publish(report, config, context)
    if requests:
        logger.info("nested", queued=queue_nested(open_client("sqs"), config, requests))
    record_archive(report)


def _publish(report: Report, config: LambdaConfig, context: Context) -> None:
    RunRecords.open(config.stores, report.run, context.calls()).write_report(report)
    announce(open_client("events"), config, report)


def _leave(taken: Taken, message: Message, config: LambdaConfig, context: Context) -> bool:
    """Leave the run to its holder; return False where that is lost."""
    claim = taken.claim
    again = claim.holder == message.id
    if taken.files:
        # The invocation may have been killed after the records and before the event.
        if again and message.attempts > 1:
            _publish(decode(taken.files[run_files.REPORT], Report), config, context)
        logger.info("run is known", run=claim.run)
        return True
    left = claim.until - context.clock.now()
    if left < 0:
        return False
    if again:
        raise ClaimedError(f"{claim.run}: an earlier attempt may be at work", left)
    logger.info("run is known", run=claim.run)  # the holder's message comes again if it fails
    return True


def _hand_over(plan: DirectPlan, config: LambdaConfig, context: Context) -> None:
    """Let the state machine do what is left."""
    run = plan.summary.run
    hand_over(plan, config.stores.run_store(run.id, context.calls()))
    record_handover()
    started = start_execution(open_client("stepfunctions"), config, plan.summary)
    logger.info("handed over" if started else "run is known", run=run.id)
