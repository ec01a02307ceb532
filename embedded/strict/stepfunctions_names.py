r"""Names of state machines and executions, and what starting the same execution again does.

A name has 1 to 80 characters, none of them white space, a bracket, a wildcard, a control
character or one of ``" # % \ ^ | ~ ` $ & , ; : /``. StartExecution with the name and the input
of a running Standard execution succeeds again; with another input, or after its end, it is
ExecutionAlreadyExists until 90 days after the end. Input that is no JSON is
InvalidExecutionInput.
https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import CLOSED_NAME_SECONDS, NAME_CHARACTERS

sfn = engine.sfn
NOT_IN_NAMES = re.compile(
    r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]"
)


def is_name(name: str) -> bool:
    """Return whether AWS accepts `name` for a state machine or an execution."""
    return 1 <= len(name) <= NAME_CHARACTERS and not NOT_IN_NAMES.search(name)


def seconds_since(stamp: str) -> float:
    """Return how long ago a record's ISO time stamp is."""
    then = datetime.fromisoformat(stamp)
    return (datetime.now(UTC) - then).total_seconds()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _same(data: dict[str, Any], name: str | None) -> Any:
    """Answer for the running execution of the same name and input; forget a very old one."""
    machine = sfn._resolve_state_machine_arn(data.get("stateMachineArn", "")) or ""
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
    old = sfn._executions.get(arn)
    if old is None:
        return None
    if old["status"] == "RUNNING" and old["input"] == data.get("input", "{}"):
        return sfn.json_response({"executionArn": arn, "startDate": old["startDate"]})
    if old["stopDate"] and seconds_since(old["stopDate"]) > CLOSED_NAME_SECONDS:
        del sfn._executions[arn]
    return None


def install() -> None:
    """Check the names of CreateStateMachine and StartExecution."""
    names = vars(sfn)
    create, start = names["_create_state_machine"], names["_start_execution"]

    def refused(name: str) -> Any:
        return sfn.error_response_json("InvalidName", f"Invalid Name: '{name}'", 400)

    def create_state_machine(data: dict[str, Any]) -> Any:
        name = data.get("name", "")
        return create(data) if is_name(name) else refused(name)

    def start_execution(data: dict[str, Any]) -> Any:
        name = data.get("name")
        if name is not None and not is_name(name):
            return refused(name)
        if not _is_json(data.get("input", "{}")):
            message = "Invalid State Machine Execution Input: it is no JSON"
            return sfn.error_response_json("InvalidExecutionInput", message, 400)
        return _same(data, name) or start(data)

    names["_create_state_machine"] = create_state_machine
    names["_start_execution"] = start_execution
