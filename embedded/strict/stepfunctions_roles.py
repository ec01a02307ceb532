"""A state machine makes its calls with the rights of its role.

- The calls that go through `stepfunctions_calls.as_role`: lambda:InvokeFunction of a task,
  s3:GetObject of an ItemReader, s3:PutObject of a ResultWriter, states:StartExecution of a
  Distributed Map: "procedure-create-iam-role", "iam-policies-eg-dist-map".
- A state machine that logs needs the right to set up log delivery when it is made: "cw-logs".

Pages below docs.aws.amazon.com/step-functions/latest/dg. Rights are checked with AUTH=true.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from embedded.strict import rights, stepfunctions_calls, templates

if TYPE_CHECKING:
    from collections.abc import Callable

_states: Any = import_module("ministack.services.stepfunctions")
_lambda: Any = import_module("ministack.services.lambda_svc")
_responses: Any = import_module("ministack.core.responses")

LOG_DELIVERY = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
NO_LOGS = "The state machine IAM Role is not authorized to access the Log Destination"


def install() -> None:
    """Ask the evaluator before each call, and before a state machine that logs is made."""
    vars(stepfunctions_calls)["as_role"] = as_role
    create = _states._create_state_machine

    def create_state_machine(data: dict[str, Any]) -> Any:
        logging = data.get("loggingConfiguration") or {}
        if _cannot_log(str(data.get("roleArn", "")), str(logging.get("level", "OFF"))):
            return _responses.error_response_json("AccessDeniedException", NO_LOGS, 400)
        return create(data)

    vars(_states)["_create_state_machine"] = create_state_machine
    templates.before("AWS::StepFunctions::StateMachine", _problem_of_template)


def as_role(execution: dict[str, Any], action: str, resource: str, call: Callable[[], Any]) -> Any:
    """Do `call` as the role of the execution's state machine.

    Raises:
        stepfunctions_calls.DeniedError: the role does not allow `action` on `resource`.
    """
    if rights.are_checked():
        machine = _states._state_machines[execution["stateMachineArn"].partition("/")[0]]
        if action.startswith("lambda:"):
            resource = _function_arn(resource)
        problem = rights.refusal(machine["roleArn"], action, resource, "states")
        if problem:
            raise stepfunctions_calls.DeniedError(problem)
    return call()


def _function_arn(reference: str) -> str:
    """Return the ARN, with its qualifier, of the function that a task names."""
    if reference.startswith("arn:"):
        return reference
    name, _, qualifier = reference.partition(":")
    found = _lambda._func_arn(name)
    return f"{found}:{qualifier}" if qualifier else str(found)


def _cannot_log(role: str, level: str) -> bool:
    if level == "OFF":
        return False
    return any(rights.refusal(role, action, "*", "states") for action in LOG_DELIVERY)


def _problem_of_template(properties: dict[str, Any]) -> str | None:
    logging = properties.get("LoggingConfiguration") or {}
    refused = _cannot_log(str(properties.get("RoleArn", "")), str(logging.get("Level", "OFF")))
    return NO_LOGS if refused else None
