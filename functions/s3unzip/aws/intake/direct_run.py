"""A direct run in one invocation: the work, and what is left behind.

The records are written before the report, and the run is announced last. Where it
cannot be ended, what is done is written down and the execution is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.aws.admission.bids import planned_bid
from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.ending.after_success import end_source
from s3unzip.aws.ending.recheck import ArchiveLook, Recheck
from s3unzip.aws.environment import open_client, open_worker
from s3unzip.aws.events import announce, queue_nested, queue_recheck
from s3unzip.aws.executions import planned_input, read_inline_lists
from s3unzip.aws.telemetry import (
    logger,
    record_archive,
    record_handover,
    record_task,
)
from s3unzip.direct.bundle import Event, pack
from s3unzip.direct.run import do_tasks, hand_over
from s3unzip.run_files import CLAIMS
from s3unzip.runs.records import RunRecords
from s3unzip.settling.nested import nested_requests
from s3unzip.settling.settle import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.aws.environment import LambdaConfig
    from s3unzip.aws.intake.claims import Hold
    from s3unzip.context import Context
    from s3unzip.direct.plan import DirectPlan
    from s3unzip.model import Report, Request, Run, TaskReport


MIN_OVERTAKING_SECONDS = 1.0  # from the put of an archive to the first member of its run


def run_direct(plan: DirectPlan, hold: Hold, context: Context) -> None:
    """Do a claimed run; what cannot be done here is handed over to the state machine.

    Args:
        plan: of the run.
        hold: this invocation's claim of it.
        context: of the invocation; unlike the plan's it writes to the run store.

    Raises:
        StorageError, ServiceFaultError: the run can be neither ended nor handed over now.
    """
    config = open_worker()
    reports = do_tasks(plan)
    run, step, calls = plan.summary.run, plan.context, plan.context.calls()
    archive = ArchiveLook(run, config.trigger, step, calls)
    look = archive.look if _may_be_overtaken(run, reports, context) else None
    settled = settle(run, step, calls, look) if reports is not None else None
    if reports is None or settled is None or settled.left:
        _hand_over(plan, config, context)
        return
    for task in reports:
        record_task(task)
    report = replace(settled.report, records=f"{CLAIMS}/{hold.name}")
    if archive.is_replaced:
        recheck = Recheck(run.source.key, run.id, context.clock.now())
        queue_recheck(open_client("sqs"), config, recheck)
    _finish(plan, report, hold, config, context)


def _may_be_overtaken(run: Run, reports: Sequence[TaskReport] | None, context: Context) -> bool:
    """Say whether the run of a newer archive may have overtaken this one.

    Most direct runs are over before the event of a newer archive comes. To look at the archive is
    a request, and all others of a direct run besides its PUTs are four.
    """
    is_long = context.clock.now() - run.created > MIN_OVERTAKING_SECONDS
    return is_long or any(one.requests.retries for one in reports or ())


def _finish(
    plan: DirectPlan, report: Report, hold: Hold, config: LambdaConfig, context: Context
) -> None:
    """Write records and report, and tell of the run."""
    run = plan.summary.run
    requests = list(nested_requests(run, report, plan.context))
    RunRecords(plan.records).write_report(report)
    _keep(plan, hold, Event.NOTHING, config, context)
    event = Event.MISSING
    try:
        publish(report, requests, config, context)
        event = Event.SENT
    finally:
        # An operator's message shall send an event that is missing; the other copy of a message
        # shall not send one again.
        if event is Event.MISSING or hold.is_copy:
            _keep(plan, hold, event, config, context)
    end_source(run, report, context)
    record_archive(report)


def _keep(
    plan: DirectPlan, hold: Hold, event: Event, config: LambdaConfig, context: Context
) -> None:
    """Write the records of a run in place of its claim, and what became of its event."""
    bundle = pack(plan.records.objects, replace(hold.claim, event=event))
    config.stores.run_store(CLAIMS, context.calls()).write(hold.name, [bundle])


def publish(
    report: Report, requests: Sequence[Request], config: LambdaConfig, context: Context
) -> None:
    """Write the report of a run, queue the archives inside its archive, and announce it."""
    RunRecords.open(config.stores, report.run, context.calls()).write_report(report)
    if requests:
        logger.info("nested", queued=queue_nested(open_client("sqs"), config, requests))
    announce(open_client("events"), config, report)


def _hand_over(plan: DirectPlan, config: LambdaConfig, context: Context) -> None:
    """Let the state machine do what is left."""
    run = plan.summary.run
    hand_over(plan, config.stores.run_store(run.id, context.calls()))
    record_handover()
    inline = read_inline_lists(plan.summary, RunRecords(plan.records), config.tuning)
    payload = planned_input(config.work, plan.summary, inline)
    bid = planned_bid(plan.summary, config, context.clock.now())
    start = open_door(context).start(bid, payload)
    logger.info("handed over: %s", start.value, run=run.id)
