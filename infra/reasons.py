"""Exceptions to rules of cdk-nag, each with its reason."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import IConstruct


@dataclass(frozen=True, slots=True)
class Wildcard:
    """An allowed wildcard resource: its actions, its form, and the reason."""

    actions: str  # a pattern that must match each action of the statement completely
    resource: str  # a pattern that must match the resource's text completely
    reason: str


WILDCARDS = (
    Wildcard(
        r"s3:(GetObject|GetObjectVersion|PutObject|AbortMultipartUpload|DeleteObject"
        r"|ListMultipartUploadParts|DeleteObjectVersion|PutObjectTagging"
        r"|(Get|Put)ObjectVersionTagging)",
        r"(?!\*).+/\*",
        "Keys below a prefix have no ARNs of their own before they exist; the bucket and the "
        "prefix are exact.",
    ),
    Wildcard(
        r"xray:(PutTraceSegments|PutTelemetryRecords|GetSamplingRules|GetSamplingTargets)",
        r"\*",
        "X-Ray's actions take no resource.",
    ),
    Wildcard(
        r"logs:((Create|Get|Update|Delete)LogDelivery|ListLogDeliveries|PutResourcePolicy"
        r"|DescribeResourcePolicies|DescribeLogGroups)",
        r"\*",
        "Step Functions' log delivery takes no resource (Step Functions guide, cw-logs).",
    ),
    Wildcard(
        r"lambda:InvokeFunction",
        r"<Functions\w+\.Arn>:\*",
        "CDK grants a function together with its versions; the function is exact.",
    ),
    Wildcard(
        r"states:(DescribeExecution|StopExecution|RedriveExecution)",
        r"arn:.+:execution:(?!\*).+:\*",
        "Executions have no ARNs before they exist; the state machine is exact.",
    ),
)


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the findings of `rule` on `construct` and below, because of `reason`."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))


def acknowledge_wildcards(stack: cdk.Stack) -> None:
    """Accept only the wildcards for which `WILDCARDS` has a reason."""
    for construct in stack.node.find_all():
        if not isinstance(construct, iam.CfnPolicy):
            continue
        document: dict[str, Any] = stack.resolve(construct.policy_document)
        for statement in document["Statement"]:
            for resource in resources_of(statement):
                reason = reason_for(_listed(statement["Action"]), resource)
                if "*" in resource and reason is not None:
                    acknowledge(construct, f"AwsSolutions-IAM5[Resource::{resource}]", reason)


def reason_for(actions: list[str], resource: str) -> str | None:
    """Return the reason for a wildcard in `resource`, None if one of `actions` has none.

    CDK merges statements of one resource (the feature flag ``minimizePolicies``), so the actions of
    one statement may need different reasons.
    """
    reasons: dict[str, None] = {}  # an ordered set
    known = [one for one in WILDCARDS if re.fullmatch(one.resource, resource)]
    for action in actions:
        reason = next((one.reason for one in known if re.fullmatch(one.actions, action)), None)
        if reason is None:
            return None
        reasons[reason] = None
    return " ".join(reasons) or None


def resources_of(statement: dict[str, Any]) -> Iterator[str]:
    """Yield the statement's resources in cdk-nag's form: ``<LogicalId.Arn>/*``."""
    yield from (_text(resource) for resource in _listed(statement["Resource"]))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(_text(part) for part in parts)
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
    return json.dumps(value, separators=(",", ":"))
