"""What the contract suite runs over: servers, started once a session, and places on them.

A place is empty for each test. It is what the implementations of a port have in common.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from s3unzip.errors import S3UnzipError
from s3unzip.model import Location, Pin
from s3unzip.stores import Stores, archives, listing, run_store
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Buffer, Destination, ObjectFacts, StoredObject, Upload
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.session import Session
from s3unzip.zip import ByteRange
from tests.support.memory import MemoryStores
from tests.support.servers import (
    HANG_SECONDS,
    VERSITY,
    Asked,
    HttpServer,
    Reply,
    find_versitygw,
    make_embedded_aws,
    run_versitygw,
    set_variables,
)

FACTS = ObjectFacts("application/json", {"zip-crc32": "0000000a", "mtime": "1700000000"})


@dataclass(frozen=True, slots=True)
class Place:
    """One store under test, empty; `prefix` begins every key in it."""

    stores: Stores
    root: Location
    keeps_metadata: bool = True  # a folder computes the CRC instead
    session: Session | None = None  # of S3

    @property
    def destination(self) -> Destination:
        return self.stores.destination(self.root)

    @property
    def source(self) -> archives.Source:
        return self.stores.source(self.root)

    @property
    def work(self) -> run_store.RunStore:
        return self.stores.run_store("run-1")

    def at(self, key: str) -> Location:
        return Location(self.root.scheme, self.root.bucket, self.key(key))

    def key(self, key: str) -> str:
        return self.root.key + key

    def fill(self, key: str, data: Buffer, facts: ObjectFacts = FACTS) -> Location:
        self.destination.put(self.key(key), data, facts, if_absent=False)
        return self.at(key)

    def fill_pinned(self, key: str, data: Buffer) -> tuple[Location, Pin]:
        where = self.fill(key, data)
        return where, self.source.stat(where).pin

    def begin(self, key: str, facts: ObjectFacts = FACTS) -> Upload:
        return Upload(self.key(key), self.destination.create_upload(self.key(key), facts))


def read_range(source: archives.Source, where: Location, pin: Pin, start: int, stop: int) -> bytes:
    """Return a range of a pinned archive."""
    return b"".join(source.stream(where, pin, ByteRange(start, stop)))


def stores_at(url: str, **settings: Any) -> Stores:
    """Return stores on a scripted S3; they wait for a server on a busy machine."""
    patience = dict.fromkeys(("stall_seconds", "put_seconds", "slow_seconds"), HANG_SECONDS)
    given = {"endpoint_url": url, "connect_seconds": 5.0, **patience, **settings}
    return OpenedStores(StoreConfig(Location("s3", "work", ""), **given))


@contextmanager
def scripted(
    answer: Callable[[Asked], Reply], **settings: Any
) -> Iterator[tuple[Stores, list[Asked]]]:
    """Run a scripted S3; yield stores on it, and the requests that it gets."""
    with HttpServer(answer) as server:
        yield stores_at(server.url, **settings), server.asked


def refuse(
    call: Callable[[Stores], object],
    answer: Callable[[Asked], Reply],
    kind: type[S3UnzipError] | tuple[type[S3UnzipError], ...],
    words: str | None = None,
    sent: list[str] | None = None,
    **settings: Any,
) -> list[Asked]:
    """Make a call to a scripted S3, which must end with such an error; return the requests.

    If `sent` is given, the requests must have exactly these methods.
    """
    with scripted(answer, **settings) as (stores, asked), pytest.raises(kind, match=words):
        call(stores)
    assert sent is None or [request.method for request in asked] == sent
    return asked


def list_all(
    destination: Destination, prefix: str, first: str = "", last: str = listing.BEYOND
) -> list[StoredObject]:
    """Return what a destination lists, in the order of its pages."""
    pages = listing.list_pages(destination, prefix, lambda call: call(), first, last)
    return [listed for page in pages for listed in page.objects]


_numbers = itertools.count(1)


def _s3_place(session: Session) -> Place:
    bucket = f"bucket-{next(_numbers)}"
    stores = OpenedStores(StoreConfig(Location("s3", bucket, "work/")), session)
    session.client("control").create_bucket(Bucket=bucket)
    return Place(stores, Location("s3", bucket, "out/"), session=session)


@pytest.fixture(scope="session")
def ministack() -> Iterator[str]:
    with make_embedded_aws() as aws:
        yield aws.endpoint


@pytest.fixture(scope="session")
def versitygw() -> Iterator[str]:
    if find_versitygw() is None:
        pytest.skip("VersityGW is not installed: go install github.com/versity/versitygw/...")
    with run_versitygw() as (url, _):
        yield url


@pytest.fixture(autouse=True)
def aws_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test the local servers' credentials and no proxy."""
    for name in (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    ):
        monkeypatch.delenv(name, raising=False)
    variables = VERSITY | {
        "AWS_DEFAULT_REGION": "us-east-1",
        # Other programs with obstore need them; ours must not heed them.
        "AWS_CONDITIONAL_PUT": "disabled",
        "AWS_S3_EXPRESS": "true",
    }
    set_variables(monkeypatch, variables)


@pytest.fixture(params=["memory", "folder", "ministack", "versitygw"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, aws_variables: None
) -> Place:
    kind: str = request.param
    if kind == "memory":
        return Place(MemoryStores(), Location("mem", "bucket", ""))
    if kind == "folder":
        scratch = tmp_path_factory.mktemp(kind)
        return Place(
            OpenedStores(StoreConfig(Location("file", "", f"{scratch}/work/"))),
            Location("file", "", f"{scratch}/out/"),
            keeps_metadata=False,
        )
    url: str = request.getfixturevalue(kind)
    return _s3_place(_session_of(url))


@cache
def _session_of(url: str) -> Session:
    """Return the session of one server: making clients takes longer than most tests."""
    return Session(AwsSession(StoreConfig(endpoint_url=url)))
