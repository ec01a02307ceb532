"""``s3unzip doctor``: checks of a deployed environment, each a function that gives one answer.

A new check is a function and a line in `ACCOUNT_CHECKS`; the canary is the last one. A check that
cannot be made is not a failed check: a missing right of the person who runs the command, and a
service that an emulator does not have, are warnings that name the action.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError
from msgspec import Struct

from s3unzip.aws.environment import RunDefaults
from s3unzip.aws.secrets import SCHEME, read_secret
from s3unzip.errors import AccessDeniedError, NotFoundError, S3UnzipError, UsageError
from s3unzip.fingerprint import source_fingerprint
from s3unzip.model import Route
from s3unzip.object_properties import ObjectProperties
from s3unzip.operate.control_plane import UnsupportedActionError, asking
from s3unzip.operate.runs import DeployedRuns
from s3unzip.operate.submit import read_depth
from s3unzip.settings import Variable
from s3unzip.version import __version__

ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
QUEUE = "AWS::SQS::Queue"
RULE = "AWS::Events::Rule"
# Functions by the beginning of their logical names: those that write members.
WRITERS = ("FunctionsIntake", "FunctionsPlan", "FunctionsExtract", "FunctionsSettle")
BUCKETS = ("Ingest", "Destination", "Work")  # as the outputs of the stack name them
MAX_NAMES = 100  # limit of one DescribeAlarms
SHARE = 0.9  # of the available concurrency; more leaves too little for the other functions
QUOTA = "ask for more: Service Quotas, AWS Lambda, Concurrent executions (L-B99A9384)"
AGAIN = "deploy the stack again"
NOT_CHECKED = {  # what to do, by the error
    UnsupportedActionError: "nothing to do on an emulator; on AWS report it",
    AccessDeniedError: "allow the action to whoever runs this command, or ask somebody who may",
}
READ_DEAD = (
    "read the messages and the functions' logs, fix the cause, then move the messages back: "
    "docs/howto/dashboard.md, DeadLetters"
)
SET_EMAIL = "set alarms.email in the environment's file and deploy, or add your own action"


class CheckStatus(StrEnum):
    """How serious a result is."""

    OK = "ok"
    WARNING = "warning"  # it works, or it could not be checked
    FAILURE = "failure"  # archives are not extracted, or will not be


OK, WARNING, FAILURE = CheckStatus


class Answer(NamedTuple):
    """The answer of one check."""

    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class CheckResult(Struct, frozen=True):
    """The answer of one check, with the name of the check."""

    name: str  # of the check: "concurrency"
    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class Diagnosis(Struct, frozen=True):
    """All results of one environment, as ``s3unzip doctor --json`` prints them."""

    environment: str
    checks: tuple[CheckResult, ...]


def run_check(name: str, check: Callable[[], Answer]) -> CheckResult:
    """Return the result of a check; one that cannot be made gives a warning."""
    try:
        return CheckResult(name, *check())
    except S3UnzipError as error:
        advice = NOT_CHECKED.get(type(error), "run the command again")
        return CheckResult(name, WARNING, f"not checked: {error}", advice)


def check_stack(runs: DeployedRuns) -> Answer:
    """Is the last deployment complete?

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
    """
    status: str = runs.stack["StackStatus"]
    state = f"{runs.stack['StackName']} is {status} in {runs.region}, account {runs.account}"
    if status in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"}:
        return Answer(OK, state)
    if status.endswith("IN_PROGRESS"):
        return Answer(WARNING, state, "wait until the deployment ends, then run this command again")
    if status == "UPDATE_ROLLBACK_COMPLETE":  # the state before the update is complete
        advice = "the last update was rolled back: read the stack's events, then deploy again"
        return Answer(WARNING, state, advice)
    return Answer(FAILURE, state, "read the stack's events, fix the cause, deploy")


def check_version(runs: DeployedRuns) -> Answer:
    """Do the functions run the code of this package?"""
    outputs = runs.outputs
    deploy = f"deploy again: make deploy ENV={runs.environment}"
    deployed = outputs.get("Version")
    if deployed is None:
        return Answer(
            WARNING, "the stack has no version output: it is older than this command", deploy
        )
    if deployed != __version__:
        message = f"version {deployed} is deployed, this is {__version__}"
        return Answer(WARNING, message, deploy)
    if outputs.get("Fingerprint") != source_fingerprint():
        message = (
            f"version {deployed} is deployed from source files that differ from this package's"
        )
        return Answer(WARNING, message, f"{deploy}; or check out the deployed version")
    return Answer(OK, f"version {deployed}, the same source files as here")


def check_concurrency(runs: DeployedRuns) -> Answer:
    """Can as many workers run at once as one run may have: ``runs.max_workers``?

    An account has 1,000, a new account 10. Lambda keeps at least 100 unreserved:
    https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html
    """
    limits = runs.ask("lambda:GetAccountSettings")["AccountLimit"]
    account = limits["ConcurrentExecutions"]
    unreserved = limits["UnreservedConcurrentExecutions"]
    reserved = None  # for the extract function alone
    for name in runs.names(FUNCTION, "FunctionsExtract"):
        answer = runs.ask("lambda:GetFunctionConcurrency", FunctionName=name)
        reserved = answer.get("ReservedConcurrentExecutions")
    max_workers = runs.defaults.tuning.max_workers
    available = unreserved
    pool = "unreserved"
    if reserved is not None:
        available = reserved
        pool = "reserved for extract"
    state = (
        f"a run may have {max_workers:,} workers; {available:,} are {pool}, "
        f"{unreserved:,} of the account's {account:,} are unreserved"
    )
    if max_workers > available:
        advice = f"lower runs.max_workers to {unreserved:,}, or {QUOTA}"
        if reserved is not None:
            advice = "raise functions.extract.reserved_concurrency or deploy again"
        return Answer(FAILURE, f"{state}: Lambda will refuse workers", advice)
    if reserved is None and max_workers > SHARE * available:
        advice = f"set functions.extract.reserved_concurrency below {SHARE:.0%} of it, or {QUOTA}"
        return Answer(WARNING, f"{state}: runs leave too few to other functions", advice)
    return Answer(OK, state)


def check_bucket(runs: DeployedRuns, role: str) -> Answer:
    """Is the bucket there, in the stack's region, and in the account that should own it?

    Args:
        runs: those of the environment.
        role: ingest, destination or work.
    """
    bucket = runs.outputs[f"{role.title()}Bucket"]
    owner = None
    consequence = ""
    advice = "use a bucket of the stack's account"
    if role == "destination":
        owner = runs.variables.get(Variable.DESTINATION_OWNER)
        advice = "or set destination.owner to the account that owns it"
    if role == "ingest":  # EventBridge: events go to the default bus of the bucket's owner
        consequence = ": S3 sends its events to its owner's account, and no archive starts a run"
    status = WARNING if role == "destination" else FAILURE
    return _check_place(
        runs, bucket, owner, consequence=consequence, advice=advice, elsewhere=status
    )


def _check_place(
    runs: DeployedRuns,
    bucket: str,
    owner: str | None,
    *,
    consequence: str = "",
    advice: str,
    elsewhere: CheckStatus = WARNING,
) -> Answer:
    """Say whether a bucket is there, in the stack's region, and owned as it should be.

    Args:
        runs: those of the environment.
        bucket: its name.
        owner: the account that should own it; None: that of the stack.
        consequence: of another owner.
        advice: what to do about another owner.
        elsewhere: the status of a bucket in another region; members may be written there.
    """
    owner = owner or runs.account
    region = _find_region(runs, bucket)
    if region is None:
        return Answer(
            FAILURE, f"{bucket} does not exist", "create it, or deploy with another bucket"
        )
    place = Answer(OK, f"{bucket} is in {region}, owned by account {owner}")
    if region != runs.region:
        place = Answer(
            elsewhere,
            f"{bucket} is in {region}, the stack in {runs.region}",
            f"use a bucket in {runs.region}, or deploy the stack in {region}",
        )
    if place.status is FAILURE:
        return place
    try:
        with asking("s3:ListBucket"):
            runs.client("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
    except AccessDeniedError:
        return Answer(FAILURE, f"{bucket} is not owned by account {owner}{consequence}", advice)
    return place


def check_rights(runs: DeployedRuns) -> Answer:
    """May each role that writes members write to the destination?"""
    return _check_writing(runs, runs.defaults.own, runs.variables.get(Variable.DESTINATION_OWNER))


def _check_writing(runs: DeployedRuns, defaults: RunDefaults, owner: str | None) -> Answer:
    """Say whether each role may write members to a destination.

    The policies of the roles are simulated. A bucket of another account must allow each of them in
    its own policy, too, which only its owner may read.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html
    """
    destination = defaults.destination
    actions = ["s3:PutObject"]
    properties = defaults.options.objects or ObjectProperties()
    if properties.tags:
        actions.append("s3:PutObjectTagging")
    if properties.acl is not None:
        actions.append("s3:PutObjectAcl")
    arn = f"arn:{runs.partition}:s3:::{destination.bucket}/{destination.key}*"
    roles: list[str] = [
        runs.ask("lambda:GetFunctionConfiguration", FunctionName=name)["Role"]
        for name in runs.names(FUNCTION, WRITERS)
    ]
    for role in roles:
        results = runs.ask(
            "iam:SimulatePrincipalPolicy",
            PolicySourceArn=role,
            ActionNames=actions,
            ResourceArns=[arn],
        )["EvaluationResults"]
        if any(result["EvalDecision"] != "allowed" for result in results):
            return Answer(
                FAILURE,
                f"{role} may not {' and '.join(actions)} on {arn}: each write is refused",
                f"{AGAIN}; else a permissions boundary or a policy of the organization denies it",
            )
    if owner not in {None, "", runs.account}:
        return _check_policy(runs, destination.bucket, str(owner), roles)
    return Answer(OK, f"the policies of {len(roles)} roles allow {' and '.join(actions)}")


def _check_policy(runs: DeployedRuns, bucket: str, owner: str, roles: list[str]) -> Answer:
    """Say whether the policy of another account's bucket names each role."""
    advice = f"its owner allows them: docs/howto/buckets-and-keys.md; the roles: {', '.join(roles)}"
    try:
        policy = runs.ask("s3:GetBucketPolicy", Bucket=bucket)["Policy"]
    except S3UnzipError:  # MethodNotAllowed: only the owner may
        message = (
            f"{bucket} is of account {owner}, and only that account can read its policy; "
            f"it must allow {len(roles)} roles"
        )
        return Answer(WARNING, message, advice)
    statements = json.loads(policy)["Statement"]
    principals = json.dumps([statement.get("Principal") for statement in statements])
    whole_account = (
        f"arn:{runs.partition}:iam::{runs.account}:root",
        f'"{runs.account}"',
        '"*"',
    )
    missing = [role for role in roles if f'"{role}"' not in principals]
    if missing and not any(principal in principals for principal in whole_account):
        return Answer(
            FAILURE,
            f"the policy of {bucket} does not name {', '.join(missing)}: their writes are refused",
            advice,
        )
    return Answer(OK, f"the policy of {bucket} names {len(roles)} roles")


