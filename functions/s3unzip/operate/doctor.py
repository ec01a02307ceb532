"""``s3unzip doctor``: checks of a deployed environment, each a function that gives one answer.

A new check is a function and a line in `CHECKS`; the canary is the last one. A check that cannot be
made is not a failed check: a missing right of the person who runs the command, and a service that
an emulator does not have, are warnings that name the action.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from s3unzip.aws.environment import SCHEME, read_secret
from s3unzip.errors import AccessDeniedError, NotFoundError, S3UnzipError, UsageError
from s3unzip.fingerprint import source_fingerprint
from s3unzip.operate.runs import DeployedRuns, read_fault
from s3unzip.operate.submit import read_depth
from s3unzip.settings import Variable
from s3unzip.version import __version__

T = TypeVar("T")

ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
QUEUE = "AWS::SQS::Queue"
RULE = "AWS::Events::Rule"
# Functions by the beginning of their logical names: those that write members.
WRITERS = ("FunctionsIntake", "FunctionsPlan", "FunctionsExtract", "FunctionsSettle")
MAX_NAMES = 100  # limit of one DescribeAlarms
SHARE = 0.9  # of the available concurrency; more leaves too little for the other functions
QUOTA = "ask for more: Service Quotas, AWS Lambda, Concurrent executions (L-B99A9384)"
AGAIN = "deploy the stack again"
SET_EMAIL = "set alarms.email in the environment's file and deploy, or add your own action"

# Error codes of emulators for an operation that they do not have. AWS has all operations.
_UNKNOWN_CODES = frozenset(
    {
        "404",  # there is no such path; a HEAD of what is not there, the checks themselves take
        "InvalidAction",
        "NotImplemented",
        "NotImplementedException",
        "UnknownOperation",
        "UnknownOperationException",
        "UnsupportedOperation",
    }
)


class CheckStatus(StrEnum):
    """How serious a result is."""

    OK = "ok"
    WARNING = "warning"  # it works, or it could not be checked
    FAILURE = "failure"  # archives are not extracted, or will not be


class Answer(NamedTuple):
    """What a check found: a `CheckResult` without the name of the check."""

    status: CheckStatus
    message: str
    advice: str = ""

    @classmethod
    def ok(cls, message: str) -> Answer:
        """Return an answer without advice."""
        return cls(CheckStatus.OK, message)

    @classmethod
    def warning(cls, message: str, advice: str) -> Answer:
        """Return an answer that does not stop archives."""
        return cls(CheckStatus.WARNING, message, advice)

    @classmethod
    def failure(cls, message: str, advice: str) -> Answer:
        """Return an answer that stops archives, now or soon."""
        return cls(CheckStatus.FAILURE, message, advice)


class CheckResult(Struct, frozen=True):
    """What one check found."""

    name: str  # of the check: "concurrency"
    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class Diagnosis(Struct, frozen=True):
    """All results of one environment, as ``s3unzip doctor --json`` prints them."""

    environment: str
    checks: tuple[CheckResult, ...]

    @property
    def exit_code(self) -> int:
        """1 if a check failed, else 0."""
        return 1 if self.count(CheckStatus.FAILURE) else 0

    def count(self, status: CheckStatus) -> int:
        """Return how many checks have this status."""
        return sum(1 for one in self.checks if one.status is status)


class UnsupportedActionError(S3UnzipError):
    """The endpoint is not AWS and does not have this action."""


def ask(action: str, call: Callable[[], T]) -> T:
    """Return what `call` returns; `action` is the IAM action that it needs."""
    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        code = _code(error)
        if code in _UNKNOWN_CODES or "not yet implemented" in str(error).lower():
            raise UnsupportedActionError(action) from None
        if code == "403":  # a HEAD has no body
            raise AccessDeniedError(f"{action}: access denied") from None
        raise read_fault(error, action) from None


def not_checked(error: S3UnzipError) -> Answer:
    """Return the warning of a check that could not be made."""
    advice = "run the command again"
    if isinstance(error, UnsupportedActionError):
        message = f"not checked: this endpoint does not have {error}"
        return Answer.warning(message, "nothing to do on an emulator; on AWS report it")
    if isinstance(error, AccessDeniedError):
        advice = "allow the action to whoever runs this command, or ask somebody who may"
    return Answer.warning(f"not checked: {error}", advice)


def _code(error: Exception) -> str:
    """Return the code of an error: ``NoSuchBucket``; for a HEAD its HTTP status: ``404``."""
    return error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""


class Resource(NamedTuple):
    """One resource of the stack."""

    logical: str  # its name in the template: "FunctionsExtract1A2B3C4D"
    kind: str  # "AWS::Lambda::Function"
    physical: str  # its name in AWS; for a queue its URL


class Deployment:
    """The stack, its resources, the variables of its functions, and clients.

    Each fact is read once, when a check needs it. A property that calls AWS raises the errors of
    `ask`, which the caller of the checks catches.
    """

    def __init__(self, runs: DeployedRuns) -> None:
        self.runs = runs
        _, _, _, self.region, self.account, *_ = runs.outputs["StateMachineArn"].split(":")
        self._clients: dict[str, Any] = {}

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of the stack."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")

        def read() -> tuple[Resource, ...]:
            return tuple(
                Resource(one["LogicalResourceId"], one["ResourceType"], one["PhysicalResourceId"])
                for page in pages.paginate(StackName=self.runs.stack.name)
                for one in page["StackResourceSummaries"]
                if "PhysicalResourceId" in one  # missing while the resource is being created
            )

        return ask("cloudformation:ListStackResources", read)

    def names(self, kind: str) -> list[str]:
        """Return the physical names of the stack's resources of this kind."""
        return [one.physical for one in self.resources if one.kind == kind]

    def client(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._clients:
            self._clients[service] = self.runs.client(service)
        return self._clients[service]

    def ask(self, action: str, **given: object) -> Any:
        """Return the answer to one request that needs the IAM action `action`.

        Args:
            action: ``service:Operation``, of an operation with that name in boto3.
            given: the parameters of the operation.
        """
        service, _, operation = action.partition(":")
        name = "".join(f"_{one.lower()}" if one.isupper() else one for one in operation)
        return ask(action, partial(getattr(self.client(service), name.strip("_")), **given))


def check_stack(deployment: Deployment) -> Answer:
    """Is the last deployment complete?

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
    """
    stack = deployment.runs.stack
    said = f"{stack.name} is {stack.status} in {deployment.region}, account {deployment.account}"
    if stack.status in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"}:
        return Answer.ok(said)
    if stack.status.endswith("IN_PROGRESS"):
        return Answer.warning(said, "wait until the deployment ends, then run this command again")
    if stack.status == "UPDATE_ROLLBACK_COMPLETE":  # the state before the update is complete
        return Answer.warning(
            said, "the last update was rolled back: read the stack's events, then deploy again"
        )
    return Answer.failure(said, "read the stack's events, fix the cause, deploy")


def check_version(deployment: Deployment) -> Answer:
    """Do the functions run the code of this package?"""
    outputs = deployment.runs.outputs
    deploy = f"deploy again: make deploy ENV={deployment.runs.environment}"
    there, here = outputs.get("Version"), __version__
    if there is None:
        return Answer.warning(
            "the stack has no version output: it is older than this command", deploy
        )
    if there != here:
        message = f"version {there} is deployed, this is {here}"
        return Answer.warning(message, deploy)
    if outputs.get("Fingerprint") != source_fingerprint():
        message = f"version {there} is deployed from source files that differ from this package's"
        return Answer.warning(message, f"{deploy}; or check out the deployed version")
    return Answer.ok(f"version {there}, the same source files as here")


def check_concurrency(deployment: Deployment) -> Answer:
    """Can as many workers run at once as one run may have: ``runs.max_workers``?

    An account has 1,000, a new account 10. Lambda keeps at least 100 unreserved:
    https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html
    """
    found = deployment.ask("lambda:GetAccountSettings")["AccountLimit"]
    account, unreserved = found["ConcurrentExecutions"], found["UnreservedConcurrentExecutions"]
    reserved = None  # for the extract function alone
    for name in _functions(deployment, "FunctionsExtract"):
        answer = deployment.ask("lambda:GetFunctionConcurrency", FunctionName=name)
        reserved = answer.get("ReservedConcurrentExecutions")
    wanted = deployment.runs.defaults.tuning.max_workers
    available = unreserved if reserved is None else reserved
    whose = "unreserved" if reserved is None else "reserved for extract"
    said = (
        f"a run may have {wanted:,} workers; {available:,} are {whose}, "
        f"{unreserved:,} of the account's {account:,} are unreserved"
    )
    if wanted > available:
        advice = f"lower runs.max_workers to {unreserved:,}, or {QUOTA}"
        if reserved is not None:
            advice = "raise functions.extract.reserved_concurrency or deploy again"
        return Answer.failure(f"{said}: Lambda will refuse workers", advice)
    if reserved is None and wanted > SHARE * available:
        return Answer.warning(
            f"{said}: runs leave too few to other functions",
            f"set functions.extract.reserved_concurrency below {SHARE:.0%} of it, or {QUOTA}",
        )
    return Answer.ok(said)


def check_bucket(deployment: Deployment, role: str) -> Answer:
    """Is the bucket there, in the stack's region, and in the account that should own it?

    Args:
        role: ingest, destination or work.
    """
    bucket = deployment.runs.outputs[f"{role.title()}Bucket"]
    s3 = deployment.client("s3")
    region = ask("s3:ListBucket", partial(_find_region, s3, bucket, deployment.region))
    if region is None:
        advice = "create it, or deploy with another bucket"
        return Answer.failure(f"{bucket} does not exist", advice)
    if region != deployment.region:
        return Answer.failure(
            f"{bucket} is in {region}, the stack in {deployment.region}",
            f"use a bucket in {deployment.region}, or deploy the stack in {region}",
        )
    owner, why = deployment.account, ""
    advice = "use a bucket of the stack's account"
    if role == "destination":
        owner = deployment.runs.variables.get(Variable.DESTINATION_OWNER) or owner
        advice = "or set destination.owner to the account that owns it"
    if role == "ingest":  # EventBridge: events go to the default bus of the bucket's owner
        why = ": S3 sends its events to its owner's account, and no archive starts a run"
    if not ask("s3:ListBucket", partial(_is_owner, s3, bucket, owner)):
        return Answer.failure(f"{bucket} is not owned by account {owner}{why}", advice)
    return Answer.ok(f"{bucket} is in {region}, owned by account {owner}")


def check_rights(deployment: Deployment) -> Answer:
    """May each role that writes members write to the destination?

    The policies of the roles are simulated. A bucket of another account must allow each of them in
    its own policy, too, which only its owner may read.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html
    """
    orders = deployment.runs.defaults
    target, actions = orders.destination, ["s3:PutObject"]
    if orders.options.objects is not None and orders.options.objects.tags:
        actions.append("s3:PutObjectTagging")
    arn = f"arn:aws:s3:::{target.bucket}/{target.key}*"
    roles: list[str] = [
        deployment.ask("lambda:GetFunctionConfiguration", FunctionName=name)["Role"]
        for name in _functions(deployment, WRITERS)
    ]
    for role in roles:
        given = {"PolicySourceArn": role, "ActionNames": actions, "ResourceArns": [arn]}
        found = deployment.ask("iam:SimulatePrincipalPolicy", **given)["EvaluationResults"]
        if any(one["EvalDecision"] != "allowed" for one in found):
            return Answer.failure(
                f"{role} may not {' and '.join(actions)} on {arn}: each write is refused",
                f"{AGAIN}; else a permissions boundary or a policy of the organization denies it",
            )
    owner = deployment.runs.variables.get(Variable.DESTINATION_OWNER) or deployment.account
    if owner != deployment.account:
        return _check_policy(deployment, owner, roles)
    return Answer.ok(f"the policies of {len(roles)} roles allow {actions}")


def _check_policy(deployment: Deployment, owner: str, roles: list[str]) -> Answer:
    """Say whether the policy of another account's bucket names each role."""
    bucket = deployment.runs.outputs["DestinationBucket"]
    advice = f"its owner allows them: docs/howto/buckets-and-keys.md; the roles: {', '.join(roles)}"
    try:
        policy = deployment.ask("s3:GetBucketPolicy", Bucket=bucket)["Policy"]
    except S3UnzipError:  # MethodNotAllowed: only the owner may
        return Answer.warning(
            f"{bucket} is of account {owner}, and only that account can read its policy; it must "
            f"allow {len(roles)} roles",
            advice,
        )
    principals = json.dumps([one.get("Principal") for one in json.loads(policy)["Statement"]])
    whole = f"arn:aws:iam::{deployment.account}:root", f'"{deployment.account}"', '"*"'
    missing = [role for role in roles if f'"{role}"' not in principals]
    if missing and not any(one in principals for one in whole):
        return Answer.failure(
            f"the policy of {bucket} does not name {', '.join(missing)}: their writes are refused",
            advice,
        )
    return Answer.ok(f"the policy of {bucket} names {len(roles)} roles")


def check_key(deployment: Deployment) -> Answer:
    """Can the KMS key of written objects be used?

    Key states: https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html
    """
    key = deployment.runs.variables.get(Variable.DESTINATION_KMS_KEY)
    if not key:
        return Answer.ok("kms_key is not set: each bucket's default encryption applies")
    client = deployment.client("kms")

    def describe() -> Any:
        try:
            return client.describe_key(KeyId=key)["KeyMetadata"]
        except client.exceptions.NotFoundException:
            return None

    found = ask("kms:DescribeKey", describe)
    if found is None:
        return Answer.failure(f"{key} does not exist", "set kms_key to a key that does")
    state = found.get("KeyState", "Unknown")
    usage = found.get("KeyUsage", "ENCRYPT_DECRYPT")
    if state != "Enabled":
        advice = "enable the key, or cancel its deletion: every PUT and GET fails without it"
        return Answer.failure(f"{key} is {state}", advice)
    if usage != "ENCRYPT_DECRYPT":
        advice = "set kms_key to a symmetric key for encryption"
        return Answer.failure(f"{key} is a key for {usage}", advice)
    return Answer.ok(f"{key} is enabled; the canary tries the functions' rights to it")


def check_secret(deployment: Deployment) -> Answer:
    """Is there a password in the secret, if the environment has one?"""
    try:
        password = read_password(deployment.runs, deployment.client("secretsmanager"))
    except (NotFoundError, UsageError) as error:
        advice = "put the password into the secret, or correct password_secret and deploy again"
        return Answer.failure(str(error), advice)
    if password is None:
        return Answer.ok(
            "password_secret is not set: encrypted members fail, others do not need it"
        )
    return Answer.ok("the secret holds a password")


def read_password(runs: DeployedRuns, secrets: Any) -> bytes | None:
    """Return the environment's password, None if it has none; `secrets` is a client."""
    secret = runs.variables.get(Variable.PASSWORD_SECRET)
    return read_secret(SCHEME + secret, secrets) if secret else None


def check_events(deployment: Deployment) -> Answer:
    """Does the ingest bucket send its events to EventBridge?

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-event-notifications-eventbridge.html
    """
    bucket = deployment.runs.outputs["IngestBucket"]
    read = partial(
        deployment.client("s3").get_bucket_notification_configuration,
        Bucket=bucket,
    )
    if "EventBridgeConfiguration" not in ask("s3:GetBucketNotification", read):  # empty if enabled
        return Answer.failure(
            f"{bucket} does not send events to EventBridge: no archive will start a run",
            "switch it on: the bucket's properties, Event notifications, Amazon EventBridge",
        )
    return Answer.ok(f"{bucket} sends its events to EventBridge")


def check_rules(deployment: Deployment) -> Answer:
    """Are the EventBridge rules of the stack enabled?"""
    states = {
        name: deployment.ask("events:DescribeRule", Name=name).get("State")
        for name in deployment.names(RULE)
    }
    if not states:
        return Answer.failure("the stack has no EventBridge rule", AGAIN)
    off = [name for name, state in states.items() if state != "ENABLED"]
    if off:
        return Answer.failure(
            f"{', '.join(off)}: not enabled, so its events go nowhere",
            f"aws events enable-rule --name {off[0]}",
        )
    return Answer.ok(f"{len(states)} EventBridge rules are enabled")


def check_trigger(deployment: Deployment) -> Answer:
    """Does the queue invoke the intake function?"""
    function = deployment.runs.outputs["IntakeFunction"]
    answer = deployment.ask("lambda:ListEventSourceMappings", FunctionName=function)
    states = [one.get("State", "unknown") for one in answer["EventSourceMappings"]]
    if not states:
        return Answer.failure(f"no queue invokes {function}", AGAIN)
    if states != ["Enabled"] * len(states):
        return Answer.failure(
            f"the queue's trigger of {function} is {', '.join(states)}",
            "enable it: the function's configuration, Triggers",
        )
    return Answer.ok(f"the queue invokes {function}")


def check_dead_letters(deployment: Deployment) -> Answer:
    """Are all dead-letter queues of the stack (every queue except the intake) empty?"""
    intake = deployment.runs.outputs["QueueUrl"]
    queues = [url for url in deployment.names(QUEUE) if url != intake]
    if not queues:
        advice = f"{AGAIN}: a failed event would be lost"
        return Answer.failure("the stack has no dead-letter queue", advice)
    read = partial(read_depth, deployment.client("sqs"))
    depths = {url: sum(ask("sqs:GetQueueAttributes", partial(read, url))) for url in queues}
    names = [url.rsplit("/", 1)[-1] for url in queues if depths[url]]
    if names:
        return Answer.warning(
            f"{sum(depths.values()):,} messages are in {', '.join(names)}",
            "read the messages and the functions' logs, fix the cause, then move the messages "
            "back: docs/howto/dashboard.md, DeadLetters",
        )
    return Answer.ok(f"none in {', '.join(url.rsplit('/', 1)[-1] for url in queues)}")


def check_alarms(deployment: Deployment) -> Answer:
    """Has every alarm of the stack an action, and is none in ALARM?"""
    alarms = _read_alarms(deployment)
    if not alarms:
        return Answer.warning("the stack has no alarms", AGAIN)
    silent = [
        one["AlarmName"]
        for one in alarms
        if not one.get("AlarmActions") or not one.get("ActionsEnabled", True)
    ]
    if silent:
        whose = "no alarm tells" if len(silent) == len(alarms) else f"{', '.join(silent)}: tells no"
        message = f"{whose} anybody: {len(silent)} of {len(alarms)} have no action"
        return Answer.warning(message, SET_EMAIL)
    on = [one["AlarmName"] for one in alarms if one.get("StateValue") == "ALARM"]
    if on:
        return Answer.warning(
            f"in ALARM: {', '.join(on)}", "docs/howto/dashboard.md says what to do for each"
        )
    return Answer.ok(f"{len(alarms)} alarms, each with an action, none in ALARM")


def check_subscriptions(deployment: Deployment) -> Answer:
    """Has somebody confirmed a subscription to each topic that the alarms publish to?

    https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.confirm.html: until then nothing
    is delivered, and after two days the subscription is gone.
    """
    actions = [arn for one in _read_alarms(deployment) for arn in one.get("AlarmActions", ())]
    topics = sorted({arn for arn in actions if ":sns:" in arn})
    if not topics:
        return Answer.warning("the alarms publish to no topic", SET_EMAIL)
    for topic in topics:
        found = deployment.ask("sns:ListSubscriptionsByTopic", TopicArn=topic)["Subscriptions"]
        if not any(one["SubscriptionArn"].startswith("arn:") for one in found):
            waiting = "has a subscription that is not confirmed" if found else "has no subscription"
            return Answer.warning(
                f"{topic} {waiting}: nobody is notified",
                "follow the link in the message of AWS Notifications, or subscribe again",
            )
    return Answer.ok(f"confirmed for {', '.join(topics)}")


CHECKS: Mapping[str, Callable[[Deployment], Answer]] = {
    "stack": check_stack,
    "version": check_version,
    "concurrency": check_concurrency,
    "ingest bucket": partial(check_bucket, role="ingest"),
    "destination bucket": partial(check_bucket, role="destination"),
    "work bucket": partial(check_bucket, role="work"),
    "rights": check_rights,
    "kms key": check_key,
    "password secret": check_secret,
    "events": check_events,
    "rules": check_rules,
    "trigger": check_trigger,
    "dead letters": check_dead_letters,
    "alarms": check_alarms,
    "subscriptions": check_subscriptions,
}


def run_check(name: str, deployment: Deployment) -> CheckResult:
    """Return the result of one check; a check that cannot be made gives a warning."""
    try:
        answer = CHECKS[name](deployment)
    except S3UnzipError as error:
        answer = not_checked(error)
    return CheckResult(name, *answer)


def _functions(deployment: Deployment, logical: str | tuple[str, ...]) -> list[str]:
    """Return the names of the functions whose logical names begin so."""
    return [
        one.physical
        for one in deployment.resources
        if one.kind == FUNCTION and one.logical.startswith(logical)
    ]


def _find_region(s3: Any, bucket: str, ours: str) -> str | None:
    """Return the bucket's region, None where there is no such bucket.

    HeadBucket returns the region in a header, with any status except 404; a 301 has no body.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    try:
        answer = s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
        region: str | None = headers.get("x-amz-bucket-region")
        if _code(error) == "404":
            return None
        if region is None or region == ours:
            raise
        return region
    return answer.get("BucketRegion") or ours  # some emulators do not return it


def _is_owner(s3: Any, bucket: str, owner: str) -> bool:
    """Say whether the account `owner` owns a bucket that may be listed."""
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
    except ClientError as error:
        if _code(error) == "403":
            return False
        raise
    return True


def _read_alarms(deployment: Deployment) -> list[Any]:
    names = deployment.names(ALARM)[:MAX_NAMES]
    if not names:
        return []
    given = {"AlarmNames": names, "MaxRecords": MAX_NAMES}
    found: list[Any] = deployment.ask("cloudwatch:DescribeAlarms", **given)["MetricAlarms"]
    return found
