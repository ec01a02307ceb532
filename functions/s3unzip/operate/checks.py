"""The classes of all checks, and the checks of buckets, permissions, keys and passwords.

These checks cover the environment itself and each of its routes. `doctor` has the other checks.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from botocore.exceptions import ClientError
from msgspec import Struct

from s3unzip.aws.environment import RunDefaults, read_secret
from s3unzip.errors import (
    AccessDeniedError,
    ExpiredKeysError,
    NotFoundError,
    S3UnzipError,
    UnsupportedError,
    UsageError,
)
from s3unzip.model import Route
from s3unzip.object_properties import ObjectProperties
from s3unzip.operate.runs import DeployedRuns, translating_errors
from s3unzip.settings import Variable

# Deploying an unchanged template does not recreate a resource that somebody has deleted.
RESTORE = "restore what is missing, or destroy the stack and deploy it again"
NOT_CHECKED: dict[type[S3UnzipError], str] = {  # the advice for each error that prevents a check
    UnsupportedError: "on an emulator, ignore this warning; on AWS, report the error",
    AccessDeniedError: "allow the action for your user or role, or ask somebody who may perform it",
    UsageError: "undo what somebody changed in the console, and deploy the stack again",
}

FUNCTION = "AWS::Lambda::Function"
# The prefixes of the logical IDs of the functions that write members.
WRITERS = ("FunctionsIntake", "FunctionsPlan", "FunctionsExtract", "FunctionsSettle")
BUCKETS = ("Ingest", "Destination", "Work")  # purposes, as in the outputs of the stack
# The aliases of AWS managed keys, for which the roles need no permissions.
AWS_ALIAS_PREFIX = "alias/aws/"
ANY_OWNER = "*"
# The stack has this output if the events about archives come from an SNS topic.
TOPIC_OUTPUT = "IngestTopic"


class CheckStatus(StrEnum):
    """The severity of the result of a check."""

    OK = "ok"
    WARNING = "warning"  # archives are extracted, or the check could not be made
    FAILURE = "failure"  # archives are not extracted, or soon will not be


OK, WARNING, FAILURE = CheckStatus


class Answer(NamedTuple):
    """The answer of one check, from which `run_check` makes a result."""

    status: CheckStatus
    message: str  # what the check found, in one line
    advice: str = ""  # what to do; empty if there is nothing to do


class CheckResult(Struct, frozen=True):
    """The answer of a check, with its name."""

    name: str  # name of the check, such as "concurrency"
    status: CheckStatus
    message: str  # what the check found, in one line
    advice: str = ""  # what to do; empty if there is nothing to do


def run_check(name: str, check: Callable[[], Answer]) -> CheckResult:
    """Return the result of a check.

    If a resource that the check asks for is gone, the result is a failure. If the check cannot be
    made for another reason, the result is a warning.

    Raises:
        ExpiredKeysError: the operator's keys have expired, so no other check can be made either.
    """
    try:
        with translating_errors(name):  # a response may lack a field that the check reads
            answer = check()
    except NotFoundError as error:
        answer = Answer(FAILURE, str(error), RESTORE)
    except ExpiredKeysError:
        raise
    except S3UnzipError as error:
        answer = Answer(
            WARNING,
            f"not checked: {error}",
            NOT_CHECKED.get(type(error), "run the command again"),
        )
    return CheckResult(name, *answer)


def check_bucket(runs: DeployedRuns, purpose: str) -> Answer:
    """Check that the bucket exists in the stack's region, and that the expected account owns it.

    Args:
        runs: the runs of the environment.
        purpose: "ingest", "destination" or "work".
    """
    bucket = runs.outputs[f"{purpose.title()}Bucket"]
    advice = "use a bucket of the stack's account"
    if purpose == "destination":
        return _check_location(
            runs,
            bucket,
            runs.variables.get(Variable.DESTINATION_OWNER),
            advice=f"{advice}, or set destination.owner to the account that owns it",
        )
    if purpose == "ingest" and TOPIC_OUTPUT in runs.outputs:
        # A bucket in any account and region can send its events to a topic.
        return _check_location(runs, bucket, ANY_OWNER, advice=advice)
    consequence = ""
    if purpose == "ingest":  # S3 sends events to the default event bus of the bucket's owner
        consequence = ": events go to the account that owns the bucket, so no archive starts a run"
    return _check_location(
        runs, bucket, None, consequence=consequence, advice=advice, other_region=FAILURE
    )


def _check_location(
    runs: DeployedRuns,
    bucket: str,
    owner: str | None,
    *,
    consequence: str = "",
    advice: str,
    other_region: CheckStatus = WARNING,
) -> Answer:
    """Check that a bucket exists in the stack's region and that the expected account owns it.

    Args:
        runs: the runs of the environment.
        bucket: the name of the bucket.
        owner: the account that should own the bucket. None stands for the account of the stack, and
            `ANY_OWNER` for any account.
        consequence: text for the end of the message; it says what a different owner causes.
        advice: what to do about a different owner.
        other_region: the status if the bucket is in another region; by default a warning, because
            members can be written there.
    """
    owner = owner or runs.account
    region = _find_region(runs, bucket)
    if region is None:
        return Answer(
            FAILURE, f"{bucket} does not exist", "create it, or deploy with another bucket"
        )
    answer = Answer(OK, f"{bucket} is in {region}")
    if region != runs.region:
        answer = Answer(
            other_region,
            f"{bucket} is in {region}, but the stack is in {runs.region}",
            f"use a bucket in {runs.region}, or deploy the stack in {region}",
        )
    # `other_region` may be FAILURE; then the owner does not matter.
    if answer.status is FAILURE or owner == ANY_OWNER:
        return answer
    try:
        runs.ask("s3:HeadBucket", Bucket=bucket, ExpectedBucketOwner=owner)
    except AccessDeniedError:
        return Answer(FAILURE, f"{bucket} is not owned by account {owner}{consequence}", advice)
    if answer.status is OK:
        return answer._replace(message=f"{answer.message}, owned by account {owner}")
    return answer


def check_rights(runs: DeployedRuns, defaults: RunDefaults | None = None) -> Answer:
    """Check that each role that writes members may write to the destination.

    The policies of the roles are simulated. If another account owns the bucket, the bucket policy
    must also allow each role. If only the owner may read that policy, the answer is a warning.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html

    Args:
        runs: the runs of the environment.
        defaults: the defaults of a route; None for the defaults of the environment itself.
    """
    defaults = defaults or runs.config.environment_defaults
    # A route has its own `destination_owner`. The default is the environment's account.
    settings = defaults.route or runs.config.access
    owner = settings.destination_owner or runs.account
    destination = defaults.destination
    actions = ["s3:PutObject"]
    properties = defaults.options.objects or ObjectProperties()
    if properties.tags:
        actions.append("s3:PutObjectTagging")
    if properties.acl is not None:
        actions.append("s3:PutObjectAcl")
    arn = f"arn:{runs.partition}:s3:::{destination.bucket}/{destination.key}*"
    roles: list[str] = [
        runs.ask("lambda:GetFunctionConfiguration", "Role", FunctionName=name)
        for name in runs.resource_names(FUNCTION, *WRITERS)
    ]
    for role in roles:
        refusal = _simulate(runs, role, actions, arn)
        if refusal is not None:
            return refusal
    if owner != runs.account:
        return _check_bucket_policy(runs, destination.bucket, owner, roles)
    return Answer(OK, f"the policies of {len(roles)} roles allow {' and '.join(actions)}")


def _simulate(runs: DeployedRuns, role: str, actions: list[str], arn: str) -> Answer | None:
    """Return an answer if the role may not perform all of the actions; otherwise, return None."""
    results = runs.ask(
        "iam:SimulatePrincipalPolicy",
        "EvaluationResults",
        PolicySourceArn=role,
        ActionNames=actions,
        ResourceArns=[arn],
        # Permissions boundaries often allow only some regions.
        ContextEntries=[
            {
                "ContextKeyName": "aws:RequestedRegion",
                "ContextKeyType": "string",
                "ContextKeyValues": [runs.region],
            }
        ],
    )
    if all(result["EvalDecision"] == "allowed" for result in results):
        return None
    # Condition keys, such as aws:SourceVpce, that have a value only in a real request.
    unknown_keys = {
        key
        for result in results
        for evaluation in (result, *result.get("ResourceSpecificResults", ()))
        for key in evaluation.get("MissingContextValues", ())
        # A role's conditions on these two keys do not restrict S3 actions (infra/rights.py).
        if key.lower() not in {"events:source", "lambda:sourcefunctionarn"}
    }
    if unknown_keys:
        return Answer(
            WARNING,
            f"{role}: a simulation cannot check conditions on {', '.join(sorted(unknown_keys))}",
            "check whether the canary is extracted",
        )
    return Answer(
        FAILURE,
        f"{role} may not {' and '.join(actions)} on {arn}: each write is refused",
        "if neither a permissions boundary nor a policy of the organization denies the action, "
        f"somebody has changed the policy of the role: {RESTORE}",
    )


def _check_bucket_policy(runs: DeployedRuns, bucket: str, owner: str, roles: list[str]) -> Answer:
    """Check that the policy of another account's bucket names the roles or their whole account."""
    advice = f"the bucket's owner must allow {', '.join(roles)}: docs/howto/buckets-and-keys.md"
    try:
        policy = runs.ask("s3:GetBucketPolicy", Bucket=bucket)["Policy"]
    except S3UnzipError:  # MethodNotAllowed: only the owner may read the policy
        return Answer(
            WARNING,
            f"{bucket} belongs to account {owner}, and only that account can read the policy; "
            f"the policy must allow {len(roles)} roles",
            advice,
        )
    # Principals are strings, lists or objects, so their JSON text is searched for the roles.
    principals = json.dumps(
        [statement.get("Principal") for statement in json.loads(policy)["Statement"]]
    )
    # Each of these principals covers all roles of the stack's account.
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
    """Check that the KMS keys in the settings are enabled, and that they encrypt the buckets.

    Key states: https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html
    """
    keys = {purpose: runs.outputs.get(f"{purpose}Key") for purpose in BUCKETS}
    used_keys = set(filter(None, keys.values()))
    for key in sorted(used_keys):
        unusable = _explain_unusable_key(runs, key)
        if unusable is not None:
            return unusable
    for purpose in BUCKETS:
        answer = _compare_encryption(
            runs, runs.outputs[f"{purpose}Bucket"], f"{purpose.lower()}.kms_key", keys[purpose]
        )
        if answer is not None:
            return answer
    if not used_keys:
        return Answer(OK, "kms_key is not set, and no bucket is encrypted with a key of your own")
    return Answer(OK, "the keys are enabled; the canary tests whether the functions may use them")


