"""The AWS account and region of a command, and the stack there; checked before the CDK CLI starts.

A message names what is missing and says what to do. The CLI would report some of these mistakes
late, and would use us-east-1 if no region is set.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
)
from botocore.parsers import ResponseParserError

from infra import RefusedError
from infra.environment import Environment
from infra.reasons import listed
from s3unzip.model import Location
from s3unzip.run_ids import run_of_execution, run_stem
from s3unzip.settings import SERVICE

# CDK's bootstrap writes its version here (CDK guide, "Customize CDK bootstrapping").
BOOTSTRAP_VERSION = "/cdk-bootstrap/{qualifier}/version"
NO_FUNCTION = "s3unzip-asks-for-the-memory-limit"
MEMORY_LIMIT = re.compile(r"memorySize\W.*?less than or equal to (\d+)", re.IGNORECASE | re.DOTALL)
# Suffixes of the settings whose resources must be in the stack's region: an alarm cannot notify a
# topic of another region, and the secrets and the work bucket are used in this region only.
SAME_REGION = ("alarms.topic", "password_secret", "work.kms_key")
AWS_ERRORS = (BotoCoreError, ClientError, ResponseParserError)  # that a boto3 client raises
MISSING = re.compile("NotFound|NoSuch|404")  # part of the error code for a missing resource
CLIENT_CONFIG = Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 3})


class _ResourceSetting(NamedTuple):
    """A setting that names a resource outside of the stack, and the request that describes it."""

    setting: str
    request: str  # ``service.operation``
    parameter: str  # the parameter of the operation that names the resource
    value: str | list[str] | None  # the value of the parameter; None: the setting is not set


@dataclass(frozen=True, slots=True)
class Account:
    """The account and region of a stack, and a session for them."""

    id: str  # 12 digits
    region: str
    session: boto3.Session

    def client(self, service: str, region: str | None = None) -> Any:
        """Return a boto3 client of `service` in this account, by default in this region."""
        return self.session.client(
            service,  # type: ignore[call-overload]  # the stubs accept only literal names
            region_name=region or self.region,
            config=CLIENT_CONFIG,
        )

    def unreserved_concurrency(self, functions: Iterable[str] = ()) -> int | None:
        """Return the concurrency of the account that no other function has reserved.

        Args:
            functions: names of functions whose own reservations count as free.

        Returns:
            The number of concurrent executions; None if the credentials may not read it.
        """
        try:
            limits = self.client("lambda").get_account_settings()["AccountLimit"]
            reserved = self.reserved_concurrency(functions)
            unreserved = int(limits["UnreservedConcurrentExecutions"])
        except (BotoCoreError, ClientError, KeyError):
            return None
        return unreserved + sum(filter(None, reserved.values()))

    def reserved_concurrency(self, functions: Iterable[str]) -> dict[str, int | None]:
        """Return the reserved concurrency of each function; None if it has none."""
        client = self.client("lambda")
        return {
            name: client.get_function_concurrency(FunctionName=name).get(
                "ReservedConcurrentExecutions"
            )
            for name in functions
        }

    def memory_limit(self, memory: int) -> int | None:
        """Return the account's maximum for the memory of a function in MB, if `memory` exceeds it.

        No API returns the maximum. This method asks Lambda to change a function that does not
        exist: Lambda checks the memory before it looks for the function, and its error message
        contains the maximum. Nothing is ever changed.

        Returns:
            The maximum; None if `memory` is allowed, or if the credentials may not ask.
        """
        try:
            self.client("lambda").update_function_configuration(
                FunctionName=NO_FUNCTION, MemorySize=memory
            )
        except (BotoCoreError, ClientError) as error:
            limit = MEMORY_LIMIT.search(str(error))
            if limit is not None:
                return int(limit[1])
        return None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which the CDK CLI uses the same region."""
        return {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region}


def find_account(environment: Environment) -> Account:
    """Return the account of this shell's credentials, and the region of the environment."""
    session = boto3.Session()
    region = environment.stack.region or _find_region(session, environment.name)
    account_id: str = session.client(
        "sts", region_name=region, config=CLIENT_CONFIG
    ).get_caller_identity()["Account"]
    if environment.stack.account not in {None, account_id}:
        raise RefusedError(
            f"the credentials belong to account {account_id}, but stack.account of the environment "
            f"{environment.name} is {environment.stack.account}: use credentials of "
            f"{environment.stack.account}, or change the setting"
        )
    return Account(account_id, region, session)


