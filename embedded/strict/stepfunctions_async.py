"""A task with the InvocationType Event ends when Lambda has queued its event.

- The answer has the status 202 and an empty payload: API_Invoke in the API reference of Lambda.
  What the function does with the event changes nothing in the execution: connect-lambda.
- The role of the state machine needs lambda:InvokeFunction, and a function that is not there
  is Lambda.ResourceNotFoundException, as for a task that waits.
- The queue is that of `lambda_async`, with its retries and its maximum age.

MiniStack calls the function and waits for it. Other invocation types stay as MiniStack has them.

https://docs.aws.amazon.com/step-functions/latest/dg/connect-lambda.html
https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from embedded.strict import lambda_async
from embedded.strict import stepfunctions_calls as calls
from embedded.strict import stepfunctions_engine as engine

_lambda: Any = import_module("ministack.services.lambda_svc")

INVOKE = ":states:::lambda:invoke"  # how the resource of such a task ends
ACCEPTED = 202


def install() -> None:
    """Queue the events of tasks that do not wait for their function."""
    names = vars(engine.sfn)
    call = names["_invoke_resource"]

    def invoke(resource: str, given: Any) -> Any:
        if resource.endswith(INVOKE) and given.get("InvocationType") == "Event":
            return _queue(given)
        return call(resource, given)

    names["_invoke_resource"] = invoke


def _queue(given: dict[str, Any]) -> dict[str, Any]:
    """Queue the payload for the function, as the role of the state machine; return the answer.

    Raises:
        ministack.services.stepfunctions._ExecutionError: Lambda did not take the event.
    """
    function = engine.sfn._resolve_lambda_function_ref(given["FunctionName"], optimized=True)
    payload = given.get("Payload", {})
    try:
        return calls.as_role(
            engine.current(), "lambda:InvokeFunction", function, lambda: _send(function, payload)
        )
    except calls.DeniedError as denied:
        raise engine.sfn._ExecutionError("Lambda.AWSLambdaException", str(denied)) from None


def _send(function: str, payload: Any) -> dict[str, Any]:
    record, config, name = _lambda._get_func_record_for_ref(function)
    if not record or not config:
        cause = f"Function not found: {name}"
        raise engine.sfn._ExecutionError("Lambda.ResourceNotFoundException", cause)
    lambda_async.invoke(_lambda._execution_record_for_config(record, config), payload)
    version = config.get("Version", "$LATEST")
    return {"ExecutedVersion": version, "Payload": "", "StatusCode": ACCEPTED}
