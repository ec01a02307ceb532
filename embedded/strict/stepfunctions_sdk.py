"""Calls of a task to a service by its SDK are made with the rights of the state machine's role.

- The action on the resource must be allowed: HeadObject needs s3:GetObject (API_HeadObject in the
  API reference of S3).
- The answer to HEAD has no body, so the SDK knows its status alone: 404 is NoSuchKeyException, and
  anything else S3Exception. Names of errors begin with the service: supported-services-awssdk.

A retry of such a call waits as long as on AWS, whatever `SFN_WAIT_SCALE` says: it polls for what
others do meanwhile.

Pages below docs.aws.amazon.com/step-functions/latest/dg. Other calls than those in `ACTIONS` are
refused, because nobody has compared them with AWS.
"""

from __future__ import annotations

from typing import Any

from embedded.strict import stepfunctions_calls as calls
from embedded.strict import stepfunctions_engine as engine

ACTIONS = {"aws-sdk:s3:headObject": "s3:GetObject"}
NOT_FOUND = "404"


def install() -> None:
    """Ask for the right before each call, and name the errors of S3."""
    names = vars(engine.sfn)
    call, find = names["_invoke_aws_sdk_integration"], names["_find_matching_retrier"]

    def invoke(resource: str, given: dict[str, Any]) -> Any:
        action = ACTIONS.get(":".join(resource.split(":")[-3:]))
        if action is None:
            raise engine.sfn._ExecutionError("States.Runtime", f"{resource} is not modelled")
        place = f"arn:aws:s3:::{given['Bucket']}/{given['Key']}"
        try:
            return calls.as_role(engine.current(), action, place, lambda: call(resource, given))
        except calls.DeniedError as denied:
            raise engine.sfn._ExecutionError("S3.S3Exception", str(denied)) from None
        except engine.sfn._ExecutionError as error:
            if not error.cause.endswith(NOT_FOUND):
                raise
            raise engine.sfn._ExecutionError("S3.NoSuchKeyException", error.cause) from None

    def find_retrier(
        retriers: list[dict[str, Any]], error: str, counts: dict[int, int]
    ) -> tuple[dict[str, Any] | None, int]:
        retrier, index = find(retriers, error, counts)
        if retrier is not None and error.startswith("S3."):
            scale = names["_SFN_WAIT_SCALE"] or 1.0
            retrier = {**retrier, "IntervalSeconds": retrier["IntervalSeconds"] / scale}
        return retrier, index

    names["_invoke_aws_sdk_integration"] = invoke
    names["_find_matching_retrier"] = find_retrier
