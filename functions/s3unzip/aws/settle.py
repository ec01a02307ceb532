"""Function `settle`: the state Settle of a run, and the report after an execution failed.

The rules:

- The state Settle returns the next round, or ends the run. It may be repeated after a lost answer,
  or run late for an execution that was stopped: then the verdict on record stays.
- EventBridge reports each failed, stopped or timed-out execution, perhaps twice, late, or never. So
  the report has the time at which the execution ended. It replaces neither a newer report nor a
  better verdict. While a later execution of the run is at work, nothing is reported.
- If this execution may have written the report, the steps after a report are repeated: the
  execution may have failed there.
- When its functions have ended, too, the run's archive is compared once more with the current one.
"""

from typing import Any

import msgspec
from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import LambdaConfig, open_worker
from s3unzip.aws.events import parse_field
from s3unzip.aws.executions import (
    RunInput,
    end_run,
    execution_number,
    find_execution,
    find_run,
    follow_later,
    follow_newer,
    next_execution,
    next_state,
    read_input,
    state_of,
)
from s3unzip.aws.telemetry import bind_run, lambda_function, logger, timed
from s3unzip.context import Context
from s3unzip.errors import UnreadableRecordError, UsageError
from s3unzip.model import Next, Stop, Verdict, decode
from s3unzip.run_ids import run_of_execution
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import STOPPED
from s3unzip.settling.loop import EXECUTION_FAILED, FailedExecution, settle, settle_failed

MAX_MESSAGE = 1_000  # characters


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Settle a round, and return the next state; or report a run whose execution failed.

    An input with ``detail`` is an event of EventBridge, "Step Functions Execution Status Change".
    An input with ``wait`` comes from an execution that waited until the functions of another one
    had ended.
    """
    config = open_worker()
    if "detail" in event:
        run = run_of_execution(event["detail"]["name"])
        context = config.context(invocation, find_run(config, run))
        _end_failed(run, event["detail"], config, context)
        return {}
    if "wait" in event:
        return _compare_again(parse_field(event, "run", str), config, config.context(invocation))
    try:
        # ``list`` is that of the round that ended: `settle` sets that of the next one.
        state = msgspec.convert({**event, "list": ""}, Next)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event is not a state of a run: {error}") from error
    bind_run(state.run)
    context = config.context(invocation, find_run(config, state.run))
    with timed("SettleDuration"):
        settled = settle(state, context)
    if settled.report is not None:
        end_run(settled.report, config, context, is_first=settled.is_first)
    return next_state(settled.next, config)


def _compare_again(run: str, config: LambdaConfig, context: Context) -> dict[str, Any]:
    """Compare a run's archive once more with the current one, after all its functions ended."""
    bind_run(run)
    report = RunRecords.open(context.stores, run, context.calls()).find_report()
    if report is not None:
        follow_newer(report, config, context, late=True)
    return state_of(Next(run, "done"), config)


def _end_failed(run: str, detail: dict[str, Any], config: LambdaConfig, context: Context) -> None:
    """Report a run whose execution failed, timed out or was aborted."""
    bind_run(run)
    data = decode(detail.get("input") or "{}", dict[str, Any])
    if "wait" in data:  # it only waited to compare the archive
        _compare_again(run, config, context)
        return
    now = context.clock.now()
    began = detail.get("startDate", now * 1_000) / 1_000
    ended = detail.get("stopDate", now * 1_000) / 1_000
    if (
        next_execution(config, run, since=ended, failed_number=execution_number(detail["name"]))
        is None
    ):
        # A later execution is at work.
        logger.info("run goes on", status=detail["status"])
        return
    archive = _read_archive(run, data, config)
    settled = settle_failed(
        FailedExecution(
            run=run,
            stop=_explain(detail),
            began=began,
            ended=ended,
            request=archive.request,
            pin=archive.pin,
        ),
        context,
    )
    if settled is None:
        logger.warning("nothing is known of the run", status=detail["status"])
    # Otherwise another execution, or the intake function, wrote the report.
    elif began <= settled.report.finished <= ended:
        end_run(settled.report, config, context, is_first=settled.is_first)
        follow_later(settled.report, config, detail["name"])
    else:
        logger.info("run has a report", status=detail["status"])


def _read_archive(run: str, data: dict[str, Any], config: LambdaConfig) -> RunInput:
    """Return the archive in the input of an execution, or in that of the run's first execution."""
    archive = read_input(data)
    if archive.request is None:
        first = find_execution(config, run)
        if first is not None:
            return read_input(first.data)
    return archive


def _explain(detail: dict[str, Any]) -> Stop:
    """Return why an execution ended, by its event; one that somebody aborted was stopped."""
    reason = EXECUTION_FAILED
    if detail["status"] == "ABORTED":
        reason = STOPPED
    elif detail.get("error") == UnreadableRecordError.__name__:
        reason = RECORD_UNREADABLE
    causes = [str(detail[name]) for name in ("error", "cause") if detail.get(name)]
    message = ": ".join([f"the execution is {detail['status']}", *causes])
    return Stop(Verdict.FAILED, reason, message[:MAX_MESSAGE])
