"""Stack, quotas, buckets, key and secret: each check in a state that trips it, and in one not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from s3unzip.fingerprint import package_version, source_fingerprint
from s3unzip.operate.doctor.deployment import FUNCTION, Resource
from s3unzip.settings import Variable
from tests.servers import Asked, Reply
from tests.unit.operate.doctor.checking import FAILURE, OK, RESOURCES, WARNING, check
from tests.unit.operate.doctor.scripted import answering, refuse

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment
    from s3unzip.operate.doctor.results import CheckStatus
    from tests.account import Account


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UPDATE_COMPLETE", OK),
        ("UPDATE_IN_PROGRESS", WARNING),
        ("UPDATE_ROLLBACK_COMPLETE", WARNING),
        ("ROLLBACK_COMPLETE", FAILURE),
        ("UPDATE_ROLLBACK_FAILED", FAILURE),
    ],
)
def test_stack(deployment: Deployment, status: str, expected: CheckStatus) -> None:
    """A stack that is not whole is told by its status."""
    deployment.runs.stack = deployment.stack._replace(status=status)
    check(deployment, "stack", expected, status, "123456789012")


@pytest.mark.parametrize(
    ("outputs", "expected", "word"),
    [
        ({}, WARNING, "has no version output"),
        ({"Version": "0.0.0"}, WARNING, "version 0.0.0 is deployed"),
        ({"Version": package_version(), "Fingerprint": "0"}, WARNING, "source files that differ"),
        (
            {"Version": package_version(), "Fingerprint": source_fingerprint()},
            OK,
            "the same source files",
        ),
    ],
)
def test_version(
    deployment: Deployment, outputs: dict[str, str], expected: CheckStatus, word: str
) -> None:
    """Another version, or the same with other files, is told."""
    deployment.stack.outputs.update(outputs)
    check(deployment, "version", expected, word)


@pytest.mark.parametrize(
    ("limits", "workers", "expected", "word"),
    [
        ((1_000, 1_000, None), 800, OK, "800"),
        ((1_000, 1_000, None), 950, WARNING, "leave too few"),
        ((10, 10, None), 100, FAILURE, "lower runs.concurrency to 10"),
        ((1_000, 600, 400), 400, OK, "400 are reserved for extract"),
        ((1_000, 600, 300), 400, FAILURE, "raise functions.extract.reserved_concurrency"),
    ],
)
def test_concurrency(
    deployment: Deployment,
    limits: tuple[int, int, int | None],
    workers: int,
    expected: CheckStatus,
    word: str,
) -> None:
    """What the account gives is compared with the workers that all runs share."""
    account, unreserved, reserved = limits
    deployment.resources = RESOURCES
    deployment.variables = {
        **deployment.variables,
        Variable.WORKERS: str(workers),
    }

    def answer(asked: Asked) -> Reply:
        told: dict[str, Any] = {}
        if "account-settings" in asked.path:
            names = ("ConcurrentExecutions", "UnreservedConcurrentExecutions")
            told = {"AccountLimit": dict(zip(names, (account, unreserved), strict=True))}
        elif reserved is not None:
            assert "/functions/extract/" in asked.path
            told = {"ReservedConcurrentExecutions": reserved}
        return Reply(200, json.dumps(told).encode())

    with answering(deployment, answer, "lambda"):
        check(deployment, "concurrency", expected, word)


def test_a_service_that_an_emulator_lacks(deployment: Deployment) -> None:
    """Moto has no GetAccountSettings: that is a warning, not a failure."""
    check(deployment, "concurrency", WARNING, "does not have lambda:GetAccountSettings")


@pytest.mark.parametrize("role", ["ingest", "destination", "work"])
def test_buckets(deployment: Deployment, account: Account, role: str) -> None:
    """A bucket that is there is ok, and one that is gone a failure."""
    name = f"{role} bucket"
    check(deployment, name, OK, "in us-east-1, owned by account 123456789012")
    account.client("s3").delete_bucket(Bucket=deployment.stack.outputs[f"{role.title()}Bucket"])
    check(deployment, name, FAILURE, "does not exist")


@pytest.mark.parametrize("status", [200, 301, 403])
def test_a_bucket_elsewhere(deployment: Deployment, status: int) -> None:
    """S3 tells the region with every status, and the stack must be there too."""

    def answer(_: Asked) -> Reply:
        return Reply(status, b"", {"x-amz-bucket-region": "eu-west-1"})

    with answering(deployment, answer, "s3"):
        check(deployment, "ingest bucket", FAILURE, "arrivals is in eu-west-1")


@pytest.mark.parametrize(
    ("role", "owner", "word"),
    [
        ("ingest", "123456789012", "of the stack's account"),
        ("destination", "123456789012", "set destination.owner"),
        ("destination", "999999999999", "not owned by account 999999999999"),
    ],
)
def test_a_bucket_of_somebody_else(
    deployment: Deployment, role: str, owner: str, word: str
) -> None:
    """The owner is the stack's account; of the destination it may be set."""
    if owner != deployment.account:
        variables = {**deployment.variables, Variable.DESTINATION_OWNER: owner}
        deployment.variables = variables

    def answer(asked: Asked) -> Reply:
        expected = asked.headers.get("x-amz-expected-bucket-owner")
        return Reply(403 if expected == owner else 200)

    with answering(deployment, answer, "s3"):
        check(deployment, f"{role} bucket", FAILURE, word)


