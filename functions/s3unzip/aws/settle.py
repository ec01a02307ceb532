"""The function `settle`: the Settle state of a run, and the report after an execution has failed.

The rules:

- The Settle state returns the next round, or ends the run. The state may be repeated after a lost
  response, or may run late, after its execution was stopped. In both cases, the recorded verdict
  remains.
- EventBridge reports each failed, stopped or timed-out execution, perhaps twice, late or never.
  Therefore the report has the time at which the execution ended, and replaces neither a newer
  report nor a better verdict. While a later execution of the run is running, nothing is reported.
- An execution may fail during the steps that follow the report. Therefore these steps are repeated
  if the failed execution may have written the recorded report.
- After the functions of a failed execution have also ended, the version that the run extracted is
  compared once more with the current version of the archive.
"""

import time
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig, convert_input, load_config
from s3unzip.aws.executions import (
    RunInput,
    compare_later,
    end_run,
    extract_if_replaced,
    find_execution,
    find_recorded_run,
    machine_data,
    next_execution_name,
)
from s3unzip.aws.telemetry import add_metrics, bind_run, lambda_function, logger
from s3unzip.context import Context
from s3unzip.errors import UnreadableRecordError
from s3unzip.model import Next, Stop, Verdict, decode
from s3unzip.run_ids import execution_name, execution_number, run_of_execution
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords
from s3unzip.runs.step import STOPPED
from s3unzip.settling.loop import EXECUTION_FAILED, settle, settle_failed

MAX_MESSAGE = 1_000  # maximum number of characters


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Settle a round and return the next state, or report a run whose execution failed.

    The event has one of three forms:

    - With ``detail``: EventBridge's "Step Functions Execution Status Change".
    - With ``wait``: data of an execution without tasks. The execution has waited until the
      functions of a failed execution had ended, because these functions may overwrite objects of a
      newer version of the archive. The newer version, if there is one, is extracted again.
    - Otherwise: the state of a run after a round.
    """
    config = load_config()
    if "detail" in event:
        _handle_failure(event["detail"], config, invocation)
        return {}
    if "wait" in event:  # no member is written, so the route of the run does not matter
        return _extract_newer_version(
            convert_input(event, RunInput).run, config, config.context(invocation)
        )
    state = convert_input(event, Next)
    bind_run(state.run)
    context = config.context(invocation, find_recorded_run(config, state.run))
    started = time.perf_counter()
    settled = settle(state, context)
    add_metrics(SettleDuration=time.perf_counter() - started)
    if settled.report is not None:
        end_run(settled.report, config, context, is_first=settled.is_first)
    return machine_data(settled.next, config)


def _handle_failure(
    detail: dict[str, Any], config: LambdaConfig, invocation: LambdaContext
) -> None:
    run_input = _read_input(detail)
    context = config.context(invocation, find_recorded_run(config, run_input.run))
    if run_input.wait:  # the failed execution has no tasks; it only looks for a newer version
        _extract_newer_version(run_input.run, config, context)
    else:
        _end_failed(run_input, detail, config, context)


def _extract_newer_version(run: str, config: LambdaConfig, context: Context) -> dict[str, Any]:
    """Start a run if there is a newer version of the archive; return data that ends the execution.

    All functions of the run have ended, so none can overwrite members of the newer version later.
    """
    bind_run(run)
    report = RunRecords.open(context.stores, run, context.calls()).find_report()
    if report is not None:
        extract_if_replaced(report, config, context, functions_ended=True)
    return machine_data(Next(run, "done"), config)


def _read_input(detail: dict[str, Any]) -> RunInput:
    """Return an execution's input, taken from the event that reports its end.

    If the input is too long, the event does not contain it, and the run is derived from the name of
    the execution. The input has priority, because a user can choose any name in the console.
    """
    run_input = decode(detail.get("input") or "{}", RunInput)
    return replace(run_input, run=run_input.run or run_of_execution(detail["name"]))


def _end_failed(
    run_input: RunInput, detail: dict[str, Any], config: LambdaConfig, context: Context
) -> None:
    """Report a run whose execution failed, timed out or was aborted."""
    run = run_input.run
    bind_run(run)
    ended = detail["stopDate"] / 1_000  # the times in the event are in milliseconds
    failed_number = execution_number(detail["name"])
    if next_execution_name(config, run, since=ended, failed_number=failed_number) is None:
        # A later execution is running.
        logger.info("run continues", status=detail["status"])
        return
    began = _find_start(config, detail, ended)
    # The input of a later execution may have no request: use that of the first execution.
    if run_input.request is None:
        first = find_execution(config, execution_name(run))
        if first is not None:
            run_input = first.input
    settled = settle_failed(
        run,
        _explain(detail),
        context,
        began=began,
        ended=ended,
        request=run_input.request,
        pin=run_input.pin,
    )
    if settled is None:
        logger.warning("run has neither request nor records", status=detail["status"])
        return
    report, is_first = settled
    if began <= report.finished <= ended:  # the failed execution may have written the report
        end_run(report, config, context, is_first=is_first)
        compare_later(report, config, detail["name"])
    else:  # another execution or the intake function wrote the report, and takes the next steps
        logger.info("run has a report", status=detail["status"])


def _find_start(config: LambdaConfig, detail: dict[str, Any], ended: float) -> float:
    """Return when the execution that ended at `ended` began, or began again after a redrive."""
    execution = find_execution(config, detail["name"])
    # If the execution is gone or has been redriven since, only the event contains the start.
    if execution is None or execution.began >= ended:
        return float(detail["startDate"] / 1_000)
    return execution.began


def _explain(detail: dict[str, Any]) -> Stop:
    """Return why an execution ended, from the `detail` of the event about it.

    An aborted execution counts as stopped by a user.
    """
    reason = EXECUTION_FAILED
    if detail["status"] == "ABORTED":
        reason = STOPPED
    elif detail.get("error") == UnreadableRecordError.__name__:
        reason = RECORD_UNREADABLE
    causes = [str(detail[name]) for name in ("error", "cause") if detail.get(name)]
    return Stop(
        Verdict.FAILED,
        reason,
        ": ".join([f"the execution is {detail['status']}", *causes])[:MAX_MESSAGE],
    )
