"""Destinations of failed invocations and events: queue, topic, function or bus."""

from __future__ import annotations

import contextvars
import json
import logging
from importlib import import_module
from typing import Any

from embedded.strict import rights

_sqs: Any = import_module("ministack.services.sqs")
_evaluator: Any = import_module("ministack.core.iam_evaluator")

ACTIONS = {
    "sqs": "sqs:SendMessage",
    "sns": "sns:Publish",
    "lambda": "lambda:InvokeFunction",
    "events": "events:PutEvents",
}
_log = logging.getLogger("strict")


def send(target: str, record: dict[str, Any], config: dict[str, Any], *, good: bool) -> None:
    """Send an invocation record to a function's destination, as the function's role.

    If the role lacks the right, or the target does not exist, the record is lost, as on AWS (metric
    DestinationDeliveryFailures); the log says so.
    """
    service = target.split(":")[2]
    if not _may_send(target, config):
        return
    if service == "sqs":
        put_message(target, json.dumps(record), {})
    elif service == "sns":
        sns: Any = import_module("ministack.services.sns")
        sns.publish_internal(target, json.dumps(record), "AWS Lambda invocation record")
    elif service == "lambda":
        functions: Any = import_module("ministack.services.lambda_svc")
        found, of, _name = functions._get_func_record_for_ref(target)
        if found:
            run = functions._execution_record_for_config(found, of)
            functions.invoke_async_with_retry(run, record)
    elif service == "events":
        _put_event(target, record, good=good)


def send_dead_letter(
    target: str, event: Any, config: dict[str, Any], attributes: dict[str, str]
) -> None:
    """Send an event alone to the DeadLetterConfig of its function."""
    if not _may_send(target, config):
        return
    if target.split(":")[2] == "sqs":
        put_message(target, json.dumps(event), attributes)
    else:
        sns: Any = import_module("ministack.services.sns")
        sns.publish_internal(target, json.dumps(event), "")


def _may_send(target: str, config: dict[str, Any]) -> bool:
    action = ACTIONS[target.split(":")[2]]
    name = str(config.get("FunctionName", "function"))
    problem = rights.refusal(str(config.get("Role", "")), action, target, name)
    if problem:
        _log.warning("%s: the record of a failed invocation is lost: %s", name, problem)
    return problem is None


def _put_event(bus: str, record: dict[str, Any], *, good: bool) -> None:
    events: Any = import_module("ministack.services.eventbridge")
    entry = {
        "Source": "lambda",
        "DetailType": f"Lambda Function Invocation Result - {'Success' if good else 'Failure'}",
        "Resources": [bus, record["requestContext"]["functionArn"]],
        "Detail": json.dumps(record),
        "EventBusName": bus.rsplit("/", 1)[-1],
    }
    events._put_events({"Entries": [entry]}, allow_aws_source=True)


def put_message(queue_arn: str, body: str, attributes: dict[str, str]) -> bool:
    """Put a message into a queue, as a service of AWS does, over TLS; False if there is none."""
    if _sqs._queue_by_arn(queue_arn) is None:
        _log.warning("no queue %s", queue_arn)
        return False
    name = queue_arn.rsplit(":", 1)[-1]
    message = {
        "QueueUrl": _sqs._queue_url(name),
        "MessageBody": body,
        "MessageAttributes": {
            key: {"DataType": "String", "StringValue": value}
            for key, value in attributes.items()
            if value
        },
    }

    def put() -> None:
        _evaluator.pin_request_origin("127.0.0.1", True)  # noqa: FBT003 - of MiniStack
        _sqs._act_send_message(message, message["QueueUrl"])

    contextvars.copy_context().run(put)
    return True
