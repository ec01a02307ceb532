"""Names of errors, and which of them Retry and Catch match.

- A function's exception has its class's name; a function that timed out or ended is
  Lambda.Unknown; a throttled one is Lambda.TooManyRequestsException; every other answer of
  the Lambda service is ``Lambda.`` and its name.
- States.ALL and States.TaskFailed match neither States.DataLimitExceeded nor States.Runtime,
  and States.TaskFailed does not match States.Timeout. Nothing matches States.Runtime.
- A retrier waits at most its MaxDelaySeconds; JitterStrategy FULL draws the wait.
https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html
https://docs.aws.amazon.com/step-functions/latest/dg/bp-lambda-serviceexception.html
"""

from __future__ import annotations

import json
import random
from typing import Any

from embedded.strict import stepfunctions_calls as calls
from embedded.strict import stepfunctions_engine as engine

RUNTIME = "States.Runtime"
NOT_WILD = ("States.DataLimitExceeded", RUNTIME)
# Payloads of invocations whose environment ended; the documentation names all of them so.
UNHANDLED = ("Sandbox.Timedout", "Runtime.ExitError", "Runtime.OutOfMemory")


def error_matches(wanted: list[str], error: str) -> bool:
    """Return whether an ErrorEquals matches the error's name."""
    if error == RUNTIME:
        return False
    if error in wanted:
        return True
    if error in NOT_WILD:
        return False
    return "States.ALL" in wanted or ("States.TaskFailed" in wanted and error != "States.Timeout")


def with_delay(retrier: dict[str, Any], retries: int) -> dict[str, Any]:
    """Return the retrier with the wait before its next retry as IntervalSeconds."""
    wait = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** retries
    wait = min(wait, retrier.get("MaxDelaySeconds", wait))
    if retrier.get("JitterStrategy") == "FULL":
        wait = random.uniform(0, wait)  # noqa: S311 - no secret
    return {**retrier, "IntervalSeconds": wait, "BackoffRate": 1}


def name_lambda_error(error: str, cause: str) -> tuple[str, str]:
    """Return error and cause as AWS reports them for what MiniStack reports."""
    if error in UNHANDLED:
        return "Lambda.Unknown", cause
    if error != "Lambda.Unknown" or not cause.startswith("{"):
        return error, cause
    answer = json.loads(cause)  # of the Lambda service, which did not run the function
    kind = answer.get("__type")
    return (f"Lambda.{kind}", answer.get("message", cause)) if kind else (error, cause)


def install() -> None:
    """Give errors their names, and Retry and Catch their rules."""
    names = vars(engine.sfn)
    find, call = names["_find_matching_retrier"], names["_call_lambda"]

    def find_retrier(
        retriers: list[dict[str, Any]], error: str, counts: dict[int, int]
    ) -> tuple[dict[str, Any] | None, int]:
        retrier, index = find(retriers, error, counts)
        return (with_delay(retrier, counts.get(index, 0)) if retrier else None), index

    def call_lambda(function: str, event: Any) -> Any:
        try:
            return calls.as_role(
                engine.current(), "lambda:InvokeFunction", function, lambda: call(function, event)
            )
        except calls.DeniedError as denied:
            raise engine.sfn._ExecutionError("Lambda.AWSLambdaException", str(denied)) from None
        except engine.sfn._ExecutionError as error:
            named = name_lambda_error(error.error, error.cause)
            raise engine.sfn._ExecutionError(*named) from None

    names["_error_matches"] = error_matches
    names["_find_matching_retrier"] = find_retrier
    names["_call_lambda"] = call_lambda
