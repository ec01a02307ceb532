"""Function `settle`: the state Settle of a run, and the report of one whose execution failed."""

from typing import Any

import msgspec
from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import LambdaConfig, open_worker
from s3unzip.aws.events import parse_field
from s3unzip.aws.executions import end_run, state_of
from s3unzip.aws.telemetry import bind_run, lambda_function, logger, timed
from s3unzip.context import Context
from s3unzip.errors import UsageError
from s3unzip.model import Next, Pin, Request, Verdict, decode, run_of_execution
from s3unzip.runs.records import RunRecords
from s3unzip.settling.loop import settle, settle_failed

MAX_CAUSE = 1_000  # characters


@lambda_function
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Settle a round: the answer is what comes next. Or report a run that cannot go on.

    With ``detail`` it is an event of EventBridge, "Step Functions Execution Status Change".
    """
    config = open_worker()
    step = config.context(context)
    if "detail" in event:
        _end_failed(event["detail"], config, step)
        return {}
    try:
        before = msgspec.convert({**event, "list": ""}, Next)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event is no step of a run: {error}") from error
    bind_run(before.run)
    with timed("SettleDuration"):
        settled = settle(before, step)
    if settled.report is not None:
        end_run(settled.report, config, step)
    return state_of(settled.next, config)


def _end_failed(detail: dict[str, Any], config: LambdaConfig, step: Context) -> None:
    """Report a run whose execution failed, timed out or was aborted.

    A report that is there stays: the event may come hours later, when the run went on and ended. If
    this execution wrote it, what follows it is repeated, for that may have failed.
    """
    run = run_of_execution(detail["name"])
    bind_run(run)
    cause = ": ".join(str(detail[name]) for name in ("error", "cause") if detail.get(name))
    message = f"the execution is {detail['status']}: {cause[:MAX_CAUSE]}".removesuffix(": ")
    given = decode(detail.get("input") or "{}", dict[str, Any])
    request = parse_field(given, "request", Request) if "request" in given else None
    pin = parse_field(given, "pin", Pin) if given.get("pin") else None
    report = settle_failed(run, message, step, request, pin)
    known = RunRecords.open(step.stores, run, step.calls()).find_report()
    began, ended = (detail.get(name, 0) / 1_000 for name in ("startDate", "stopDate"))
    if report is not None:
        end_run(report, config, step, check_replaced=False)
    elif known and (known.verdict is Verdict.FAILED or began <= known.finished <= ended):
        end_run(known, config, step, check_replaced=False)
    else:
        logger.info("run has a report", status=detail["status"])
