"""The errors of AWS's control plane, translated for operators."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
    UsageError,
)


class UnsupportedActionError(S3UnzipError):
    """The endpoint is not AWS and does not have this action."""


# Error codes of emulators for an operation that they do not have. AWS has all operations.
_UNKNOWN_CODES = frozenset(
    {
        "InvalidAction",
        "NotImplemented",
        "NotImplementedException",
        "UnknownOperation",
        "UnknownOperationException",
        "UnsupportedOperation",
    }
)
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


@contextmanager
def asking(action: str) -> Iterator[None]:
    """Translate the errors of a request that needs the IAM action `action`."""
    try:
        yield
    except (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
    ) as error:
        raise AccessDeniedError(
            f"{action}: {error}; set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        ) from None
    except (exceptions.NoRegionError, exceptions.ProfileNotFound) as error:
        raise UsageError(
            f"{action}: {str(error).rstrip('.')}; give --region and --profile, or set AWS_REGION"
        ) from None
    except exceptions.ClientError as error:
        raise _read_answer(error, action) from None
    except exceptions.BotoCoreError as error:
        raise ServiceFaultError(f"{action}: {error}") from None


def _read_answer(error: exceptions.ClientError, action: str) -> S3UnzipError:
    """Return the error of this package for an error of the AWS control plane."""
    fault = error.response.get("Error", {})
    code = fault.get("Code", "")
    message = fault.get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{action}: {code}: {message}"
    # A HEAD has no body, so its code is its status. Some emulators know no path of an operation.
    missing = code.startswith("NoSuch") or "DoesNotExist" in code or "does not exist" in message
    if code in _UNKNOWN_CODES or code == "404" or "not yet implemented" in str(error).lower():
        return UnsupportedActionError(f"this endpoint does not have {action}")
    if code == "403":
        return AccessDeniedError(f"{action}: access denied")
    if "AccessDenied" in code or "Unauthorized" in code or code in _CREDENTIALS:
        return AccessDeniedError(text)
    if "Throttl" in code or code == "TooManyRequestsException":
        return ThrottledError(text)
    if missing or code == "NotFoundException":
        return NotFoundError(text)
    return ServiceFaultError(text) if status >= 500 else StorageError(text)
