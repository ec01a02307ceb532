"""Asynchronous invocation: Lambda's own queue, its retries, and the destinations of failures.

- A function that fails is run twice more, a minute and then two minutes later; the function's
  EventInvokeConfig may say fewer times: invocation-async-error-handling.
- What is throttled returns to the queue and does not count as a try, up to the event's
  maximum age, six hours unless configured: the same page.
- Then the event goes with its error, as a record, to the on-failure destination (SQS, SNS,
  EventBridge or Lambda), and alone to a DeadLetterConfig: invocation-async-retain-records.
- The function's role needs the right to send there: the same page.
- EventBridge invokes functions so; MiniStack calls them once. Tasks of state machines may, too
  (`stepfunctions_async`).

All pages below docs.aws.amazon.com/lambda/latest/dg. A minute here lasts
``LAMBDA_ASYNC_RETRY_BASE_SECONDS`` (1 s unless set), as MiniStack calls it.
"""

from __future__ import annotations

import contextvars
import datetime as dt
import json
import os
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from embedded.strict import destinations

_lambda: Any = import_module("ministack.services.lambda_svc")
_events: Any = import_module("ministack.services.eventbridge")
_responses: Any = import_module("ministack.core.responses")

RETRIES = 2
MAX_AGE_SECONDS = 6 * 3_600
MAX_BACKOFF_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event in a function's queue, and what the function's configuration says of it."""

    function: dict[str, Any]
    event: Any
    request: str
    retries: int
    max_age_seconds: float
    on_success: str
    on_failure: str

    @property
    def config(self) -> dict[str, Any]:
        """The function's configuration."""
        config: dict[str, Any] = self.function.get("config") or self.function
        return config


def install() -> None:
    """Give every asynchronous invocation, EventBridge's too, a queue of its own."""
    vars(_lambda)["invoke_async_with_retry"] = invoke
    vars(_events)["_dispatch_to_lambda"] = _from_eventbridge


def invoke(function: dict[str, Any], event: Any) -> None:
    """Queue the event for the function and return at once."""
    queued = _configured(function, event)
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(_work, queued), daemon=True).start()


def _from_eventbridge(arn: str, payload: str) -> None:
    record, config, _name = _lambda._get_func_record_for_ref(arn)
    if record and config:
        run = _lambda._execution_record_for_config(record, config)
        invoke(run, json.loads(payload))


def _configured(function: dict[str, Any], event: Any) -> Invocation:
    config = function.get("config") or function
    base = _lambda._functions.get(config.get("FunctionName", "")) or function
    configured = base.get("event_invoke_configs") or {}
    arn = str(config.get("FunctionArn", ""))
    qualifier = arn.split(":")[7] if arn.count(":") == 7 else "$LATEST"
    found = configured.get(qualifier) or (configured.get("") if qualifier == "$LATEST" else None)
    settings = found or {}
    destination = settings.get("DestinationConfig") or {}
    retries = settings.get("MaximumRetryAttempts")
    return Invocation(
        function=function,
        event=event,
        request=_responses.new_uuid(),
        retries=RETRIES if retries is None else int(retries),
        max_age_seconds=float(settings.get("MaximumEventAgeInSeconds") or MAX_AGE_SECONDS),
        on_success=(destination.get("OnSuccess") or {}).get("Destination") or "",
        on_failure=(destination.get("OnFailure") or {}).get("Destination") or "",
    )


def _work(queued: Invocation) -> None:
    minute = float(os.environ.get("LAMBDA_ASYNC_RETRY_BASE_SECONDS", "1"))
    expires = time.monotonic() + queued.max_age_seconds * minute / 60
    tries, backoff, result = 0, 1.0, dict[str, Any]()
    while True:
        if time.monotonic() >= expires:
            _finish(queued, "EventAgeExceeded", tries, result)
            return
        result = _lambda._execute_function(queued.function, queued.event)
        if result.get("throttle"):
            time.sleep(backoff * minute / 60)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
            continue
        tries += 1
        if not result.get("error"):
            _finish(queued, "Success", tries, result)
            return
        if tries > queued.retries:
            _finish(queued, "RetriesExhausted", tries, result)
            return
        time.sleep(tries * minute)


def _finish(queued: Invocation, condition: str, tries: int, result: dict[str, Any]) -> None:
    """Send what became of the event where the function's configuration says."""
    target = queued.on_success if condition == "Success" else queued.on_failure
    if target:
        record = record_of(queued, condition, tries, result)
        destinations.send(target, record, queued.config, good=condition == "Success")
    dead_letters = (queued.config.get("DeadLetterConfig") or {}).get("TargetArn")
    if dead_letters and condition != "Success":
        body = result.get("body")
        message = body.get("errorMessage", "") if isinstance(body, dict) else ""
        attributes = {"RequestID": queued.request, "ErrorCode": "200", "ErrorMessage": message}
        destinations.send_dead_letter(dead_letters, queued.event, queued.config, attributes)


def record_of(
    queued: Invocation, condition: str, tries: int, result: dict[str, Any]
) -> dict[str, Any]:
    """Return the invocation record of invocation-async-retain-records."""
    arn = str(queued.config.get("FunctionArn", ""))
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    record: dict[str, Any] = {
        "version": "1.0",
        "timestamp": now.replace("+00:00", "Z"),
        "requestContext": {
            "requestId": queued.request,
            "functionArn": arn if arn.count(":") == 7 else f"{arn}:$LATEST",
            "condition": condition,
            "approximateInvokeCount": tries,
        },
        "requestPayload": queued.event,
    }
    if tries:
        said: dict[str, Any] = {
            "statusCode": 200,
            "executedVersion": queued.config.get("Version", "$LATEST"),
        }
        if condition != "Success":
            said["functionError"] = result.get("function_error") or "Unhandled"
        record |= {"responseContext": said, "responsePayload": result.get("body")}
    return record
