"""The runs of an environment that is deployed in moto's account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.handlers.pipeline import Functions

from s3unzip.operate.doctor import Deployment
from s3unzip.operate.runs import DeployedRuns
from s3unzip.stores.factory import StoreConfig
from tests.unit.aws.contexts import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account


@pytest.fixture
def functions(account: Account, monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The functions of the environment dev, deployed."""
    account.deploy()
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    return Functions(account, Invocation())


@pytest.fixture
def open_runs(account: Account) -> Callable[[], DeployedRuns]:
    """A function that opens the runs of the environment dev."""
    return lambda: DeployedRuns("dev", StoreConfig(endpoint_url=account.url))


@pytest.fixture
def deployment(functions: Functions, open_runs: Callable[[], DeployedRuns]) -> Deployment:
    """The environment dev; tests add resources to it, or change outputs and variables."""
    del functions  # deployed
    return Deployment(open_runs())
