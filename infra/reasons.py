"""The wildcards that the rights of roles may contain, each with its reason."""

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A resource with a wildcard that is allowed for some actions, and the reason."""

    actions: str  # a pattern that must match each action of the statement completely
    resource: str  # a pattern that must match the resource's text completely
    reason: str


WILDCARDS = (
    Wildcard(
        r"s3:(GetObject|GetObjectVersion|PutObject|AbortMultipartUpload|DeleteObject"
        r"|ListMultipartUploadParts|DeleteObjectVersion|PutObjectAcl|PutObjectTagging"
        r"|(Get|Put)ObjectVersionTagging)",
        r"(?!\*).+/\*",
        "Keys below a prefix have no ARNs of their own before they exist; the bucket and the "
        "prefix are exact.",
    ),
    Wildcard(
        r"xray:(PutTraceSegments|PutTelemetryRecords|GetSamplingRules|GetSamplingTargets)",
        r"\*",
        "X-Ray's actions do not support resources.",
    ),
    Wildcard(
        r"logs:((Create|Get|Update|Delete)LogDelivery|ListLogDeliveries|PutResourcePolicy"
        r"|DescribeResourcePolicies|DescribeLogGroups)",
        r"\*",
        "Step Functions' log delivery does not support resources (Step Functions guide, cw-logs).",
    ),
    Wildcard(
        r"ec2:(CreateNetworkInterface|DescribeNetworkInterfaces|DescribeSubnets"
        r"|DeleteNetworkInterface|(Assign|Unassign)PrivateIpAddresses)",
        r"\*",
        "Lambda creates network interfaces with the function's role; they have no ARNs before they "
        "exist (Lambda guide, configuration-vpc).",
    ),
    Wildcard(
        r"lambda:InvokeFunction",
        r"<Functions\w+\.Arn>:\*",
        "CDK grants the right to invoke a function and all its versions; the function is exact.",
    ),
    Wildcard(
        r"states:(DescribeExecution|StopExecution|RedriveExecution)",
        r"arn:.+:execution:(?!\*).+:\*",
        "Executions have no ARNs before they exist; the state machine in the ARN is exact.",
    ),
)


def reason_for(actions: list[str], resource: str) -> str | None:
    """Return the reasons for a wildcard in `resource`; None if one of `actions` has no reason.

    CDK merges the statements about one resource (feature flag ``minimizePolicies``), so the actions
    of one statement may have different reasons. These are joined.
    """
    wildcards = [wildcard for wildcard in WILDCARDS if re.fullmatch(wildcard.resource, resource)]
    reasons = [
        next(
            (wildcard.reason for wildcard in wildcards if re.fullmatch(wildcard.actions, action)),
            "",
        )
        for action in actions
    ]
    if "" in reasons:
        return None
    return " ".join(dict.fromkeys(reasons)) or None


def listed(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list of one."""
    return value if isinstance(value, list) else [value]


def text_of(value: Any) -> str:
    """Return a value of a template as text; a reference becomes ``<LogicalId.Attribute>``."""
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(text_of(part) for part in parts)
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
    return json.dumps(value, separators=(",", ":"))