def _find_region(session: boto3.Session, environment: str) -> str:
    """Return the region of this shell; refuse two different regions."""
    # boto3, and so `s3unzip`, ignores AWS_REGION; the CDK CLI and other programs prefer it.
    variable = os.environ.get("AWS_REGION")
    region = session.region_name
    if variable and region and variable != region:
        raise RefusedError(
            f"AWS_REGION is {variable}, but AWS_DEFAULT_REGION or the profile says {region}: "
            "programs would use different regions; set both to the same one"
        )
    if not variable and not region:
        raise RefusedError(
            "no AWS region is set: `export AWS_DEFAULT_REGION=eu-west-1`, or set stack.region "
            f"in infra/environments/{environment}.toml"
        )
    return region or variable or ""


def explain(error: Exception) -> str:
    """Return a message for one of `AWS_ERRORS`: what it means for a deployment, and what to do."""
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
        case ResponseParserError():  # such as a page of a proxy; the error contains the whole page
            return "an answer is not from AWS: check the network, HTTPS_PROXY and AWS_ENDPOINT_URL"
    return f"AWS cannot be reached with this configuration: {error}"


def check_bootstrap(account: Account, qualifier: str, make_arguments: str) -> None:
    """Check that CDK's bootstrap stack is in the account and region.

    The check also passes if the credentials may not read the stack's version: the CDK CLI assumes a
    role that may.

    Args:
        account: the account and the region.
        qualifier: the qualifier of the bootstrap stack.
        make_arguments: the arguments of `make` for this environment, such as ``ENV=dev``. The
            message contains them.

    Raises:
        RefusedError: the bootstrap stack is missing.
    """
    ssm = account.client("ssm")
    try:
        ssm.get_parameter(Name=BOOTSTRAP_VERSION.format(qualifier=qualifier))
    except ssm.exceptions.ParameterNotFound as error:
        raise RefusedError(
            f"account {account.id} is not prepared for CDK in {account.region}: run "
            f"`make bootstrap {make_arguments}` once, then this command again"
        ) from error
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"AccessDenied", "AccessDeniedException"}:
            raise


def check_resources(account: Account, environment: Environment) -> None:
    """Check that the resources that the environment's file names exist.

    A resource that the credentials may not read, such as one of another account, passes.

    Raises:
        RefusedError: a resource does not exist or cannot be used; the message names the setting.
    """
    for setting, request, parameter, value in _resource_settings(environment):
        if value is None:
            continue
        service, operation = request.split(".")
        shown = ", ".join(listed(value))
        # The setting may be from SET, not from the file.
        named = f"environment {environment.name}: {setting}"
        region = account.region
        if shown.startswith("arn:"):  # the resource may be in another region
            region = shown.split(":")[3] or region
        # S3 uses keys of the bucket's region (SSE-KMS guide), and created buckets use `kms_key`.
        encrypts_created = setting == "kms_key" and not all(
            bucket.existing for _, bucket in environment.buckets()
        )
        if region != account.region and (encrypts_created or setting.endswith(SAME_REGION)):
            raise RefusedError(
                f"{named}: {shown} is in {region}, but it must be in {account.region}, the region "
                "of the stack"
            )
        try:
            answer = getattr(account.client(service, region), operation)(**{parameter: value})
            _check_usable(f"{named}: {shown}", answer)
            # Step Functions reads lists of tasks in its own region. S3 sends events to EventBridge
            # in the bucket's region, and to SNS in any region.
            if (
                (setting == "work.existing" or environment.ingest.topic is None)
                and setting in {"ingest.existing", "work.existing"}
                and answer.get("BucketRegion", account.region) != account.region
            ):
                raise RefusedError(
                    f"{named}: {shown} is in {answer['BucketRegion']}, but it must be in "
                    f"{account.region}, the region of the stack; only with ingest.topic may "
                    "archives be in another region"
                )
        except BotoCoreError:  # the deployment will report it
            continue
        except ClientError as error:  # other errors are left to the deployment
            if MISSING.search(error.response["Error"]["Code"]):
                raise RefusedError(
                    f"{named}: there is no {shown} in account {account.id}, region {region}"
                ) from error


def check_records(account: Account, environment: Environment) -> None:
    """Refuse the bucket and the prefix of another stack's records: each would list all runs.

    Without the right to describe all stacks, none is compared.
    """
    own = {"WorkBucket": environment.work.existing, "WorkPrefix": environment.work.prefix}
    with suppress(ClientError):
        for stack in (
            stack
            for page in account.client("cloudformation").get_paginator("describe_stacks").paginate()
            for stack in page["Stacks"]
            if stack["StackName"] != environment.stack.name
        ):
            outputs = {row["OutputKey"]: row["OutputValue"] for row in stack.get("Outputs", [])}
            if own.items() <= {"WorkPrefix": "", **outputs}.items():
                raise RefusedError(
                    f"environment {environment.name}: work.existing and work.prefix are those of "
                    f"the stack {stack['StackName']}, so that each would list the runs of the "
                    "other: set another work.prefix"
                )


