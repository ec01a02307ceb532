"""What a test of a check says: its name, its status, and words of what is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.operate.doctor.deployment import ALARM, FUNCTION, RULE, Resource
from s3unzip.operate.doctor.diagnosis import run_check
from s3unzip.operate.doctor.results import CheckStatus

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment

OK, WARNING, FAILURE = CheckStatus
SERVICES = (
    *("cloudformation", "cloudwatch", "events", "kms"),
    *("iam", "lambda", "s3", "secretsmanager", "sns", "sqs"),
)
RESOURCES = (
    Resource("FunctionsExtract1", FUNCTION, "extract"),
    Resource("FunctionsPlan1", FUNCTION, "plan"),
    Resource("AlarmsDeadLetters1", ALARM, "DeadLetters"),
    Resource("IntakeArchivePut1", RULE, "ArchivePut"),
)


def check(deployment: Deployment, name: str, status: CheckStatus, *words: str) -> None:
    """Assert what a check says: its status, words of its message and advice."""
    found = run_check(name, deployment)
    assert (found.name, found.status) == (name, status), found
    text = f"{found.message} -> {found.advice}"
    assert all(word in text for word in words), text
    assert bool(found.advice) is (status is not OK)
