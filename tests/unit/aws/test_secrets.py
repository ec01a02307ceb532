"""Secrets over real HTTP: a server that answers GetSecretValue as Secrets Manager does."""

import base64
import json
from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from mypy_boto3_secretsmanager import SecretsManagerClient

from s3unzip.aws.environment import read_secret
from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError, UsageError
from tests.support.servers import Asked, HttpServer, Reply

VALUE = "p\u00e4ss"
ARN = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:zip-AbCdEf"
SECRETS: dict[str, dict[str, str]] = {
    "zip": {"SecretString": VALUE},
    ARN: {"SecretString": VALUE},
    "binary": {"SecretBinary": base64.b64encode(b"\x00\xff").decode()},
    "fields": {"SecretString": json.dumps({"zip": VALUE, "number": 7})},
    "empty": {"SecretString": ""},
}
REFUSALS = {
    "denied": (400, "AccessDeniedException"),
    "locked": (400, "DecryptionFailure"),
    "down": (500, "InternalServiceError"),
}


def _answer(asked: Asked) -> Reply:
    name = json.loads(asked.body)["SecretId"]
    if name in SECRETS:
        return Reply(200, json.dumps({"Name": name, **SECRETS[name]}).encode())
    status, code = REFUSALS.get(name, (400, "ResourceNotFoundException"))
    return Reply(status, json.dumps({"__type": code, "message": "no"}).encode())


@pytest.fixture(scope="module")
def client() -> Iterator[SecretsManagerClient]:
    with HttpServer(_answer) as server:
        yield boto3.client(
            "secretsmanager",
            endpoint_url=server.url,
            region_name="eu-west-1",
            aws_access_key_id="id",
            aws_secret_access_key="key",
            config=Config(retries={"total_max_attempts": 1}),
        )


@pytest.mark.parametrize(
    ("ref", "password"),
    [
        ("secretsmanager:zip", VALUE.encode()),
        (f"secretsmanager:{ARN}", VALUE.encode()),
        ("secretsmanager:binary", b"\x00\xff"),
        ("secretsmanager:fields#zip", VALUE.encode()),
    ],
)
def test_passwords_of_secrets_are_read(
    client: SecretsManagerClient, ref: str, password: bytes
) -> None:
    """Text, bytes and a field of a JSON object, by name and by ARN."""
    assert read_secret(ref, client) == password


@pytest.mark.parametrize(
    ("ref", "error"),
    [
        ("secretsmanager:gone", NotFoundError),
        ("secretsmanager:denied", AccessDeniedError),
        ("secretsmanager:locked", AccessDeniedError),
        ("secretsmanager:down", ServiceFaultError),
        ("secretsmanager:empty", UsageError),
        ("secretsmanager:zip#field", UsageError),
        ("secretsmanager:fields#number", UsageError),
        ("secretsmanager:fields#other", UsageError),
        ("secretsmanager:", UsageError),
        ("file:/etc/password", UsageError),
    ],
)
def test_secrets_without_a_password_are_refused(
    client: SecretsManagerClient, ref: str, error: type[Exception]
) -> None:
    """Each refusal is of the right kind, and no message holds a value."""
    with pytest.raises(error) as caught:
        read_secret(ref, client)
    assert VALUE not in str(caught.value)
