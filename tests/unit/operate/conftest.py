"""The runs of an environment that is deployed in moto's account."""

from collections.abc import Callable

import pytest

from s3unzip.operate.runs import DeployedRuns
from tests.support.account import Account
from tests.support.contexts import Invocation
from tests.unit.operate.site import Site


@pytest.fixture
def deploy(account: Account, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    def make(**variables: str) -> Site:
        account.deploy(**variables)
        for name, value in account.variables.items():
            monkeypatch.setenv(name, value)
        return Site(account, Invocation())

    return make


@pytest.fixture
def site(deploy: Callable[..., Site]) -> Site:
    return deploy()


@pytest.fixture
def runs(site: Site) -> DeployedRuns:
    return site.runs
