"""One S3 server and one proxy before it, for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.proxy import FaultProxy
from tests.faults.stores import CREDENTIALS, DESTINATION, SOURCE, WORK, open_client
from tests.faults.versity import Versity, find_versity
from tests.faults.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a context of the harness would set in this process."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def server() -> Iterator[Versity]:
    """Start an S3 server with the three buckets."""
    if find_versity() is None:
        pytest.skip("versitygw is not installed: docs/reliability.md says how")
    with Versity() as versity:
        client = open_client(versity.endpoint)
        for bucket in (SOURCE, DESTINATION, WORK):
            client.create_bucket(Bucket=bucket)
        client.close()
        yield versity


@pytest.fixture(scope="session")
def shared_proxy(server: Versity) -> Iterator[FaultProxy]:
    """Start a proxy before the server."""
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> FaultProxy:
    """Return the proxy without rules and without records."""
    shared_proxy.set_rules()
    shared_proxy.take_records()
    return shared_proxy


@pytest.fixture
def world(server: Versity, proxy: FaultProxy) -> World:
    """Return the server with empty buckets."""
    world = World(server, proxy)
    world.clear()
    return world
