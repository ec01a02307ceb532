"""Passwords of archives from AWS Secrets Manager, by a reference that is not secret.

``secretsmanager:NAME`` or ``secretsmanager:ARN`` is the secret's whole value;
``...#field`` one field of a secret that is a JSON object, as the console makes
them. The value is never logged and never part of an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    UsageError,
)

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

SCHEME = "secretsmanager:"

# https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
_KINDS: dict[str, type[S3UnzipError]] = {
    "AccessDeniedException": AccessDeniedError,
    "DecryptionFailure": AccessDeniedError,
    "ResourceNotFoundException": NotFoundError,
    "InvalidParameterException": UsageError,
    "InvalidRequestException": NotFoundError,  # the secret is being deleted
    "ValidationException": UsageError,
}


def read_secret(ref: str, client: SecretsManagerClient) -> bytes:
    """Return the password that `ref` names.

    Raises:
        UsageError: `ref` is not such a reference, or the secret has no such field or is empty.
        NotFoundError, AccessDeniedError: the secret cannot be read.
        ServiceFaultError: it cannot be read now; a retry may help.
    """
    name, _, field = ref.removeprefix(SCHEME).partition("#")
    if not ref.startswith(SCHEME) or not name:
        raise UsageError(f"password reference {ref!r}: only {SCHEME}NAME is known here")
    try:
        answer = client.get_secret_value(SecretId=name)
    except ClientError as error:
        raise _fault(name, error) from error
    except BotoCoreError as error:
        raise ServiceFaultError(f"secret {name}: {type(error).__name__}") from error
    is_text = "SecretString" in answer
    value = answer["SecretString"].encode() if is_text else answer["SecretBinary"]
    if field:
        value = _pick(name, field, value)
    if not value:
        raise UsageError(f"secret {name}: is empty")
    return value


def _fault(name: str, error: ClientError) -> S3UnzipError:
    code = error.response.get("Error", {}).get("Code", "")
    kind = _KINDS.get(code, ServiceFaultError)
    advice = ""
    if kind is AccessDeniedError:
        advice = "; the function needs secretsmanager:GetSecretValue, and kms:Decrypt of its key"
    return kind(f"secret {name}: {code}{advice}")


def _pick(name: str, field: str, value: bytes) -> bytes:
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None  # the error would quote the value
    found = fields.get(field) if isinstance(fields, dict) else None
    if not isinstance(found, str):
        raise UsageError(f"secret {name}: is no JSON object with a text field {field!r}")
    return found.encode()