def check_key(runs: DeployedRuns) -> Answer:
    """Can the KMS keys be used, and is each bucket encrypted with the key that its setting names?

    Key states: https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html
    """
    keys = {role: runs.outputs.get(f"{role}Key") for role in BUCKETS}
    written = runs.variables.get(Variable.DESTINATION_KMS_KEY)
    for key in sorted({key for key in (*keys.values(), written) if key}):
        unusable = _explain_key(runs, key)
        if unusable is not None:
            return unusable
    for role in BUCKETS:
        setting = f"{role.lower()}.kms_key"
        bucket = runs.outputs[f"{role}Bucket"]
        answer = _compare_encryption(runs, bucket, setting, keys[role] or written)
        if answer is not None:
            return answer
    if not any((*keys.values(), written)):
        return Answer(OK, "kms_key is not set, and no bucket is encrypted with a key of yours")
    return Answer(OK, "the keys are enabled; the canary tries the functions' rights to them")


def _explain_key(runs: DeployedRuns, key: str) -> Answer | None:
    """Return why a key cannot be used, None if it can."""
    try:
        metadata = runs.ask("kms:DescribeKey", KeyId=key)["KeyMetadata"]
    except NotFoundError:
        return Answer(FAILURE, f"{key} does not exist", "set kms_key to a key that does")
    state = metadata.get("KeyState", "Unknown")
    if state != "Enabled":
        advice = "enable the key, or cancel its deletion: every PUT and GET fails without it"
        return Answer(FAILURE, f"{key} is {state}", advice)
    usage = metadata.get("KeyUsage", "ENCRYPT_DECRYPT")
    if usage != "ENCRYPT_DECRYPT":
        advice = "set kms_key to a symmetric key for encryption"
        return Answer(FAILURE, f"{key} is a key for {usage}", advice)
    return None


