"""The environment of the tests of backlogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from s3unzip.settings import Variable
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import Functions
from tests.unit.operate.backlog.environment import Site

if TYPE_CHECKING:
    from tests.account import Account


@pytest.fixture
def site(account: Account, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The environment ``dev``, deployed with its usual settings."""
    account.deploy(**{Variable.TUNING: "{}"})
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    return Site(Functions(account, Invocation()))
