"""What an SQS event source asks for when it is made, and what its poller asks for afterwards.

- The queue's visibility timeout is at least the function's timeout, or
  CreateEventSourceMapping fails: docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html.
- The function's role may receive and delete messages and read the queue's attributes
  (the same page, "Execution role permissions"); it is asked at the creation, and a right
  that is taken away later stops the poller.
"""

from __future__ import annotations

import contextvars
from importlib import import_module
from typing import TYPE_CHECKING, Any

from embedded.strict import rights, templates

if TYPE_CHECKING:
    from collections.abc import Iterator

_lambda: Any = import_module("ministack.services.lambda_svc")
_sqs: Any = import_module("ministack.services.sqs")
_responses: Any = import_module("ministack.core.responses")

POLLING = ("ReceiveMessage", "GetQueueAttributes")
ACTIONS = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
_may_delete: contextvars.ContextVar[bool] = contextvars.ContextVar("may_delete", default=True)


def install() -> None:
    """Check event sources as they are made, and their rights as they poll."""
    names = vars(_lambda)
    create = names["_create_esm"]

    def create_esm(data: dict[str, Any]) -> Any:
        problem = problem_of(data)
        if problem:
            return _responses.error_response_json("InvalidParameterValueException", problem, 400)
        return create(data)

    names["_create_esm"] = create_esm
    templates.before("AWS::Lambda::EventSourceMapping", problem_of)
    _poll_with_rights(names)


def _poll_with_rights(names: dict[str, Any]) -> None:
    iterate, run = names["_iter_all_esms"], names["_run_sqs_batch"]
    delete = _sqs._delete_messages_for_esm

    def allowed_esms() -> Iterator[tuple[str, str, dict[str, Any]]]:
        for account, region, esm in iterate():
            queue = str(esm.get("EventSourceArn", ""))
            if ":sqs:" not in queue or not _refused(esm["FunctionName"], queue, POLLING):
                yield account, region, esm

    def run_batch(esm: dict[str, Any], *given: Any) -> Any:
        refused = _refused(esm["FunctionName"], esm["EventSourceArn"], ("DeleteMessage",))
        before = _may_delete.set(not refused)
        try:
            return run(esm, *given)
        finally:
            _may_delete.reset(before)

    def delete_messages(queue_url: str, handles: set[str]) -> None:
        if _may_delete.get():
            delete(queue_url, handles)

    names["_iter_all_esms"], names["_run_sqs_batch"] = allowed_esms, run_batch
    vars(_sqs)["_delete_messages_for_esm"] = delete_messages


def problem_of(settings: dict[str, Any]) -> str | None:
    """Return AWS's sentence if this event source cannot be made."""
    arn = str(settings.get("EventSourceArn", ""))
    function, name = _function(str(settings.get("FunctionName", "")))
    if ":sqs:" not in arn or function is None:
        return None
    for action in _refused(name, arn, ACTIONS):
        return f"The function execution role does not have permissions to call {action} on SQS"
    queue = _sqs._queue_by_arn(arn)
    visible = int(queue["attributes"].get("VisibilityTimeout", "30")) if queue else None
    timeout = int((function.get("config") or {}).get("Timeout", 3))
    if visible is not None and visible < timeout:
        return (
            f"Queue visibility timeout: {visible} seconds is less than "
            f"Function timeout: {timeout} seconds"
        )
    return None


def _function(reference: str) -> tuple[dict[str, Any] | None, str]:
    name, _qualifier = _lambda._resolve_name_and_qualifier(reference)
    return _lambda._functions.get(name), name


def _refused(name: str, queue: str, actions: tuple[str, ...]) -> list[str]:
    """Return those of the actions that the function's role may not do on the queue."""
    function = _lambda._functions.get(name)
    role = str(((function or {}).get("config") or {}).get("Role", ""))
    if not role or not rights.are_checked():
        return []
    return [one for one in actions if rights.refusal(role, f"sqs:{one}", queue, name)]
