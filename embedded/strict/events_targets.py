"""The targets that a rule of EventBridge may reach, and the queue of undeliverable events.

- A queue's or a function's policy must let events.amazonaws.com in for this rule; a state
  machine needs a role that may start it: eb-use-resource-based, eb-events-iam-roles.
- What cannot be delivered (no rights, no such target) goes to the target's dead-letter queue
  with the reason. A function that takes the event and then fails has had it delivered: its
  failure is Lambda's matter, and this queue stays empty: eb-rule-dlq.

Pages below docs.aws.amazon.com/eventbridge/latest/userguide.
"""

from __future__ import annotations

import json
import logging
from importlib import import_module
from typing import Any

from embedded.strict import destinations, rights

_events: Any = import_module("ministack.services.eventbridge")
_lambda: Any = import_module("ministack.services.lambda_svc")
_sqs: Any = import_module("ministack.services.sqs")
_states: Any = import_module("ministack.services.stepfunctions")

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


def problem_of(target: dict[str, Any], rule: str) -> tuple[str, str] | None:
    """Return error code and message if the target cannot be reached, as eb-rule-dlq has them."""
    arn = str(target.get("Arn", ""))
    service = arn.split(":")[2] if arn.count(":") > 2 else ""
    there = {
        "sqs": lambda: _sqs._queue_by_arn(arn),
        "lambda": lambda: _lambda._get_func_record_for_ref(arn)[0],
        "states": lambda: _states._resolve_state_machine_arn(arn),
    }
    if service not in there:
        return None
    if there[service]() is None:
        return "NO_RESOURCE", f"{arn} does not exist"
    refused = _refusal(service, arn, target, rule)
    return ("NO_PERMISSIONS", refused) if refused else None


def _refusal(service: str, arn: str, target: dict[str, Any], rule: str) -> str | None:
    if service == "states":
        role = str(target.get("RoleArn", ""))
        if not role:
            return "the target has no role" if rights.are_checked() else None
        return rights.refusal(role, "states:StartExecution", arn, "events")
    action = destinations.ACTIONS[service]
    if rights.policy_refuses(SERVICE, action, arn, rule):
        return f"{SERVICE} is not authorized to perform: {action} on resource: {arn}"
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
    destinations.put_message(queue, json.dumps(whole), attributes)
