"""The runs of an environment that is deployed in moto's account."""

import pytest

from s3unzip.operate.runs import DeployedRuns
from tests.account import Account
from tests.unit.aws.contexts import Invocation
from tests.unit.operate.site import Site


@pytest.fixture
def site(account: Account, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The environment dev, deployed."""
    account.deploy()
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    return Site(account, Invocation())


@pytest.fixture
def runs(site: Site) -> DeployedRuns:
    """The runs of dev; tests add resources to it, or change outputs and variables."""
    return site.runs
