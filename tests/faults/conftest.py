"""One S3 server and one proxy before it, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.faults.proxy import FaultProxy
from tests.faults.world import CREDENTIALS, World
from tests.support.servers import find_versitygw, run_versitygw


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    if find_versitygw() is None:
        pytest.skip("versitygw is not installed: docs/reliability.md says how")
    with run_versitygw() as (url, objects), FaultProxy(int(url.rpartition(":")[2])) as proxy:
        yield World(url, objects, proxy)


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.clear()
    return shared_world