def _check_usable(named: str, answer: Mapping[str, Any]) -> None:
    """Refuse a key that cannot encrypt now: S3 would refuse each PUT and GET with it.

    S3 and Secrets Manager use symmetric keys only (S3 user guide, UsingKMSEncryption).
    """
    key = answer.get("KeyMetadata", {})
    if key.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
        raise RefusedError(
            f"{named} is a key of the kind {key['KeySpec']}: set a symmetric key for encryption"
        )
    # A key is Updating for some seconds while its primary Region changes; it encrypts meanwhile.
    if key.get("KeyState", "Enabled") not in {"Enabled", "Updating"}:
        raise RefusedError(
            f"{named} is {key['KeyState']}: enable the key, cancel its deletion or import its key "
            "material, or set another key"
        )


def _resource_settings(environment: Environment) -> list[_ResourceSetting]:
    """Return the settings that name resources outside of the stack."""
    buckets = dict(environment.buckets()).items()
    routes = environment.by_path().items()
    keys = {
        "kms_key": environment.kms_key,
        **{f"{name}.kms_key": bucket.kms_key for name, bucket in buckets},
        **{f"{path}password_kms_key": route.password_kms_key for path, route in routes},
    }
    return [
        *(
            _ResourceSetting(f"{name}.existing", "s3.head_bucket", "Bucket", bucket.existing)
            for name, bucket in buckets
        ),
        *(_ResourceSetting(name, "kms.describe_key", "KeyId", key) for name, key in keys.items()),
        *(
            _ResourceSetting(
                f"{path}password_secret",
                "secretsmanager.describe_secret",
                "SecretId",
                # The part after # is a field of a JSON secret.
                route.password_secret and route.password_secret.partition("#")[0],
            )
            for path, route in routes
        ),
        *(
            _ResourceSetting(f"{name}.topic", "sns.get_topic_attributes", "TopicArn", arn)
            for name, arn in (
                ("alarms", environment.alarms.topic),
                ("ingest", environment.ingest.topic),
            )
        ),
        _ResourceSetting("event_bus", "events.describe_event_bus", "Name", environment.event_bus),
        *(
            _ResourceSetting("network.subnets", "ec2.describe_subnets", "SubnetIds", [subnet])
            for subnet in environment.network.subnets
        ),
        *(
            _ResourceSetting(
                "network.security_groups", "ec2.describe_security_groups", "GroupIds", [group]
            )
            for group in environment.network.security_groups
        ),
        _ResourceSetting(
            "stack.permissions_boundary",
            "iam.get_policy",
            "PolicyArn",
            environment.stack.permissions_boundary,
        ),
    ]


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """One stack as CloudFormation describes it."""

    name: str
    outputs: dict[str, str]
    protected: bool  # whether termination protection is on
    buckets: tuple[str, ...]  # names of the buckets that are deleted with the stack
    # The names of the functions, with the reserved concurrency of each in the template.
    functions: dict[str, int | None] = field(default_factory=dict)
    status: str = ""  # such as UPDATE_COMPLETE
    is_own: bool = True  # whether it is a stack of s3unzip, by the description of its template


def find_stack(account: Account, name: str) -> DeployedStack | None:
    """Return the stack `name`; None if it does not exist."""
    cloudformation = account.client("cloudformation")
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        # CloudFormation has no error code for a missing stack (API reference, DescribeStacks).
        if "does not exist" in error.response["Error"]["Message"]:
            return None
        raise
    # A stack has no template until its first change set is executed. botocore decodes a template in
    # JSON, such as ours.
    body = cloudformation.get_template(StackName=name).get("TemplateBody") or {}
    template: dict[str, Any] = body if isinstance(body, dict) else {}
    declared: dict[str, Any] = template.get("Resources", {})
    deleted_buckets = {  # logical ids; existing and retained buckets are not deleted
        logical_id
        for logical_id, resource in declared.items()
        if resource["Type"] == "AWS::S3::Bucket" and resource.get("DeletionPolicy") == "Delete"
    }
    resources = [
        resource
        for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        for resource in page["StackResourceSummaries"]
        if resource["ResourceStatus"] != "DELETE_COMPLETE" and resource.get("PhysicalResourceId")
    ]
    return DeployedStack(
        name=name,
        outputs={output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])},
        protected=bool(stack.get("EnableTerminationProtection")),
        status=stack["StackStatus"],
        buckets=tuple(
            resource["PhysicalResourceId"]
            for resource in resources
            if resource["LogicalResourceId"] in deleted_buckets
        ),
        functions={
            resource["PhysicalResourceId"]: declared.get(resource["LogicalResourceId"], {})
            .get("Properties", {})
            .get("ReservedConcurrentExecutions")
            for resource in resources
            if resource["ResourceType"] == "AWS::Lambda::Function"
        },
        is_own=not body or template.get("Description", "").startswith(f"{SERVICE}: "),
    )


