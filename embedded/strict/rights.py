"""The rights of a service's role or of a resource's policy, by MiniStack's own evaluator.

A state machine makes its calls with the rights of its role: lambda:InvokeFunction of a task,
s3:GetObject of an ItemReader, s3:PutObject of a ResultWriter, states:StartExecution of a
Distributed Map. Everything is allowed unless MiniStack runs with ``AUTH=true``.

docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
docs.aws.amazon.com/step-functions/latest/dg/iam-policies-eg-dist-map.html
"""

from importlib import import_module
from typing import Any

_evaluator: Any = import_module("ministack.core.iam_evaluator")
_responses: Any = import_module("ministack.core.responses")


def are_checked() -> bool:
    """Return whether this MiniStack checks rights."""
    return bool(import_module("ministack.app").AUTH)


def refusal(role_arn: str, action: str, resource: str, session: str) -> str | None:
    """Return AWS's sentence if the role may not do `action` on `resource`, else None.

    `session` is the name under which the service assumes the role. The policies
    of the role, its boundary and the policy of the resource count.
    """
    if not are_checked():
        return None
    account, role = role_arn.split(":")[4], role_arn.rsplit("/", 1)[-1]
    principal = f"arn:aws:sts::{account}:assumed-role/{role}/{session}"
    context = _evaluator.EvalContext(
        principal_arn=principal,
        principal_type="AssumedRole",
        principal_account=account,
        action=action,
        resource_arn=resource,
        region=_responses.get_region(),
        secure_transport=True,
    )
    roles = import_module("ministack.services.iam")._roles
    policies = _evaluator._gather_role_policies(role, account)
    limits = _evaluator._permissions_boundary(roles, role, account)
    result = _evaluator.evaluate(context, policies, *limits)
    found = _evaluator._resource_policy(action.partition(":")[0], resource)
    if found is not None:
        result = _evaluator.combine_resource_policy(result, context, *found, limits=limits)
    if result.decision == "Allow":
        return None
    return (
        f"User: {principal} is not authorized to perform: {action} on resource: {resource} "
        f"because no identity-based policy allows the {action} action"
    )


def policy_refuses(service: str, action: str, resource: str, source: str) -> bool:
    """Return whether the policy of `resource` denies access to an AWS service.

    `service` is its principal, as events.amazonaws.com; `source` the ARN for
    which it acts. A service needs an explicit Allow, also in its own account.
    """
    if not are_checked():
        return False
    found = _evaluator._resource_policy(action.partition(":")[0], resource)
    context = _evaluator.EvalContext(
        principal_arn="*",
        principal_type="Service",
        principal_account="",
        action=action,
        resource_arn=resource,
        region=_responses.get_region(),
        secure_transport=True,
        service_context={"aws:sourcearn": source, "aws:sourceaccount": source.split(":")[4]},
    )
    policy = found[0] if found else None
    decision = _evaluator.evaluate_resource_policy(policy, context, service=service).decision
    return bool(decision != "Allow")


class DeniedError(Exception):
    """The role of the state machine does not allow a call; the message is AWS's sentence."""


def check_role(execution: dict[str, Any], action: str, resource: str) -> None:
    """Check that the role of the execution's state machine may do `action` on an ARN."""
    machines = import_module("ministack.services.stepfunctions")._state_machines
    role = machines[execution["stateMachineArn"].partition("/")[0]]["roleArn"]
    problem = refusal(role, action, resource, "states")
    if problem:
        raise DeniedError(problem)


def function_arn(reference: str) -> str:
    """Return the ARN, with its qualifier, of the function that a task names."""
    if reference.startswith("arn:"):
        return reference
    name, _, qualifier = reference.partition(":")
    found = import_module("ministack.services.lambda_svc")._func_arn(name)
    return f"{found}:{qualifier}" if qualifier else str(found)