def _explain_unusable_key(runs: DeployedRuns, key: str) -> Answer | None:
    """Return the reason why a key cannot be used, or None if it can be used."""
    try:
        metadata = runs.ask("kms:DescribeKey", "KeyMetadata", region_of=key, KeyId=key)
    except NotFoundError:
        return Answer(FAILURE, f"{key} does not exist", "set kms_key to a key that exists")
    state = metadata.get("KeyState", "Unknown")
    if state != "Enabled":
        return Answer(
            FAILURE,
            f"{key} is {state}",
            "enable the key, or cancel its deletion; without it, every PUT and GET fails",
        )
    usage = metadata.get("KeyUsage", "ENCRYPT_DECRYPT")
    if usage != "ENCRYPT_DECRYPT":
        return Answer(
            FAILURE, f"{key} is a key for {usage}", "set kms_key to a symmetric key for encryption"
        )
    return None


def _compare_encryption(
    runs: DeployedRuns, bucket: str, setting: str, key: str | None
) -> Answer | None:
    """Return a failure if a bucket is encrypted with a key other than `key`.

    The functions have permissions only for `key`. Returns None if the bucket is encrypted with
    `key` or an AWS-managed key, if it uses no key, or if its encryption settings cannot be read.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketEncryption.html

    Args:
        runs: the runs of the environment.
        bucket: the name of the bucket.
        setting: the setting that contains `key`, for the advice.
        key: the ARN of the key that is set for the bucket; None if no key is set.
    """
    try:
        rules = runs.ask(
            "s3:GetBucketEncryption", "ServerSideEncryptionConfiguration", "Rules", Bucket=bucket
        )
    except S3UnzipError:  # no encryption is set, or another account owns the bucket
        return None
    default = rules[0]["ApplyServerSideEncryptionByDefault"]  # a bucket has exactly one rule
    # AWS manages the key if there is no id, or if the id is an alias of AWS.
    actual = default.get("KMSMasterKeyID", AWS_ALIAS_PREFIX)
    if "kms" not in default["SSEAlgorithm"] or AWS_ALIAS_PREFIX in actual:
        return None
    # A bucket may name its key by an ARN, by the id at the end of the ARN, or by an alias.
    if "alias/" in actual:
        with suppress(NotFoundError):  # if the alias has no key, `actual` remains the alias
            actual = runs.ask(
                "kms:DescribeKey", "KeyMetadata", "Arn", region_of=actual, KeyId=actual
            )
    if key is not None and actual.rpartition("/")[2] == key.rpartition("/")[2]:
        return None
    return Answer(
        FAILURE,
        f"{bucket} is encrypted with {actual}, for which the functions have no permissions",
        f"set {setting} to this key, and deploy again",
    )


