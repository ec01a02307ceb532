"""The planner: a state of an execution that reads a directory too large for the intake.

Step Functions tries it again after a fault. A plan that is whole is taken as it is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from s3unzip.aws.admission.bids import planned_bid
from s3unzip.aws.admission.door import limit_workers
from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.budget import refuse_cost
from s3unzip.aws.ending.failures import report_without_plan
from s3unzip.aws.environment import open_client, open_worker
from s3unzip.aws.events import announce
from s3unzip.aws.executions import planned_input, read_inline_lists
from s3unzip.aws.refusals import close_refusal, is_refused, note_refusal
from s3unzip.aws.telemetry import bind_run, logger, record_archive, record_plan
from s3unzip.errors import NotFoundError, SourceChangedError
from s3unzip.model import Report, Stop, Verdict, run_id
from s3unzip.planning.plan_writer import make_plan
from s3unzip.runs.records import RunRecords
from s3unzip.settling.page_writer import write_refusal

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import PlanSummary, Request
    from s3unzip.planning.reading import Reading
    from s3unzip.stores.calls import Calls


def plan_run(run: str, request: Request, context: Context) -> dict[str, Any]:
    """Plan a run; return what its execution goes on with, ``refused`` where it ends here.

    Raises:
        UsageError: the request is wrong.
        StorageError, ServiceFaultError: the archive cannot be read, or the plan not be written.
    """
    config = open_worker()
    calls = context.calls()
    records = RunRecords.open(context.stores, run, calls)
    with ThreadPoolExecutor(2, thread_name_prefix="earlier") as pool:  # what attempts left
        refused = pool.submit(is_refused, request, run, context, calls)
        planned = pool.submit(records.find_summary)
    if refused.result():  # by an attempt whose answer was lost
        return _leave(run, context)
    outcome: PlanSummary | Report | None = planned.result()
    if outcome is None:
        outcome = _plan(run, request, context, calls)
        record_plan(outcome, request)
    if isinstance(outcome, Report):
        refuse(outcome, context)
        return _leave(run, context)
    bind_run(outcome.run)
    logger.info("planned", tasks=outcome.tasks)
    bid = planned_bid(outcome, config, context.clock.now())
    with ThreadPoolExecutor(1, thread_name_prefix="share") as beside:
        share = beside.submit(open_door(context).plan, bid)
        inline = read_inline_lists(outcome, records, config.tuning)
    return limit_workers(planned_input(config.work, outcome, inline), share.result())


def _leave(run: str, context: Context) -> dict[str, Any]:
    """End an execution whose archive is refused; others get its workers at their next look."""
    open_door(context).release(run)
    return {"refused": True}


def refuse(report: Report, context: Context) -> None:
    """Write the report of an archive that nothing is extracted of, and tell of it."""
    report = write_refusal(report, context)
    record_archive(report)
    note_refusal(open_worker(), report, context)
    announce(open_client("events"), open_worker(), report)
    close_refusal(report, context)


def _plan(run: str, request: Request, context: Context, calls: Calls) -> PlanSummary | Report:
    """Plan the version that the run is of; of any other report that the archive changed."""
    started = context.clock.now()

    def check(reading: Reading) -> None:
        if run_id(request, reading.pin) != run:
            raise SourceChangedError(f"{request.source}: overwritten since its event came")

    try:
        afford = partial(refuse_cost, open_worker(), context)
        outcome = make_plan(request, context, check, afford=afford, calls=calls)
    except (SourceChangedError, NotFoundError) as change:
        return _changed(run, request, str(change), started, context)
    if isinstance(outcome, Report) and outcome.run != run:
        message = f"{request.source}: overwritten since its event came"
        return _changed(run, request, message, started, context)
    return outcome


def _changed(run: str, request: Request, message: str, started: float, context: Context) -> Report:
    stop = Stop(Verdict.SOURCE_CHANGED, reason="source-changed", message=message)
    return report_without_plan(run, request, stop, started, context.clock.now())