def _compare_encryption(
    runs: DeployedRuns, bucket: str, setting: str, key: str | None
) -> Answer | None:
    """Return what is wrong if a bucket is encrypted with a key on which the roles have no rights.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketEncryption.html
    """
    try:
        with asking("s3:GetEncryptionConfiguration"):
            encryption = runs.client("s3").get_bucket_encryption(Bucket=bucket)
    except S3UnzipError:  # SSE-S3, in the words of an older S3; or a bucket of another account
        return None
    (rule,) = encryption["ServerSideEncryptionConfiguration"]["Rules"]
    default = rule["ApplyServerSideEncryptionByDefault"]
    actual = default.get("KMSMasterKeyID")
    if "kms" not in default["SSEAlgorithm"] or actual is None:  # none, or the key of AWS itself
        return None
    if key is not None and actual.rpartition("/")[2] == key.rpartition("/")[2]:
        return None
    message = f"{bucket} is encrypted with {actual}, on which the functions have no rights"
    return Answer(FAILURE, message, f"set {setting} to this key, and deploy again")


def check_secret(runs: DeployedRuns) -> Answer:
    """Is there a password in the secret, if the environment has one?"""
    try:
        password = read_password(runs)
    except (NotFoundError, UsageError) as error:
        advice = "put the password into the secret, or correct password_secret and deploy again"
        return Answer(FAILURE, str(error), advice)
    if password is None:
        message = "password_secret is not set: encrypted members fail, others do not need it"
        return Answer(OK, message)
    return Answer(OK, "the secret holds a password")


