"""The check of a synthesis by cdk-nag, and the exceptions to its rules."""

import os
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import IConstruct

from infra.reasons import listed, reason_for, resources_of

# `--no-validation` of the CLI sets it to "false". CDK then leaves its own linter out, and this
# module leaves cdk-nag out.
VALIDATION_VARIABLE = "CDK_VALIDATION"


def check_best_practices(app: cdk.App) -> None:
    """Let the synthesis of `app` fail if cdk-nag finds anything that no reason accepts."""
    if os.environ.get(VALIDATION_VARIABLE) == "false":
        return
    # cdk-nag is a development dependency: a deployment with the infra group only runs without it.
    try:
        from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415 - it may not be there
    except ModuleNotFoundError:
        return
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True))


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the findings of `rule` on `construct` and below, because of `reason`."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))


def acknowledge_wildcards(stack: cdk.Stack) -> None:
    """Accept only the wildcards for which `infra.reasons` has a reason."""
    for construct in stack.node.find_all():
        if not isinstance(construct, iam.CfnPolicy):
            continue
        document: dict[str, Any] = stack.resolve(construct.policy_document)
        for statement in document["Statement"]:
            for resource in resources_of(statement):
                reason = reason_for(listed(statement["Action"]), resource)
                if "*" in resource and reason is not None:
                    acknowledge(
                        construct, f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]", reason
                    )
