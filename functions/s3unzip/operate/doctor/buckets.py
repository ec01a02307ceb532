"""Checks of the three buckets (existence, owner, versioning, payer, tags) and of the KMS key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from s3unzip.model import SourceAction
from s3unzip.operate.doctor.asking import ask, error_code
from s3unzip.operate.doctor.deployment import FUNCTION
from s3unzip.operate.doctor.results import Answer
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_kms.type_defs import KeyMetadataTypeDef
    from mypy_boto3_s3 import S3Client

    from s3unzip.operate.doctor.deployment import Deployment

# Functions by the beginning of their logical names: those that write members, and those that end
# runs.
WRITERS = ("FunctionsExtract", "FunctionsPlan", "FunctionsReport")
ENDERS = ("FunctionsPlan", "FunctionsReport")


def check_bucket(deployment: Deployment, role: str) -> Answer:
    """Is the bucket there, in the stack's region, and in the account that should own it?

    Args:
        deployment: the environment.
        role: ingest, destination or work.
    """
    bucket = bucket_of(deployment, role)
    s3: S3Client = deployment.client("s3")
    region = ask("s3:ListBucket", partial(_find_region, s3, bucket, deployment.region))
    if region is None:
        advice = "create it, or deploy with another bucket"
        return Answer.failure(f"{bucket} does not exist", advice)
    if region != deployment.region:
        return Answer.failure(
            f"{bucket} is in {region}, the stack in {deployment.region}",
            f"use a bucket in {deployment.region}, or deploy the stack in {region}",
        )
    owner = deployment.account
    advice = "use a bucket of the stack's account"
    if role == "destination":
        owner = deployment.variables.get(Variable.DESTINATION_OWNER) or owner
        advice = "or set destination.owner to the account that owns it"
    if not ask("s3:ListBucket", partial(_is_owner, s3, bucket, owner)):
        return Answer.failure(f"{bucket} is not owned by account {owner}", advice)
    return Answer.ok(f"{bucket} is in {region}, owned by account {owner}")


def check_versioning(deployment: Deployment) -> Answer:
    """Is the ingest bucket's versioning what ``ingest.versioned`` says?

    With versioning, a run reads the planned version even if the key is overwritten meanwhile, and
    S3 sends a separate event for each of two quick writes of a key.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventNotifications.html
    """
    declared = deployment.stack.outputs.get("IngestVersioned")
    bucket = bucket_of(deployment, "ingest")
    s3: S3Client = deployment.client("s3")
    answer = ask("s3:GetBucketVersioning", partial(s3.get_bucket_versioning, Bucket=bucket))
    status = answer.get("Status", "never enabled").lower()
    if declared is None:
        return Answer.warning(
            f"{bucket}: versioning is {status}; the stack does not say what it expects",
            f"deploy again: make deploy ENV={deployment.runs.environment}",
        )
    if (status == "enabled") is not (declared == "true"):
        return Answer.warning(
            f"{bucket}: versioning is {status}, but ingest.versioned is {declared}",
            "change the bucket's versioning, or set ingest.versioned to what it has and deploy",
        )
    return Answer.ok(f"{bucket}: versioning is {status}, as declared")


def check_key(deployment: Deployment) -> Answer:
    """Can the KMS key of written objects be used?

    Key states: https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html
    """
    key = deployment.variables.get(Variable.DESTINATION_KMS_KEY)
    if not key:
        return Answer.ok("kms_key is not set: each bucket's default encryption applies")
    client: KMSClient = deployment.client("kms")
    try:
        found = ask("kms:DescribeKey", partial(_describe_key, client, key))
    except LookupError:
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


def check_payer(deployment: Deployment) -> Answer:
    """Does ``ingest.request_payer`` say who pays for reading the ingest bucket?

    The owner of a Requester Pays bucket needs no header.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/RequesterPaysBuckets.html
    """
    bucket, s3 = bucket_of(deployment, "ingest"), deployment.client("s3")
    declared = bool(deployment.variables.get(Variable.REQUEST_PAYER))
    call = partial(s3.get_bucket_request_payment, Bucket=bucket)
    pays = ask("s3:GetBucketRequestPayment", call).get("Payer") == "Requester"
    if pays and not declared:
        if ask("s3:ListBucket", partial(_is_owner, s3, bucket, deployment.account)):
            return Answer.ok(f"{bucket} is Requester Pays; its owner reads it as ever")
        return Answer.failure(
            f"{bucket} is Requester Pays: S3 refuses requests that do not accept to pay",
            "set ingest.request_payer = true in the environment's file and deploy",
        )
    if declared and not pays:
        return Answer.warning(
            f"{bucket} is not Requester Pays, but ingest.request_payer is true",
            "remove ingest.request_payer: it has no effect",
        )
    if declared:
        return Answer.ok(f"{bucket} is Requester Pays, and its requests accept to pay")
    return Answer.ok(f"the owner of {bucket} pays for its requests")


def check_tagging(deployment: Deployment) -> Answer:
    """May the functions write the tags that the environment sets on objects and archives?

    The policies of the roles are simulated; a bucket's policy may still deny it.
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html
    """
    orders, wanted = deployment.orders, []
    if orders.options.objects is not None and orders.options.objects.tags:
        target = orders.destination
        arn = f"arn:aws:s3:::{target.bucket}/{target.key}*"
        wanted += [(name, "s3:PutObjectTagging", arn) for name in WRITERS]
    rule, trigger = orders.after_success, orders.trigger
    if rule is not None and rule.action is SourceAction.TAG:
        arn = f"arn:aws:s3:::{trigger.bucket}/{trigger.prefix}*"
        wanted += [(name, "s3:PutObjectVersionTagging", arn) for name in ENDERS]
    if not wanted:
        return Answer.ok("no tags are set: the right to write them is not needed")
    for name, action, arn in wanted:
        role = _role_of(deployment, name)
        if role is not None and not _may(deployment, role, action, arn):
            return Answer.failure(
                f"{role} may not {action} on {arn}: each write with tags is refused",
                "deploy again; else a permissions boundary or a policy of the organization denies "
                "it",
            )
    actions = sorted({action for _, action, _ in wanted})
    return Answer.ok(f"the policies of the functions' roles allow {actions}")


def _role_of(deployment: Deployment, logical: str) -> str | None:
    """Return the ARN of a function's role, None if the stack has no such function."""
    client = deployment.client("lambda")
    for one in deployment.resources:
        if one.kind == FUNCTION and one.logical.startswith(logical):
            call = partial(client.get_function_configuration, FunctionName=one.physical)
            role: str = ask("lambda:GetFunctionConfiguration", call)["Role"]
            return role
    return None


