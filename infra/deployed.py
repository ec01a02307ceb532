"""A deployed stack: its outputs, its protection, and the buckets that it deletes with itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from infra.account import Account


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """One stack as CloudFormation describes it."""

    name: str
    outputs: dict[str, str]
    protected: bool  # termination protection is on
    buckets: tuple[
        str, ...
    ]  # the buckets that are deleted with the stack: not existing or retained ones


class BucketNotEmptiedError(Exception):
    """S3 did not delete some objects; the message names the first."""


def find_stack(account: Account, name: str) -> DeployedStack | None:
    """Return the stack `name`, None if there is none."""
    cloudformation = account.client("cloudformation")
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        # CloudFormation has no separate error code for it (API reference, DescribeStacks).
        if "does not exist" in error.response["Error"]["Message"]:
            return None
        raise
    body = cloudformation.get_template(StackName=name)["TemplateBody"]
    template: dict[str, Any] = json.loads(body) if isinstance(body, str) else body
    deleted = {
        logical
        for logical, resource in template["Resources"].items()
        if resource["Type"] == "AWS::S3::Bucket" and resource.get("DeletionPolicy") == "Delete"
    }
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
    resources = [one for page in pages for one in page["StackResourceSummaries"]]
    return DeployedStack(
        name,
        {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])},
        bool(stack.get("EnableTerminationProtection")),
        tuple(
            one["PhysicalResourceId"]
            for one in resources
            if one["LogicalResourceId"] in deleted and one["ResourceStatus"] != "DELETE_COMPLETE"
        ),
    )


def list_runs(account: Account, stack: DeployedStack, put_at: datetime) -> set[str]:
    """Return the ids of the runs of archives that were put at this time; ids begin with it."""
    beginning = f"{put_at:%Y-%m-%d/%H%M%S}-"
    executions = account.client("stepfunctions").list_executions(
        stateMachineArn=stack.outputs["StateMachineArn"], maxResults=100
    )
    name = beginning.replace("/", "-")  # an execution is named by its run
    found = {
        beginning + one["name"].removeprefix(name)
        for one in executions["executions"]
        if one["name"].startswith(name)
    }
    prefix = f"{stack.outputs.get('WorkPrefix', '')}runs/"
    listed = account.client("s3").list_objects_v2(
        Bucket=stack.outputs["WorkBucket"], Prefix=prefix + beginning
    )
    keys = (one["Key"].removeprefix(prefix) for one in listed.get("Contents", ()))
    return found | {"/".join(key.split("/", 2)[:2]) for key in keys}


def empty_bucket(account: Account, bucket: str) -> int:
    """Delete every object, version and delete marker of `bucket`; return how many.

    CloudFormation deletes only empty buckets (CloudFormation guide, AWS::S3::Bucket). For a bucket
    that does not exist, the result is 0.

    Raises:
        BucketNotEmptiedError: S3 refuses to delete some.
    """
    s3 = account.client("s3")
    deleted = 0
    try:
        for objects in _versions(s3, bucket):
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            for error in answer.get("Errors", []):
                raise BucketNotEmptiedError(
                    f"s3://{bucket}/{error['Key']} was not deleted: {error.get('Message')}"
                )
            deleted += len(objects)
    except s3.exceptions.NoSuchBucket:
        return deleted
    return deleted


def _versions(s3: Any, bucket: str) -> Iterator[list[dict[str, str]]]:
    """Yield at most 1,000 at a time, the limit of one DeleteObjects."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = page.get("Versions", []) + page.get("DeleteMarkers", [])
        if found:
            yield [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
