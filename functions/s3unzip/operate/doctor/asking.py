"""One request to AWS on behalf of a check, and the meaning of its errors.

A check that cannot be made is not a failed check: a missing right of the person who runs the
command, and a service that an emulator does not have, are warnings that name the action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from s3unzip.aws.aws_faults import read_fault
from s3unzip.errors import AccessDeniedError, S3UnzipError
from s3unzip.operate.doctor.results import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Error codes of emulators for an operation that they do not have. AWS has all operations.
_UNKNOWN_CODES = frozenset(
    {
        "404",  # there is no such path; a HEAD of what is not there, the checks themselves take
        "InvalidAction",
        "NotImplemented",
        "NotImplementedException",
        "UnknownOperation",
        "UnknownOperationException",
        "UnsupportedOperation",
    }
)


class UnsupportedActionError(S3UnzipError):
    """The endpoint is not AWS and does not have this action."""


def error_code(error: ClientError) -> str:
    """Return the code of an error: ``NoSuchBucket``; for a HEAD its HTTP status: ``404``."""
    return error.response.get("Error", {}).get("Code", "")


def ask(action: str, call: Callable[[], T]) -> T:
    """Return what `call` returns; `action` is the IAM action that it needs.

    Raises:
        AccessDeniedError: the action is not allowed, or there are no credentials.
        UnsupportedActionError: the endpoint does not have it.
        S3UnzipError: AWS returns any other error.
    """
    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and _is_unknown(error):
            raise UnsupportedActionError(action) from None
        if isinstance(error, ClientError) and error_code(error) == "403":  # a HEAD has no body
            raise AccessDeniedError(f"{action}: access denied") from None
        raise read_fault(error, action) from None


def _is_unknown(error: ClientError) -> bool:
    text = str(error).lower()
    return error_code(error) in _UNKNOWN_CODES or "not yet implemented" in text


def not_checked(error: S3UnzipError) -> Answer:
    """Return the warning of a check that could not be made."""
    match error:
        case UnsupportedActionError():
            return Answer.warning(
                f"not checked: this endpoint does not have {error}",
                "nothing to do on an emulator; on AWS report it",
            )
        case AccessDeniedError():
            return Answer.warning(
                f"not checked: {error}",
                "allow the action to whoever runs this command, or ask somebody who may",
            )
    return Answer.warning(f"not checked: {error}", "run the command again")
