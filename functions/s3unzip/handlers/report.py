"""Function `report`: settles a run, by a state of it or after its execution failed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import asdict

from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.ending.after_success import end_source
from s3unzip.aws.ending.failures import (
    Ending,
    RedrivenError,
    note_failure,
    unplanned_report,
)
from s3unzip.aws.ending.recheck import ArchiveLook, Recheck
from s3unzip.aws.environment import open_client, open_worker
from s3unzip.aws.events import announce, queue_nested, queue_recheck
from s3unzip.aws.invocation import parse_field
from s3unzip.aws.refusals import is_refused
from s3unzip.aws.telemetry import bind_run, lambda_function, logger, record_archive, timed
from s3unzip.aws.warming import is_warm_up, warm_up
from s3unzip.errors import RunStoppedError, S3UnzipError
from s3unzip.model import Run, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.runs.rounds import Round, next_round
from s3unzip.settling.nested import nested_requests
from s3unzip.settling.page_writer import write_refusal
from s3unzip.settling.retry import run_of
from s3unzip.settling.settle import settle

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from s3unzip.context import Context
    from s3unzip.model import Settled
    from s3unzip.stores.calls import Calls


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Settle the run; announce it unless the execution must repeat unfinished tasks.

    Raises:
        RunStoppedError: a right was missing for the end of a member whose tasks are done. The
            report is written. The execution fails here, so that a redrive enters this state again.
    """
    if is_warm_up(event):
        return warm_up()
    step = open_worker().context(context)
    failure = event.get("detail")  # EventBridge: the execution failed, timed out or was aborted
    if not failure:
        return _settle(parse_field(event, "run", Run), event, step, step.calls())
    try:
        return _end_failed(failure, step)
    except RedrivenError as error:
        logger.info(str(error), run=failure["name"])
        return _nothing_left(failure["status"])


def _end_failed(failure: dict[str, Any], step: Context) -> dict[str, Any]:
    """Report a run whose execution failed.

    Raises:
        RedrivenError: it was redriven.
    """
    _check_not_redriven(failure, step)
    _release(failure["name"], failure, step)
    # The summary is the plan's last object: without it there is nothing to settle by.
    calls = step.calls()
    records = RunRecords.open(open_worker().stores, run_of(failure["name"]), calls)
    plan = records.find_summary()
    if plan is None:
        return _end_unplanned(failure, step)
    return _settle(plan.run, failure, step, calls)


def _settle(run: Run, ending: dict[str, Any], step: Context, calls: Calls) -> dict[str, Any]:
    """Settle a run; `ending` is the step's event, or the detail of the failure's."""
    worker = open_worker()
    failure = ending if "status" in ending else None
    bind_run(run)
    execution = ending.get("name") or ending.get("execution") or run.id
    end = Ending(RunRecords.open(worker.stores, run.id, calls), run.id, execution)
    archive = ArchiveLook(run, worker.trigger, step, calls)
    check = partial(_check_not_redriven, failure, step) if failure else None

    def look_and_check() -> None:
        archive.look()
        (check or end.check)()

    with timed("ReportDuration"):
        settled = settle(run, step, calls, look_and_check, in_rounds=not failure)
    if not failure and not settled.left and settled.report.verdict is Verdict.FAILED:
        raise RunStoppedError(settled.report.message or "the run cannot be ended")
    if check:
        check()
    if failure or not settled.left:
        record_archive(settled.report, first=end.is_first)
        if archive.is_replaced:
            recheck = Recheck(run.source.key, end.name(failure), step.clock.now())
            queue_recheck(open_client("sqs"), worker, recheck)
            logger.info("archive was replaced during the run", run=run.id)
        _end(run, settled, ending, step)
        if not failure:  # before the archive is moved, which may take minutes
            _release(execution, ending, step)
        end_source(run, settled.report, step)
    earlier = parse_field(ending, "earlier", Round) if "earlier" in ending else None
    again = asdict(next_round(settled.left, earlier))
    return {"verdict": settled.report.verdict.value, **again}


def _check_not_redriven(failure: dict[str, Any], step: Context) -> None:
    """Compare how often a failed execution was redriven with what its failure says.

    The failure comes late if the function could not take it before, and somebody may redrive the
    execution while the function is at work. DescribeExecution may return an older state
    ("eventually consistent"), so its count is compared, not its status.

    Raises:
        RedrivenError: it was redriven since: it reports its own end.
    """
    if "redriveCount" not in failure:
        return
    known: int = failure["redriveCount"]
    if open_door(step, failure["stateMachineArn"]).count_redrives(failure["name"]) > known:
        raise RedrivenError("execution was redriven")


def _nothing_left(verdict: str) -> dict[str, Any]:
    return {"verdict": verdict, **asdict(next_round(0, None))}


def _release(execution: str, ending: dict[str, Any], step: Context) -> None:
    """Give the workers of an execution to others; a fault is no reason not to report the run.

    What stays in the ledger then is found later (`s3unzip.aws.admission.door`).
    """
    machine = ending.get("stateMachineArn") or ending.get("machine") or ""
    try:
        open_door(step, machine).release(execution)
    except (S3UnzipError, BotoCoreError, ClientError) as error:
        logger.warning("workers are not given to others", error=str(error))


def _end_unplanned(failure: dict[str, Any], step: Context) -> dict[str, Any]:
    """Report a run whose planner failed: it has no plan to settle by.

    A planner goes on after its execution was stopped. If it refused the archive, its report stays.
    """
    worker = open_worker()
    report = unplanned_report(failure, step.clock.now())
    calls = step.calls()
    if is_refused(report, report.run, step, calls):
        return _nothing_left(report.verdict.value)
    _check_not_redriven(failure, step)
    report = write_refusal(report, step, calls)
    record_archive(report)
    note_failure(RunRecords.open(worker.stores, report.run), failure)
    _check_not_redriven(failure, step)
    announce(open_client("events"), worker, report)
    return _nothing_left(report.verdict.value)


def _end(run: Run, settled: Settled, ending: dict[str, Any], step: Context) -> None:
    """Announce a run that ended; `ending` is the step's event, or the failure's detail.

    Raises:
        RedrivenError: a failed execution was redriven since: it announces its own end.
    """
    worker = open_worker()
    count = queue_nested(open_client("sqs"), worker, nested_requests(run, settled.report, step))
    if count:
        logger.info("nested archives", queued=count)
    if "status" in ending:
        note_failure(RunRecords.open(worker.stores, run.id), ending)
        _check_not_redriven(ending, step)
    announce(open_client("events"), worker, settled.report)
