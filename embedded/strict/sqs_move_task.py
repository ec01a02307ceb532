"""StartMessageMoveTask, which MiniStack has not, for the dead-letter queues of queues only.

Without a destination each message goes back to the queue it came from; what came from
elsewhere (a rule of EventBridge, Lambda) has no such queue, and the task fails at it. One
task at a time runs on a queue. A message that is moved counts as new.
docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html
"""

from __future__ import annotations

import base64
import json
import time
from importlib import import_module
from typing import Any

_sqs: Any = import_module("ministack.services.sqs")
_responses: Any = import_module("ministack.core.responses")

_tasks: dict[str, list[dict[str, Any]]] = {}  # by the source's ARN, newest first


def install() -> None:
    """Add StartMessageMoveTask and ListMessageMoveTasks."""
    _sqs._HANDLERS["StartMessageMoveTask"] = start
    _sqs._HANDLERS["ListMessageMoveTasks"] = listed


def start(data: dict[str, Any], _url: str) -> dict[str, Any]:
    """Move the messages of a dead-letter queue; return the task's handle."""
    arn, wanted = str(data.get("SourceArn", "")), str(data.get("DestinationArn") or "")
    source = _queue(arn)
    if not any(_dead_letters_of(queue) == arn for queue in _queues()):
        raise _sqs._Err(
            "InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."
        )
    if wanted:
        _queue(wanted)
    body = json.dumps({"taskId": _responses.new_uuid(), "sourceArn": arn})
    task = {
        "TaskHandle": base64.b64encode(body.encode()).decode(),
        "SourceArn": arn,
        "Status": "COMPLETED",
        "ApproximateNumberOfMessagesMoved": 0,
        "ApproximateNumberOfMessagesToMove": len(source["messages"]),
        "StartedTimestamp": int(time.time() * 1_000),
    }
    if wanted:
        task["DestinationArn"] = wanted
    _tasks.setdefault(arn, []).insert(0, task)
    _move(source, wanted, task)
    return {"TaskHandle": task["TaskHandle"]}


def listed(data: dict[str, Any], _url: str) -> dict[str, Any]:
    """Return the newest tasks of a queue; only one that runs would have its handle."""
    arn = str(data.get("SourceArn", ""))
    _queue(arn)
    count = int(data.get("MaxResults") or 1)
    shown = [dict(task) for task in _tasks.get(arn, [])[:count]]
    for task in shown:
        task.pop("TaskHandle")
    return {"Results": shown}


def _move(source: dict[str, Any], wanted: str, task: dict[str, Any]) -> None:
    with _sqs._queues_lock:
        for message in list(source["messages"]):
            origin = wanted or message.get("sys", {}).get("DeadLetterQueueSourceArn", "")
            queue = _sqs._queue_by_arn(origin) if origin else None
            if queue is None:
                task["Status"] = "FAILED"
                task["FailureReason"] = "CouldNotDetermineMessageSource"
                return
            source["messages"].remove(message)
            queue["messages"].append(_renewed(message))
            task["ApproximateNumberOfMessagesMoved"] += 1
    _sqs.esm_wake.set()


def _renewed(message: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    attributes = dict(message.get("sys", {}))
    attributes.pop("DeadLetterQueueSourceArn", None)
    attributes["SentTimestamp"] = str(int(now * 1_000))
    return message | {
        "id": _responses.new_uuid(),
        "receipt_handle": None,
        "sent_at": now,
        "visible_at": now,
        "receive_count": 0,
        "first_receive_at": None,
        "sys": attributes,
    }


def _queue(arn: str) -> dict[str, Any]:
    found: dict[str, Any] | None = _sqs._queue_by_arn(arn)
    if found is None:
        raise _sqs._Err(
            "ResourceNotFoundException",
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        )
    return found


def _queues() -> list[dict[str, Any]]:
    return list(_sqs._queues.values())


def _dead_letters_of(queue: dict[str, Any]) -> str:
    policy = json.loads(queue["attributes"].get("RedrivePolicy") or "{}")
    return str(policy.get("deadLetterTargetArn", ""))