def read_password(runs: DeployedRuns) -> bytes | None:
    """Return the environment's password, None if it has none."""
    secret = runs.variables.get(Variable.PASSWORD_SECRET)
    return read_secret(SCHEME + secret, runs.client("secretsmanager")) if secret else None


def check_events(runs: DeployedRuns) -> Answer:
    """Does the ingest bucket send its events to EventBridge?

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-event-notifications-eventbridge.html
    """
    bucket = runs.outputs["IngestBucket"]
    with asking("s3:GetBucketNotification"):
        notifications = runs.client("s3").get_bucket_notification_configuration(Bucket=bucket)
    if "EventBridgeConfiguration" not in notifications:  # empty if enabled
        message = f"{bucket} does not send events to EventBridge: no archive will start a run"
        advice = "switch it on: the bucket's properties, Event notifications, Amazon EventBridge"
        return Answer(FAILURE, message, advice)
    return Answer(OK, f"{bucket} sends its events to EventBridge")


def check_rules(runs: DeployedRuns) -> Answer:
    """Are the EventBridge rules of the stack enabled?"""
    rules = [runs.ask("events:DescribeRule", Name=name) for name in runs.names(RULE)]
    if not rules:
        return Answer(FAILURE, "the stack has no EventBridge rule", AGAIN)
    disabled = [rule["Name"] for rule in rules if rule.get("State") != "ENABLED"]
    if disabled:
        message = f"{', '.join(disabled)}: not enabled, so its events go nowhere"
        return Answer(FAILURE, message, f"aws events enable-rule --name {disabled[0]}")
    return Answer(OK, f"{len(rules)} EventBridge rules are enabled")


