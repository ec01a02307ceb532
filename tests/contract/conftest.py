"""The servers, started once a session, and the places on them, empty for each test."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from embedded.ministack import EmbeddedAws
from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.s3 import aws_session, session
from tests.contract.places import Place, s3_place
from tests.support.memory import MemoryStores
from tests.support.servers import VERSITY, find_versitygw, require_embedded_aws, run_versitygw


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    require_embedded_aws()
    with EmbeddedAws() as aws:
        yield aws.endpoint


@pytest.fixture(scope="session")
def versitygw() -> Iterator[str]:
    if find_versitygw() is None:
        pytest.skip("VersityGW is not installed: go install github.com/versity/versitygw/...")
    with run_versitygw() as (url, _):
        yield url


@pytest.fixture(autouse=True)
def aws_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give every test the local servers' credentials, no one's configuration and no proxy."""
    for name in (
        *("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    ):
        monkeypatch.delenv(name, raising=False)
    variables = VERSITY | {
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        # Other programs with obstore need them; ours must not heed them.
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_S3_EXPRESS": "true",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["memory", "folder", "ministack", "versitygw"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, aws_variables: None
) -> Place:
    kind: str = request.param
    if kind == "memory":
        return Place("memory", MemoryStores(), Location("mem", "bucket", ""))
    if kind == "folder":
        scratch = tmp_path_factory.mktemp(kind)
        return Place(
            "folder",
            OpenedStores(StoreConfig(Location("file", "", f"{scratch}/work/"))),
            Location("file", "", f"{scratch}/out/"),
            keeps_metadata=False,
        )
    url: str = request.getfixturevalue(kind)
    return s3_place(kind, session_of(url))


@cache
def session_of(url: str) -> session.Session:
    """Return the session of one server: making clients takes longer than most tests."""
    return session.Session(aws_session.AwsSession(StoreConfig(endpoint_url=url)))
