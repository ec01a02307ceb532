"""The answer of a check of a deployed environment, or of a check that cannot be made."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from s3unzip.errors import AccessDeniedError, S3UnzipError
from s3unzip.operate.runs import UnsupportedActionError

AGAIN = "deploy the stack again"
NOT_CHECKED = {  # the advice, by the error that prevents a check
    UnsupportedActionError: "nothing to do on an emulator; on AWS report it",
    AccessDeniedError: "allow the action to whoever runs this command, or ask somebody who may",
}


class CheckStatus(StrEnum):
    """How serious the result of a check is."""

    OK = "ok"
    WARNING = "warning"  # it works, or it could not be checked
    FAILURE = "failure"  # archives are not extracted, or will not be


OK, WARNING, FAILURE = CheckStatus


class Answer(NamedTuple):
    """The answer of one check."""

    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class CheckResult(Struct, frozen=True):
    """The answer of a check, with its name."""

    name: str  # of the check, such as "concurrency"
    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class Diagnosis(Struct, frozen=True):
    """All results of one environment, as ``s3unzip doctor --json`` prints them."""

    environment: str
    checks: tuple[CheckResult, ...]


def run_check(name: str, check: Callable[[], Answer]) -> CheckResult:
    """Return the result of a check; a warning if the check cannot be made."""
    try:
        return CheckResult(name, *check())
    except S3UnzipError as error:
        return CheckResult(
            name,
            WARNING,
            f"not checked: {error}",
            NOT_CHECKED.get(type(error), "run the command again"),
        )
