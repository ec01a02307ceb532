"""The password of archives: who may read the secret, and that nobody else is told of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from infra.environment import Environment, load_environment
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:archives/zip-AbCdEf"
FUNCTIONS = ("plan", "planner", "link", "extract", "report")


def with_secret(secret: str) -> Environment:
    """Return the environment dev with a secret."""
    values = load_environment("dev").model_dump()
    return Environment.model_validate(values | {"password_secret": secret})


@pytest.mark.parametrize("field", ["", "#password"])
def test_only_readers_of_members_may(
    synthesize: Callable[[Environment], Synthesized], field: str
) -> None:
    """Planners and extract get the secret's ARN and may read exactly it; others may not."""
    made = synthesize(with_secret(ARN + field))
    told = {
        name
        for name in FUNCTIONS
        if ARN in json.dumps(made.properties("AWS::Lambda::Function", f"Functions{name.title()}"))
    }
    assert told == {"plan", "planner", "extract"}
    variables = made.properties("AWS::Lambda::Function", "FunctionsPlan")["Environment"]
    assert variables["Variables"][Variable.PASSWORD_SECRET] == ARN + field
    right = ("secretsmanager:GetSecretValue", ARN)
    assert {name for name in FUNCTIONS if right in made.rights(name)} == {
        "plan",
        "planner",
        "extract",
    }


def test_no_secret_no_right(dev: Synthesized) -> None:
    """Without the setting nothing speaks of secrets."""
    assert "secretsmanager" not in json.dumps(dev.template)


@pytest.mark.parametrize("wrong", ["hunter2", ARN[:-7], ARN + "#", ARN + "#a#b"])
def test_a_password_is_no_setting(wrong: str) -> None:
    """Only a full ARN is accepted, so the right is exact and no password is in a file."""
    with pytest.raises(ValidationError, match="password_secret"):
        with_secret(wrong)