@pytest.mark.parametrize("word", ["InternalError", "SlowDown"])
def test_a_bucket_when_s3_fails(deployment: Deployment, word: str) -> None:
    """A fault of S3 says nothing of the bucket: not checked."""
    with answering(deployment, lambda asked: refuse(asked, word, 500), "s3"):
        check(deployment, "work bucket", WARNING, "not checked", "run the command again")


def test_an_owner_that_cannot_be_asked(deployment: Deployment) -> None:
    """A fault at the second question is not taken for another owner."""

    def answer(asked: Asked) -> Reply:
        return Reply(500 if "x-amz-expected-bucket-owner" in asked.headers else 200)

    with answering(deployment, answer, "s3"):
        check(deployment, "work bucket", WARNING, "not checked")


@pytest.mark.parametrize(
    ("declared", "status", "expected", "word"),
    [
        ("true", "Enabled", OK, "as declared"),
        ("true", "Suspended", WARNING, "is suspended"),
        ("true", None, WARNING, "is never enabled"),
        ("false", None, OK, "as declared"),
        ("false", "Enabled", WARNING, "set ingest.versioned"),
        (None, "Enabled", WARNING, "does not say"),
    ],
)
def test_versioning(
    deployment: Deployment,
    account: Account,
    declared: str | None,
    status: str | None,
    expected: CheckStatus,
    word: str,
) -> None:
    """What the environment's file says must be what the bucket has."""
    if declared is not None:
        deployment.stack.outputs["IngestVersioned"] = declared
    if status is not None:
        account.client("s3").put_bucket_versioning(
            Bucket="arrivals", VersioningConfiguration={"Status": status}
        )
    check(deployment, "versioning", expected, word)


def test_no_key(deployment: Deployment) -> None:
    """Without a key of its own nothing is asked."""
    check(deployment, "kms key", OK, "not set")


@pytest.mark.parametrize(
    ("state", "expected", "word"),
    [
        ("enabled", OK, "is enabled"),
        ("disabled", FAILURE, "is Disabled"),
        ("signing", FAILURE, "is a key for SIGN_VERIFY"),
        ("missing", FAILURE, "does not exist"),
    ],
)
def test_key(
    deployment: Deployment, account: Account, state: str, expected: CheckStatus, word: str
) -> None:
    """A key that cannot encrypt fails every PUT."""
    kms = account.client("kms")
    if state == "signing":
        made = kms.create_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")
    else:
        made = kms.create_key()
    arn = made["KeyMetadata"]["Arn"]
    if state == "disabled":
        kms.disable_key(KeyId=made["KeyMetadata"]["KeyId"])
    if state == "missing":
        arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    deployment.variables = {**deployment.variables, Variable.DESTINATION_KMS_KEY: arn}
    check(deployment, "kms key", expected, word)


