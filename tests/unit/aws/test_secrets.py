"""Secrets over real HTTP: a server that answers GetSecretValue as Secrets Manager does."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import boto3
import pytest
from botocore.config import Config
from mypy_boto3_secretsmanager import SecretsManagerClient

from s3unzip.aws.environment import read_secret
from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError, UsageError

VALUE = "p\u00e4ss"
SECRETS: dict[str, dict[str, str]] = {
    "zip": {"SecretString": VALUE},
    "binary": {"SecretBinary": base64.b64encode(b"\x00\xff").decode()},
    "fields": {"SecretString": json.dumps({"zip": VALUE, "number": 7})},
    "empty": {"SecretString": ""},
}
ARN = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:zip-AbCdEf"
REFUSALS = {
    "denied": "AccessDeniedException",
    "locked": "DecryptionFailure",
    "down": "InternalServiceError",
}


class _Answers(BaseHTTPRequestHandler):
    """One JSON 1.1 call a request."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """Answer GetSecretValue."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["X-Amz-Target"] == "secretsmanager.GetSecretValue"
        name = "zip" if body["SecretId"] == ARN else body["SecretId"]
        self.asked.append(name)
        found = SECRETS.get(name)
        if found is not None:
            self._say(200, {"Name": name, **found})
        else:
            code = REFUSALS.get(name, "ResourceNotFoundException")
            self._say(500 if name == "down" else 400, {"__type": code, "message": "no"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has
        """Say nothing."""

    def _say(self, status: int, answer: dict[str, str]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture(scope="module")
def client() -> Iterator[SecretsManagerClient]:
    """Return a client of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield boto3.client(
            "secretsmanager",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            region_name="eu-west-1",
            aws_access_key_id="id",
            aws_secret_access_key="key",
            config=Config(retries={"total_max_attempts": 1}),
        )
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("ref", "password"),
    [
        ("secretsmanager:zip", VALUE.encode()),
        (f"secretsmanager:{ARN}", VALUE.encode()),
        ("secretsmanager:binary", b"\x00\xff"),
        ("secretsmanager:fields#zip", VALUE.encode()),
    ],
)
def test_reads(client: SecretsManagerClient, ref: str, password: bytes) -> None:
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
def test_refuses(client: SecretsManagerClient, ref: str, error: type[Exception]) -> None:
    """Each refusal is of the right kind, and no message holds a value."""
    with pytest.raises(error) as caught:
        read_secret(ref, client)
    assert VALUE not in str(caught.value)
