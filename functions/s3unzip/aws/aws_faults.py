"""Translates errors of the AWS control plane into errors of s3unzip."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)

from s3unzip.errors import (
    AccessDeniedError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.errors import S3UnzipError

_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Translate the errors of a request that needs the IAM action `action`."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise read_fault(error, action) from None


def read_fault(error: Exception, action: str) -> S3UnzipError:
    """Return an operator's error for an error of CloudFormation, Step Functions or S3."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return AccessDeniedError(f"{action}: {error}; set AWS_PROFILE or AWS_ACCESS_KEY_ID")
    if isinstance(error, NoRegionError | ProfileNotFound):
        return UsageError(
            f"{action}: {str(error).rstrip('.')}; give --region and --profile, or set AWS_REGION"
        )
    if not isinstance(error, ClientError):
        return ServiceFaultError(f"{action}: {error}")
    return _read_answer(error, action)


def _read_answer(error: ClientError, action: str) -> S3UnzipError:
    fault = error.response.get("Error", {})
    code, message = fault.get("Code", ""), fault.get("Message", "")
    text = f"{action}: {code}: {message}"
    if "AccessDenied" in code or "Unauthorized" in code or code in _CREDENTIALS:
        return AccessDeniedError(text)
    if "Throttl" in code or code == "TooManyRequestsException":
        return ThrottledError(text)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return ServiceFaultError(text) if status >= 500 else StorageError(text)
