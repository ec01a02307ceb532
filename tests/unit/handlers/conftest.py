"""A deployed account whose functions run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import Functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account


@pytest.fixture
def deploy(account: Account, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Functions]:
    """A function that deploys the account with these variables, and returns its functions."""

    def make(**variables: str) -> Functions:
        account.deploy(**variables)
        for name, value in account.variables.items():
            monkeypatch.setenv(name, value)
        return Functions(account, Invocation())

    return make
