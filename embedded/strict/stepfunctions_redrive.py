"""RedriveExecution: an unsuccessful Standard execution goes on where it failed.

The state that failed, was stopped or timed out runs again with the same input, and what
comes after it; retries start from zero. A Fail state fails again. A Distributed Map goes on
with its unsuccessful children, in the same Map Run; after States.DataLimitExceeded,
States.Runtime or a failed ItemReader it is a new Map Run. Not redrivable are executions that
run or succeeded, ended 14 days ago, have a full history or a deleted state machine, and
children of a Map Run.
A Parallel state or an inline Map goes on as `stepfunctions_branches` says.
The SDK sends a client token; a request with one of the last ten tokens, within 15 minutes, has the
answer of the first one. So a request that the SDK sends again redrives once.
https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html
https://docs.aws.amazon.com/step-functions/latest/dg/redrive-map-run.html
https://docs.aws.amazon.com/step-functions/latest/apireference/API_RedriveExecution.html
"""

from __future__ import annotations

import contextvars
import json
import threading
from typing import Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import (
    HISTORY_EVENTS,
    REDRIVABLE_SECONDS,
    REDRIVE_TOKEN_SECONDS,
    REDRIVE_TOKENS,
)
from embedded.strict.stepfunctions_names import seconds_since

sfn = engine.sfn
REDRIVABLE = "REDRIVABLE"
BY_MAP_RUN = "REDRIVABLE_BY_MAP_RUN"
NOT_REDRIVABLE = "NOT_REDRIVABLE"


def redrivability(execution: dict[str, Any]) -> tuple[str, str | None]:
    """Return the redriveStatus of an execution, and why it is not redrivable."""
    status = execution["status"]
    if status in ("RUNNING", "SUCCEEDED", "PENDING_REDRIVE"):
        return NOT_REDRIVABLE, f"Execution is {status} and cannot be redriven"
    if execution.get("mapRunArn"):
        return BY_MAP_RUN, None
    reason = None
    if execution["stateMachineArn"] not in sfn._state_machines:
        reason = "State machine is in DELETING status"
    elif execution.get("_type") == "EXPRESS":
        reason = "Execution is of type EXPRESS"
    elif len(execution["events"]) >= HISTORY_EVENTS - 1:
        reason = "Execution history event limit exceeded"
    elif seconds_since(execution["stopDate"]) > REDRIVABLE_SECONDS:
        reason = "Execution redrivable period exceeded"
    return (NOT_REDRIVABLE, reason) if reason else (REDRIVABLE, None)


def redrive_execution(data: dict[str, Any]) -> Any:
    """Answer RedriveExecution."""
    arn = data.get("executionArn", "")
    execution = sfn._executions.get(arn)
    if execution is None:
        message = f"Execution Does Not Exist: '{arn}'"
        return sfn.error_response_json("ExecutionDoesNotExist", message, 400)
    token: str | None = data.get("clientToken")
    tokens: dict[str, str] = execution.setdefault("_redrive_tokens", {})  # to their dates
    known = tokens.get(token or "")
    if known is not None and seconds_since(known) <= REDRIVE_TOKEN_SECONDS:
        return sfn.json_response({"redriveDate": known})
    status, reason = redrivability(execution)
    if status != REDRIVABLE:
        message = reason or "A child execution is redriven by its Map Run"
        return sfn.error_response_json("ExecutionNotRedrivable", message, 400)
    date = sfn.now_iso()
    execution.update(
        status="RUNNING",
        stopDate=None,
        output=None,
        redriveCount=execution.get("redriveCount", 0) + 1,
        redriveDate=date,
        _redriven=execution.pop("_unfinished", {}),
    )
    if token:
        tokens[token] = date
        for old in list(tokens)[:-REDRIVE_TOKENS]:
            del tokens[old]
    for key in ("error", "cause"):
        execution.pop(key, None)
    details = {"executionRedrivenEventDetails": {"redriveCount": execution["redriveCount"]}}
    sfn._add_event(execution, "ExecutionRedriven", details)
    sfn._emit_execution_status_event(execution)
    run = contextvars.copy_context().run  # account and region of the request
    places = execution.get("_places", {})  # empty: it was stopped before its first state
    place = places[()] if places else engine.first_place(execution)
    threading.Thread(target=run, args=(engine.run_from, execution, *place), daemon=True).start()
    return sfn.json_response({"redriveDate": date})


def tell_redrive(answer: Any, execution: dict[str, Any]) -> Any:
    """Return the answer to DescribeExecution with what it tells of redrives."""
    told = json.loads(answer[2])
    status, reason = redrivability(execution)
    told |= {"redriveCount": execution.get("redriveCount", 0), "redriveStatus": status}
    if reason:
        told["redriveStatusReason"] = reason
    if execution.get("redriveDate"):
        told["redriveDate"] = execution["redriveDate"]
    return sfn.json_response(told)


def install() -> None:
    """Add the action, and what DescribeExecution tells of it."""
    names = vars(sfn)
    handle, describe = names["handle_request"], names["_describe_execution"]
    delete = names["_delete_state_machine"]

    async def handle_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        if headers.get("x-amz-target", "").endswith(".RedriveExecution"):
            return sfn._finalize_response(redrive_execution(json.loads(body)))
        return await handle(method, path, headers, body, query)

    def describe_execution(data: dict[str, Any]) -> Any:
        answer = describe(data)
        execution = sfn._executions.get(data.get("executionArn"))
        return answer if execution is None else tell_redrive(answer, execution)

    def delete_state_machine(data: dict[str, Any]) -> Any:
        # AWS keeps the records of executions for 90 days; MiniStack drops them.
        kept = list(sfn._executions.items())
        answer = delete(data)
        for arn, execution in kept:
            sfn._executions[arn] = execution
        return answer

    names["handle_request"] = handle_request
    names["_describe_execution"] = describe_execution
    names["_delete_state_machine"] = delete_state_machine
