"""The targets that a rule of EventBridge may reach, and the queue of undeliverable events.

- A queue's or a function's policy must let events.amazonaws.com in for this rule:
  eb-use-resource-based.
- What cannot be delivered (no rights, no such target) goes to the target's dead-letter queue
  with the reason. A function that takes the event and then fails has had it delivered: its
  failure is Lambda's matter, and this queue stays empty: eb-rule-dlq.
- GuardDuty is not here: a test that sends its events plays it. Other events of AWS cannot be sent.

Pages below docs.aws.amazon.com/eventbridge/latest/userguide.
"""

import contextvars
import json
import logging
from importlib import import_module
from typing import Any

from embedded.strict import rights

_events: Any = import_module("ministack.services.eventbridge")
_lambda: Any = import_module("ministack.services.lambda_svc")
_sqs: Any = import_module("ministack.services.sqs")
_evaluator: Any = import_module("ministack.core.iam_evaluator")

SERVICE = "events.amazonaws.com"
_log = logging.getLogger("strict")


def install() -> None:
    """Ask before each delivery."""
    deliver = _events._invoke_target

    def invoke_target(
        target: dict[str, Any], event: dict[str, Any], rule: dict[str, Any], view: Any = None
    ) -> None:
        problem = problem_of(target, str(rule.get("Arn", "")))
        if problem:
            _give_up(target, event, rule, problem)
        else:
            deliver(target, event, rule, view)

    vars(_events)["_invoke_target"] = invoke_target
    _let_scans_in()


def _let_scans_in() -> None:
    """Accept events of GuardDuty from whoever sends them."""
    put_events = _events._put_events

    def put(data: dict[str, Any], allow_aws_source: bool = False) -> Any:  # noqa: FBT001, FBT002 - of MiniStack
        sources = {entry.get("Source") for entry in data.get("Entries", [])}
        return put_events(data, allow_aws_source or sources == {"aws.guardduty"})

    vars(_events)["_put_events"] = put


def problem_of(target: dict[str, Any], rule: str) -> tuple[str, str] | None:
    """Return error code and message if the target cannot be reached, as eb-rule-dlq has them."""
    arn = str(target.get("Arn", ""))
    service = arn.split(":")[2] if arn.count(":") > 2 else ""
    there = {
        "sqs": lambda: _sqs._queue_by_arn(arn),
        "lambda": lambda: _lambda._get_func_record_for_ref(arn)[0],
    }
    if service not in there:
        return None
    if there[service]() is None:
        return "NO_RESOURCE", f"{arn} does not exist"
    action = {"sqs": "sqs:SendMessage", "lambda": "lambda:InvokeFunction"}[service]
    if rights.policy_refuses(SERVICE, action, arn, rule):
        return "NO_PERMISSIONS", f"{SERVICE} is not authorized to perform: {action} on {arn}"
    return None


def _give_up(
    target: dict[str, Any], event: dict[str, Any], rule: dict[str, Any], problem: tuple[str, str]
) -> None:
    code, message = problem
    queue = str((target.get("DeadLetterConfig") or {}).get("Arn", ""))
    arn = str(rule.get("Arn", ""))
    _log.warning("%s cannot deliver: %s", arn, message)
    if not queue or rights.policy_refuses(SERVICE, "sqs:SendMessage", queue, arn):
        return
    whole = _events._pattern_event_view(event).event_with_detail()
    attributes = {
        "RULE_ARN": arn,
        "TARGET_ARN": str(target.get("Arn", "")),
        "ERROR_CODE": code,
        "ERROR_MESSAGE": message,
    }
    _put_message(queue, json.dumps(whole), attributes)


def _put_message(queue_arn: str, body: str, attributes: dict[str, str]) -> None:
    message = {
        "QueueUrl": _sqs._queue_url(queue_arn.rsplit(":", 1)[-1]),
        "MessageBody": body,
        "MessageAttributes": {
            key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()
        },
    }

    def put() -> None:
        _evaluator.pin_request_origin("127.0.0.1", True)  # noqa: FBT003 - of MiniStack
        _sqs._act_send_message(message, message["QueueUrl"])

    contextvars.copy_context().run(put)
