"""A batch call of SQS asks for the right of the single call.

IAM has no action SendMessageBatch, DeleteMessageBatch or ChangeMessageVisibilityBatch: who
may send, delete or hide one message may do so with several. MiniStack asks for the name of
the call.
docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html,
docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_AddPermission.html
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_actions: Any = import_module("ministack.core.iam_actions")

SINGLE = {
    f"sqs:{name}Batch": f"sqs:{name}"
    for name in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility")
}


def install() -> None:
    """Check batch calls with the right of the single call."""
    stock = _actions.extract_iam_action

    def extract(*request: Any) -> str | None:
        action: str | None = stock(*request)
        return None if action is None else SINGLE.get(action, action)

    _actions.extract_iam_action = extract
