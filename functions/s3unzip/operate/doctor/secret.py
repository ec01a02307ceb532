"""Check of the secret that holds the password of encrypted members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws.secrets import SCHEME, read_secret
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.operate.doctor.results import Answer
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment


def check_secret(deployment: Deployment) -> Answer:
    """Is there a password in the secret, if the environment has one?"""
    try:
        password = read_password(deployment)
    except (NotFoundError, UsageError) as error:
        advice = "put the password into the secret, or correct password_secret and deploy again"
        return Answer.failure(str(error), advice)
    if password is None:
        return Answer.ok(
            "password_secret is not set: encrypted members fail, others do not need it"
        )
    return Answer.ok("the secret holds a password")


def read_password(deployment: Deployment) -> bytes | None:
    """Return the environment's password, None if it has none.

    Raises:
        NotFoundError: the secret does not exist, or is being deleted.
        UsageError: it is empty, or has no such field.
        AccessDeniedError: the caller may not read it.
    """
    secret = deployment.variables.get(Variable.PASSWORD_SECRET)
    if not secret:
        return None
    return read_secret(SCHEME + secret, deployment.client("secretsmanager"))
