"""The account and region of a command, checked before the CDK CLI starts; a stack in it.

A message names each missing thing and says what to do. The CLI reports some of these late, and uses
us-east-1 if no region is set.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
)

from infra import RefusedError
from infra.environment import Environment

# CDK's default bootstrap writes its version here (CDK guide, "Customize CDK bootstrapping").
BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
QUICK = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 3})


@dataclass(frozen=True, slots=True)
class Account:
    """The account and region of a stack, and a session for them."""

    id: str  # 12 digits
    region: str
    session: boto3.Session

    def client(self, service: str) -> Any:
        """Return a boto3 client of `service` in this account and region."""
        return self.session.client(
            service,  # type: ignore[call-overload]  # the stubs want each service's name spelt out
            region_name=self.region,
            config=QUICK,
        )

    def concurrency(self) -> int | None:
        """Return how many functions Lambda runs at once; None without the right to ask."""
        try:
            limits = self.client("lambda").get_account_settings()["AccountLimit"]
        except (BotoCoreError, ClientError, KeyError):
            return None
        return int(limits["ConcurrentExecutions"])

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that make the CDK CLI use the same region."""
        return {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region}


def find_account(environment: Environment) -> Account:
    """Return the account of this shell's credentials, and the region of the environment."""
    try:
        session = boto3.Session()
        region = environment.stack.region or _region(session, environment.name)
        account = Account("", region, session)
        found: str = account.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(explain(error)) from error
    wanted = environment.stack.account
    if wanted is not None and wanted != found:
        raise RefusedError(
            f"the credentials are of account {found}, but stack.account of the environment "
            f"{environment.name} is {wanted}: use credentials of {wanted}, or change the setting"
        )
    return Account(found, region, session)


def _region(session: boto3.Session, environment: str) -> str:
    # boto3, and with it `s3unzip`, does not know AWS_REGION; the CDK CLI and others prefer it.
    variable, region = os.environ.get("AWS_REGION"), session.region_name
    if variable and region and variable != region:
        raise RefusedError(
            f"AWS_REGION is {variable}, but AWS_DEFAULT_REGION or the profile says {region}: "
            "some programs would go to the one, some to the other; make them the same"
        )
    if not variable and not region:
        raise RefusedError(
            "no AWS region is set: `export AWS_DEFAULT_REGION=eu-west-1`, or set stack.region "
            f"in infra/environments/{environment}.toml"
        )
    return region or variable or ""


def explain(error: BotoCoreError | ClientError) -> str:
    """Return a message for an error of boto3: its meaning for a deployment, and what to do."""
    match error:
        case NoCredentialsError():
            return (
                "no AWS credentials were found: `export AWS_PROFILE=NAME` for a profile of "
                "~/.aws/config, or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        case EndpointConnectionError():
            return f"AWS does not answer ({error}): check the network, AWS_ENDPOINT_URL, the region"
        case ClientError():
            return f"AWS refused the credentials or the request: {error}"
    return f"AWS cannot be reached with this configuration: {error}"


def check_bootstrap(account: Account, environment: str) -> None:
    """Check that CDK's bootstrap stack is in the account and region.

    Without the right to read the parameter, the check passes: the CDK CLI assumes a role that has
    it.
    """
    ssm = account.client("ssm")
    try:
        ssm.get_parameter(Name=BOOTSTRAP_VERSION)
    except ssm.exceptions.ParameterNotFound as error:
        raise RefusedError(
            f"account {account.id} is not prepared for CDK in {account.region}: run "
            f"`make bootstrap ENV={environment}` once, then this command again"
        ) from error
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"AccessDenied", "AccessDeniedException"}:
            raise RefusedError(explain(error)) from error
    except BotoCoreError as error:
        raise RefusedError(explain(error)) from error


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """One stack as CloudFormation describes it."""

    name: str
    outputs: dict[str, str]
    protected: bool  # termination protection is on
    buckets: tuple[str, ...]  # that are deleted with the stack: not existing or retained ones


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
    """
    s3 = account.client("s3")
    deleted = 0
    try:
        for objects in _versions(s3, bucket):
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            for error in answer.get("Errors", []):
                raise RefusedError(
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
