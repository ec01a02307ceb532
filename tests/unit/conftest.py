"""The moto account of the tests of handlers, of `operate` and of `aws`; a world; traced memory."""

import tracemalloc
from collections.abc import Iterator

import pytest

from s3unzip.aws.environment import load_config, open_client
from tests.support.account import CREDENTIALS, Account, Moto
from tests.support.memory import World
from tests.support.servers import HttpServer, set_variables


@pytest.fixture(scope="session")
def moto_account() -> Iterator[Account]:
    """One moto a session: it takes longer to start than most tests."""
    with HttpServer(Moto()) as server:
        yield Account(server.url, server.asked)


@pytest.fixture
def account(moto_account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    variables = {"AWS_ENDPOINT_URL": moto_account.url, "POWERTOOLS_TRACE_DISABLED": "true"}
    set_variables(monkeypatch, {**CREDENTIALS, **variables})
    moto_account.reset()
    for cached in (open_client, load_config):
        cached.cache_clear()
    yield moto_account
    for cached in (open_client, load_config):
        cached.cache_clear()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def traced() -> Iterator[None]:
    """Tracing that a test starts ends with it."""
    yield
    tracemalloc.stop()