def check_scan(runs: DeployedRuns) -> Answer:
    """Does GuardDuty scan and tag what arrives, where archives wait for their scan?

    https://docs.aws.amazon.com/guardduty/latest/APIReference/API_GetMalwareProtectionPlan.html
    """
    bucket = runs.outputs["IngestBucket"]
    advice = "docs/howto/malware.md says how to create a plan"
    if not runs.defaults.scan:
        return Answer(OK, "ingest.scan is not set: archives are opened as they arrive")
    listed = runs.ask("guardduty:ListMalwareProtectionPlans")["MalwareProtectionPlans"]
    for listed_plan in listed:
        name = listed_plan["MalwareProtectionPlanId"]
        plan = runs.ask("guardduty:GetMalwareProtectionPlan", MalwareProtectionPlanId=name)
        if plan["ProtectedResource"]["S3Bucket"]["BucketName"] != bucket:
            continue
        if plan["Status"] != "ACTIVE":
            return Answer(WARNING, f"the plan {name} of GuardDuty is {plan['Status']}", advice)
        if plan["Actions"]["Tagging"]["Status"] != "ENABLED":
            message = f"the plan {name} of GuardDuty sets no tags, so submit opens nothing"
            return Answer(WARNING, message, "switch on the tags of the plan")
        return Answer(OK, f"GuardDuty scans {bucket} and tags what it has scanned")
    message = (
        f"no Malware Protection plan of GuardDuty protects {bucket}: no archive will be opened"
    )
    return Answer(FAILURE, message, advice)


def check_trigger(runs: DeployedRuns) -> Answer:
    """Does the queue invoke the intake function?"""
    function = runs.outputs["IntakeFunction"]
    answer = runs.ask("lambda:ListEventSourceMappings", FunctionName=function)
    states = [source.get("State", "unknown") for source in answer["EventSourceMappings"]]
    if not states:
        return Answer(FAILURE, f"no queue invokes {function}", AGAIN)
    if states != ["Enabled"] * len(states):
        message = f"the queue's trigger of {function} is {', '.join(states)}"
        return Answer(FAILURE, message, "enable it: the function's configuration, Triggers")
    return Answer(OK, f"the queue invokes {function}")


def check_dead_letters(runs: DeployedRuns) -> Answer:
    """Are all dead-letter queues of the stack (every queue except the intake) empty?"""
    intake = runs.outputs["QueueUrl"]
    queues = [url for url in runs.names(QUEUE) if url != intake]
    if not queues:
        advice = f"{AGAIN}: a failed event would be lost"
        return Answer(FAILURE, "the stack has no dead-letter queue", advice)
    depths = {url: sum(read_depth(runs, url)) for url in queues}
    names = [url.rsplit("/", 1)[-1] for url in queues if depths[url]]
    if names:
        return Answer(
            WARNING, f"{sum(depths.values()):,} messages are in {', '.join(names)}", READ_DEAD
        )
    return Answer(OK, f"none in {', '.join(url.rsplit('/', 1)[-1] for url in queues)}")


def check_alarms(runs: DeployedRuns) -> Answer:
    """Has every alarm of the stack an action, and is none in ALARM?"""
    alarms = _read_alarms(runs)
    if not alarms:
        return Answer(WARNING, "the stack has no alarms", AGAIN)
    silent = [alarm["AlarmName"] for alarm in alarms if not _has_action(alarm)]
    if silent:
        verb = "has" if len(silent) == 1 else "have"
        count = f"{len(silent)} of {len(alarms)} alarms {verb} no action"
        return Answer(WARNING, f"{count}, so nobody is notified: {', '.join(silent)}", SET_EMAIL)
    ringing = [alarm["AlarmName"] for alarm in alarms if alarm.get("StateValue") == "ALARM"]
    if ringing:
        advice = "docs/howto/dashboard.md says what to do for each"
        return Answer(WARNING, f"in ALARM: {', '.join(ringing)}", advice)
    return Answer(OK, f"{len(alarms)} alarms, each with an action, none in ALARM")


def _has_action(alarm: Mapping[str, Any]) -> bool:
    return bool(alarm.get("AlarmActions")) and bool(alarm.get("ActionsEnabled", True))


def check_notifications(runs: DeployedRuns) -> Answer:
    """Could CloudWatch deliver the last notification of each alarm?

    The history of an alarm says which actions failed:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarmHistory.html
    """
    for alarm in _read_alarms(runs):
        history = runs.ask(
            "cloudwatch:DescribeAlarmHistory",
            AlarmName=alarm["AlarmName"],
            HistoryItemType="Action",
            MaxRecords=1,
        )["AlarmHistoryItems"]
        for action in history:
            if action["HistorySummary"].startswith("Failed"):
                message = f"{alarm['AlarmName']}: {action['HistorySummary']}"
                advice = "let cloudwatch.amazonaws.com publish to the topic by its policy and key"
                return Answer(FAILURE, message, f"{advice}; {AGAIN}")
    return Answer(OK, "no notification of an alarm failed")