def stop_pipeline(account: Account, stack: DeployedStack) -> int:
    """Stop a stack's functions and all executions; return how many runs were at work.

    An archive that arrives later would otherwise be extracted into a bucket that is being emptied,
    and then perhaps deleted. CloudFormation deletes a state machine only when its executions have
    ended. Executions named RUN-w1, RUN-w2, ... are not counted, because they only wait.
    """
    client = account.client("lambda")
    for name in stack.functions:
        with suppress(client.exceptions.ResourceNotFoundException):  # somebody has deleted it
            # No further invocation begins (Lambda guide, "Configuring reserved concurrency").
            client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    machine = stack.outputs.get("StateMachineArn")
    if machine is None:
        return 0
    states = account.client("stepfunctions")
    try:
        running = [
            row["executionArn"]
            for page in states.get_paginator("list_executions").paginate(
                stateMachineArn=machine, statusFilter="RUNNING"
            )
            for row in page["executions"]
        ]
    except states.exceptions.StateMachineDoesNotExist:
        return 0
    for execution in running:
        states.stop_execution(executionArn=execution, cause="The environment is destroyed.")
    return sum(re.search(r"-w\d+$", execution) is None for execution in running)


def start_functions(account: Account, stack: DeployedStack) -> list[str]:
    """Let Lambda call the functions that `stop_pipeline` has stopped; return their names.

    CloudFormation leaves them stopped: it compares a template with the one before, not with the
    functions. Without the right to read their concurrency, no function counts as stopped.
    """
    client = account.client("lambda")
    try:
        reserved_now = account.reserved_concurrency(stack.functions)
    except ClientError:
        return []
    stopped = {
        name: reserved for name, reserved in stack.functions.items() if reserved_now[name] == 0
    }
    for name, reserved in stopped.items():
        if reserved is None:
            client.delete_function_concurrency(FunctionName=name)
        else:
            client.put_function_concurrency(
                FunctionName=name, ReservedConcurrentExecutions=reserved
            )
    return list(stopped)


def list_runs(
    account: Account, stack: DeployedStack, archive: Location, put_at: datetime
) -> set[str]:
    """Return the ids of an archive's runs; an id begins with `put_at` and the archive's name."""
    id_beginning = f"{put_at:%Y-%m-%d/%H%M%S}-{run_stem(archive)}-"
    executions = account.client("stepfunctions").list_executions(
        stateMachineArn=stack.outputs["StateMachineArn"],
        maxResults=100,  # the latest ones
    )
    prefix = f"{stack.outputs.get('WorkPrefix', '')}runs/"
    objects = account.client("s3").list_objects_v2(
        Bucket=stack.outputs["WorkBucket"], Prefix=prefix + id_beginning
    )
    # A key is PREFIX/DAY/REST_OF_ID/NAME; intake leaves records of small archives without an
    # execution.
    return {
        run
        for run in (run_of_execution(row["name"]) for row in executions["executions"])
        if run.startswith(id_beginning)
    } | {
        "/".join(row["Key"].removeprefix(prefix).split("/", 2)[:2])
        for row in objects.get("Contents", ())
    }


def empty_bucket(account: Account, bucket: str) -> int:
    """Delete every version and delete marker in `bucket`; return how many were deleted.

    CloudFormation deletes only empty buckets (CloudFormation guide, AWS::S3::Bucket). Returns 0 if
    the bucket does not exist.
    """
    s3 = account.client("s3")
    deleted = 0
    with suppress(s3.exceptions.NoSuchBucket):
        # A page has at most 1,000 rows, as many as DeleteObjects accepts.
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            rows = page.get("Versions", []) + page.get("DeleteMarkers", [])
            if not rows:  # DeleteObjects refuses an empty list
                continue
            versions = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows]
            for error in s3.delete_objects(
                Bucket=bucket, Delete={"Objects": versions, "Quiet": True}
            ).get("Errors", []):
                raise RefusedError(
                    f"s3://{bucket}/{error['Key']} was not deleted: {error.get('Message')}"
                )
            deleted += len(versions)
    return deleted