def _may(deployment: Deployment, role: str, action: str, arn: str) -> bool:
    client = deployment.client("iam")
    call = partial(
        client.simulate_principal_policy,
        PolicySourceArn=role,
        ActionNames=[action],
        ResourceArns=[arn],
    )
    found = ask("iam:SimulatePrincipalPolicy", call)["EvaluationResults"]
    return all(one["EvalDecision"] == "allowed" for one in found)


def bucket_of(deployment: Deployment, role: str) -> str:
    """Return the name of the bucket with this role."""
    return deployment.stack.outputs[f"{role.capitalize()}Bucket"]


def _find_region(s3: S3Client, bucket: str, ours: str) -> str | None:
    """Return the bucket's region, None where there is no such bucket.

    HeadBucket returns the region in a header, with any status except 404; a 301 has no body.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    try:
        answer = s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
        region: str | None = headers.get("x-amz-bucket-region")
        if error_code(error) == "404":
            return None
        if region is None or region == ours:
            raise
        return region
    return answer.get("BucketRegion") or ours  # some emulators do not return it


def _is_owner(s3: S3Client, bucket: str, owner: str) -> bool:
    """Say whether the account `owner` owns a bucket that may be listed."""
    try:
        s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
    except ClientError as error:
        if error_code(error) == "403":
            return False
        raise
    return True


def _describe_key(client: KMSClient, key: str) -> KeyMetadataTypeDef:
    try:
        return client.describe_key(KeyId=key)["KeyMetadata"]
    except client.exceptions.NotFoundException:
        raise LookupError(key) from None
