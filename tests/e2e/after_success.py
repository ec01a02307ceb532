"""What a role gets for the action after success, from the template of an environment with a rule.

The rights are given to a function of a stack that was deployed without a rule, and taken away one
at a time. So no other deployment is needed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s3unzip.settings import Variable
from tests.e2e.rights import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embedded.deploy import Assembly
    from embedded.pipeline import DeployedPipeline

POLICY = "AfterSuccess"

Pair = tuple[str, str]  # an action, and a resource as JSON


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the variable of the functions, and what each role has only because of it."""

    variable: str
    rights: Mapping[str, frozenset[Pair]]


def read_rule(made: Assembly, without: Assembly) -> Rule:
    """Return the rule of an assembly; `without` is that of the same stack without a rule."""
    template = json.loads(made.template.read_text())
    base = json.loads(without.template.read_text())
    variables = _resource(template, "Functions", "Plan", "AWS::Lambda::Function")
    return Rule(
        variables["Environment"]["Variables"][Variable.AFTER_SUCCESS.value],
        {
            name: frozenset(_pairs(template, name) - _pairs(base, name))
            for name in ("plan", "report")
        },
    )


def _pairs(template: dict[str, Any], function: str) -> set[Pair]:
    policy = _resource(template, "Functions", f"{function.capitalize()}Role", "AWS::IAM::Policy")
    return {
        (action, json.dumps(resource, sort_keys=True))
        for statement in policy["PolicyDocument"]["Statement"]
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }


def _resource(template: dict[str, Any], scope: str, name: str, kind: str) -> dict[str, Any]:
    """Return the properties of the only resource of a kind whose logical id begins so."""
    (found,) = (
        resource["Properties"]
        for logical, resource in template["Resources"].items()
        if resource["Type"] == kind and _is_called(logical, scope + name)
    )
    return dict(found)


def _is_called(logical: str, name: str) -> bool:
    """Say whether a logical id is a name and CDK's hash, or the default policy of that role."""
    rest = logical.removeprefix(name)
    return rest != logical and (rest.startswith("DefaultPolicy") or len(rest) == 8)


@contextmanager
def allowed(pipeline: DeployedPipeline, function: str, pairs: frozenset[Pair]) -> Iterator[None]:
    """Give a function's role some rights for a while."""
    iam = pipeline.client("iam")
    roles = [one["RoleName"] for one in iam.list_roles()["Roles"]]
    (role,) = (one for one in roles if f"Functions{function.capitalize()}Role" in one)
    statements = [
        {"Effect": "Allow", "Action": action, "Resource": _resolve(json.loads(where), pipeline)}
        for action, where in sorted(pairs)
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName=role, PolicyName=POLICY, PolicyDocument=document)
    try:
        yield
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName=POLICY)


def _resolve(resource: Any, pipeline: DeployedPipeline) -> str:
    """Return the ARN that a template's expression means: literals, and the ingest bucket's."""
    if isinstance(resource, str):
        return resource
    ((function, value),) = resource.items()
    if function == "Fn::Join":
        return str(value[0]).join(_resolve(part, pipeline) for part in value[1])
    if function == "Ref":
        assert value == "AWS::Partition", resource
        return "aws"
    assert function == "Fn::GetAtt", resource
    assert value[0].startswith("StorageIngest"), resource
    return f"arn:aws:s3:::{pipeline.outputs['IngestBucket']}"
