"""Checks the stack with cdk-nag during synthesis; the exceptions to its rules."""

import os
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from infra.reasons import listed, reason_for, text_of

# The CLI's option `--no-validation` sets this variable to "false". Then CDK does not run its own
# linter, and this module does not run cdk-nag.
VALIDATION_VARIABLE = "CDK_VALIDATION"


def check_best_practices(app: cdk.App) -> None:
    """Make the synthesis of `app` fail if cdk-nag has a finding that was not acknowledged."""
    if os.environ.get(VALIDATION_VARIABLE) == "false":
        return
    # cdk-nag is a development dependency: a deployment may have only the dependency group `infra`.
    try:
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError:
        return
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the findings of `rule` on `construct` and its children, for the given reason."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))


def acknowledge_wildcards(stack: cdk.Stack) -> None:
    """Accept only the wildcards for which `infra.reasons` has a reason."""
    for construct in stack.node.find_all():
        if not isinstance(construct, iam.CfnPolicy):
            continue
        document: dict[str, Any] = stack.resolve(construct.policy_document)
        for statement in document["Statement"]:
            for resource in map(text_of, listed(statement["Resource"])):
                reason = reason_for(listed(statement["Action"]), resource)
                if "*" in resource and reason is not None:
                    acknowledge(
                        construct, f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]", reason
                    )