def check_subscriptions(runs: DeployedRuns) -> Answer:
    """Has somebody confirmed a subscription to each topic that the alarms publish to?

    https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.confirm.html: until then nothing
    is delivered, and after two days the subscription is gone.
    """
    actions = [arn for alarm in _read_alarms(runs) for arn in alarm.get("AlarmActions", ())]
    topics = sorted({arn for arn in actions if ":sns:" in arn})
    if not topics:
        return Answer(WARNING, "the alarms publish to no topic", SET_EMAIL)
    for topic in topics:
        answer = runs.ask("sns:ListSubscriptionsByTopic", TopicArn=topic)
        arns = [subscription["SubscriptionArn"] for subscription in answer["Subscriptions"]]
        if not any(arn.startswith("arn:") for arn in arns):
            waiting = "has a subscription that is not confirmed" if arns else "has no subscription"
            advice = "follow the link in the message of AWS Notifications, or subscribe again"
            return Answer(WARNING, f"{topic} {waiting}: nobody is notified", advice)
    return Answer(OK, f"confirmed for {', '.join(topics)}")


ACCOUNT_CHECKS: Mapping[str, Callable[[DeployedRuns], Answer]] = {
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
    "malware scan": check_scan,
    "trigger": check_trigger,
    "dead letters": check_dead_letters,
    "alarms": check_alarms,
    "subscriptions": check_subscriptions,
    "notifications": check_notifications,
}


def diagnose(runs: DeployedRuns) -> Iterator[CheckResult]:
    """Make each check of an environment, and one for each of its routes."""
    for name, check in ACCOUNT_CHECKS.items():
        yield run_check(name, partial(check, runs))
    with contextlib.suppress(S3UnzipError):  # the checks before have said so
        for number, defaults in enumerate(runs.defaults.routes):
            if defaults.route is not None:
                title = f"route {defaults.route.name}"
                yield run_check(title, partial(check_route, runs, number))


def check_route(runs: DeployedRuns, number: int) -> Answer:
    """Can the archives of a route be extracted: bucket, rights, encryption and password?

    Args:
        runs: those of the environment.
        number: the place of the route in the environment's file, from 0.
    """
    defaults = runs.defaults.routes[number]
    bucket = defaults.destination.bucket
    route = defaults.route or Route("")
    owner = route.destination_owner
    advice = f"or set routes.{number}.destination.owner to the account that owns it"
    place = _check_place(runs, bucket, owner, advice=advice)
    if place.status is FAILURE:
        return place
    writing = _check_writing(runs, defaults, owner)
    if writing.status is not OK:
        return writing
    key = runs.outputs.get(f"Route{number}DestinationKey") or route.destination_kms_key
    setting = f"routes.{number}.destination.kms_key"
    encryption = _compare_encryption(runs, bucket, setting, key)
    if encryption is not None:
        return encryption
    secret = defaults.options.password_ref
    if secret is not None:
        try:
            read_secret(secret, runs.client("secretsmanager"))
        except (NotFoundError, UsageError) as error:
            return Answer(FAILURE, str(error), f"correct routes.{number}.password_secret")
    if place.status is WARNING:
        return place
    return Answer(OK, f"{defaults.trigger} -> {defaults.destination}")


def _find_region(runs: DeployedRuns, bucket: str) -> str | None:
    """Return the bucket's region, None where there is no such bucket.

    HeadBucket returns the region in a header, with any status except 404; a 301 has no body.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    with asking("s3:ListBucket"):
        try:
            answer = runs.client("s3").head_bucket(Bucket=bucket)
            region: str | None = answer.get("BucketRegion")
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region")
            if metadata["HTTPStatusCode"] == 404:
                return None
            if region is None or region == runs.region:
                raise
    return region or runs.region  # some emulators do not return it


def _read_alarms(runs: DeployedRuns) -> list[Any]:
    names = runs.names(ALARM)[:MAX_NAMES]
    if not names:
        return []
    answer = runs.ask("cloudwatch:DescribeAlarms", AlarmNames=names, MaxRecords=MAX_NAMES)
    alarms: list[Any] = answer["MetricAlarms"]
    return alarms
