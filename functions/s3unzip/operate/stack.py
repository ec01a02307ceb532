"""A deployed stack: found by its name; its outputs name everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
)

from s3unzip.aws.aws_faults import read_fault
from s3unzip.errors import (
    NotFoundError,
)

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient


STACK = "s3unzip-{}"  # as the files in infra/environments name it


class Stack(NamedTuple):
    """A deployed stack."""

    name: str
    status: str  # of CloudFormation: CREATE_COMPLETE, UPDATE_ROLLBACK_COMPLETE, ...
    outputs: dict[str, str]


def find_stack(stacks: CloudFormationClient, environment: str) -> Stack:
    """Return the stack of `environment`, which is an environment's name or a stack's name.

    Raises:
        NotFoundError: there is no such stack, or it is not s3unzip's.
        AccessDeniedError: a right is missing.
    """
    for name in (STACK.format(environment), environment):
        try:
            found = stacks.describe_stacks(StackName=name)["Stacks"][0]
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and "does not exist" in str(error):
                continue
            raise read_fault(error, "cloudformation:DescribeStacks") from None
        outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())}
        if {"StateMachineArn", "WorkBucket"} <= outputs.keys():
            return Stack(name, found["StackStatus"], outputs)
        raise NotFoundError(f"stack {name} has no outputs of s3unzip; is it deployed?")
    raise NotFoundError(
        f"environment {environment}: no stack {STACK.format(environment)} here; "
        "check --env, --profile and --region"
    )