@pytest.mark.parametrize(
    ("value", "field", "expected", "word"),
    [
        (None, "", OK, "not set"),
        ("word", "", OK, "holds a password"),
        ("word", "#zip", FAILURE, "field 'zip'"),
        ("deleted", "", FAILURE, "put the password into"),
    ],
)
def test_secret(
    deployment: Deployment,
    account: Account,
    value: str | None,
    field: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """A secret that is set must hold a password."""
    if value is not None:
        client = account.client("secretsmanager")
        arn = client.create_secret(Name="zip", SecretString=value)["ARN"]
        if value == "deleted":
            client.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)
        deployment.variables = {**deployment.variables, Variable.PASSWORD_SECRET: arn + field}
    check(deployment, "password secret", expected, word)


@pytest.mark.parametrize(
    ("payer", "declared", "owner", "expected", "word"),
    [
        ("BucketOwner", "", True, OK, "the owner of arrivals pays"),
        ("BucketOwner", "requester", True, WARNING, "it has no effect"),
        ("Requester", "requester", False, OK, "its requests accept to pay"),
        ("Requester", "", True, OK, "its owner reads it as ever"),
        ("Requester", "", False, FAILURE, "set ingest.request_payer = true"),
    ],
)
def test_who_pays(
    deployment: Deployment,
    payer: str,
    declared: str,
    owner: bool,  # noqa: FBT001 - likewise
    expected: CheckStatus,
    word: str,
) -> None:
    """What the file says must be what the bucket wants, unless the account owns it."""

    def answer(asked: Asked) -> Reply:
        if "requestPayment" in asked.path:
            body = f"<RequestPaymentConfiguration><Payer>{payer}</Payer>"
            return Reply(200, f"{body}</RequestPaymentConfiguration>".encode())
        return Reply(200 if owner else 403)

    deployment.variables = {**deployment.variables, Variable.REQUEST_PAYER: declared}
    with answering(deployment, answer, "s3"):
        check(deployment, "requester pays", expected, word)


TAGS: dict[str, str] = {Variable.OPTIONS: '{"objects":{"tags":{"team":"data"}}}'}
TAGGED: dict[str, str] = {Variable.AFTER_SUCCESS: '{"action":"tag","tags":{"state":"done"}}'}
ENDER = Resource("FunctionsReport1", FUNCTION, "report")


def test_no_tags(deployment: Deployment) -> None:
    """Without tags nothing is asked."""
    check(deployment, "tagging", OK, "no tags are set")


@pytest.mark.parametrize(
    ("variables", "action", "arn"),
    [
        (TAGS, "s3:PutObjectTagging", "arn:aws:s3:::members/"),
        (TAGGED, "s3:PutObjectVersionTagging", "arn:aws:s3:::arrivals/"),
    ],
)
@pytest.mark.parametrize("decision", ["allowed", "implicitDeny", "explicitDeny"])
def test_the_right_to_tag(
    deployment: Deployment, variables: dict[str, str], action: str, arn: str, decision: str
) -> None:
    """The role of each function that writes tags is simulated."""
    asked_of: list[str] = []

    def answer(asked: Asked) -> Reply:
        if b"Action=" not in asked.body:  # Lambda
            return Reply(200, b'{"Role": "arn:aws:iam::123456789012:role/one"}')
        asked_of.append(unquote(asked.body.decode()))
        result = f"<member><EvalActionName>x</EvalActionName><EvalDecision>{decision}"
        return Reply(
            200,
            b"<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"
            + f"{result}</EvalDecision></member></EvaluationResults>".encode()
            + b"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>",
        )

    deployment.resources = (*RESOURCES, ENDER)
    deployment.variables = {**deployment.variables, **variables}
    expected = OK if decision == "allowed" else FAILURE
    with answering(deployment, answer, "iam", "lambda"):
        check(deployment, "tagging", expected, action)
    assert all(action in asked and arn in asked for asked in asked_of)
    assert len(asked_of) == (1 if expected is FAILURE else 3 if variables is TAGS else 2)