def check_secret(
    runs: DeployedRuns, defaults: RunDefaults | None = None, setting: str = "password_secret"
) -> Answer:
    """Check that the environment's secret, if there is one, contains a password.

    Args:
        runs: the runs of the environment.
        defaults: the defaults of a route; None for the defaults of the environment itself.
        setting: the setting that contains the name of the secret.
    """
    secret = (defaults or runs.config.environment_defaults).options.password_ref
    if secret is None:
        return Answer(OK, "password_secret is not set, so encrypted members fail")
    try:
        read_secret(secret, runs.client("secretsmanager"))
    except (NotFoundError, UsageError) as error:
        return Answer(
            FAILURE,
            str(error),
            f"put the password into the secret, or correct {setting} and deploy again",
        )
    return Answer(OK, "the secret holds a password")


def check_route(runs: DeployedRuns, number: int, route: Route) -> Answer:
    """Check the bucket, the rights, the key and the password of a route.

    Args:
        runs: the runs of the environment.
        number: the index of the route in the environment's file, from 0.
        route: the route.
    """
    deployed_route = runs.config.routes[number]
    bucket = deployed_route.destination.bucket
    location = _check_location(
        runs,
        bucket,
        route.destination_owner,
        advice=f"use a bucket of the stack's account, or set routes.{number}.destination.owner to "
        "the account that owns it",
    )
    if location.status is FAILURE:
        return location
    writing = check_rights(runs, deployed_route)
    if writing.status is FAILURE:
        return writing
    key = runs.outputs.get(f"Route{number}DestinationKey") or route.destination_kms_key
    encryption = _compare_encryption(runs, bucket, f"routes.{number}.destination.kms_key", key)
    if encryption is not None:
        return encryption
    secret = check_secret(runs, deployed_route, f"routes.{number}.password_secret")
    if secret.status is FAILURE:
        return secret
    return next(  # a warning is reported last, because failures matter more
        (answer for answer in (writing, location) if answer.status is WARNING),
        Answer(OK, f"{deployed_route.scope} -> {deployed_route.destination}"),
    )


def _find_region(runs: DeployedRuns, bucket: str) -> str | None:
    """Return the region of a bucket, or None if the bucket does not exist.

    Unless the status is 404, HeadBucket returns the region in a header. Therefore the error
    response for a bucket in another region also contains its region. Any other error, such as
    access denied in the stack's region, is raised.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    with translating_errors("s3:ListBucket"):
        try:
            region: str | None = runs.client("s3").head_bucket(Bucket=bucket).get("BucketRegion")
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region")
            if metadata["HTTPStatusCode"] == 404:
                return None
            if region is None or region == runs.region:
                raise
    return region or runs.region  # some emulators do not return the region
