"""The password of archives, in AWS Secrets Manager."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from s3unzip import errors

if TYPE_CHECKING:  # a stub
    from mypy_boto3_secretsmanager import SecretsManagerClient

SCHEME = "secretsmanager:"

# https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
_FAULTS: dict[str, type[errors.S3UnzipError]] = {
    "AccessDeniedException": errors.AccessDeniedError,
    "DecryptionFailure": errors.AccessDeniedError,
    "ResourceNotFoundException": errors.NotFoundError,
    "InvalidParameterException": errors.UsageError,
    "InvalidRequestException": errors.NotFoundError,  # the secret is being deleted
    "ValidationException": errors.UsageError,
}


def read_secret(ref: str, client: SecretsManagerClient) -> bytes:
    """Return the password that `ref` names; it is never logged and never part of an error.

    ``secretsmanager:NAME`` or ``secretsmanager:ARN`` is the secret's whole value; ``...#field`` one
    field of a secret that is a JSON object, as the console makes them.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few need it

    name, _, field = ref.removeprefix(SCHEME).partition("#")
    if not ref.startswith(SCHEME) or not name:
        raise errors.UsageError(f"password reference {ref!r}: only {SCHEME}NAME is known here")
    try:
        answer = client.get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind = _FAULTS.get(code, errors.ServiceFaultError)
        advice = ""
        if kind is errors.AccessDeniedError:
            needs = "secretsmanager:GetSecretValue, and kms:Decrypt of its key"
            advice = f"; the function needs {needs}"
        raise kind(f"secret {name}: {code}{advice}") from error
    except BotoCoreError as error:
        raise errors.ServiceFaultError(f"secret {name}: {type(error).__name__}") from error
    value = answer.get("SecretString", "").encode() or answer.get("SecretBinary", b"")
    if field:
        value = _read_field(name, value, field)
    if not value:
        raise errors.UsageError(f"secret {name}: is empty")
    return value


def _read_field(name: str, value: bytes, field: str) -> bytes:
    """Return one field of a secret that is a JSON object."""
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None  # raise no error from this one, which quotes the secret
    text = None
    if isinstance(fields, dict):
        text = fields.get(field)
    if not isinstance(text, str):
        raise errors.UsageError(f"secret {name}: is no JSON object with a text field {field!r}")
    return text.encode()
