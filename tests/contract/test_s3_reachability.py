"""Endpoints that cannot be reached: a program that has just begun says so at once."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from s3unzip.cli.arguments import check_endpoint
from s3unzip.errors import S3UnzipError, ServiceFaultError, StorageError, UsageError
from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import ObjectFacts
from s3unzip.stores.s3.session import Session
from tests.contract.places import stores_at, untrusted_context
from tests.support.servers import HOST, HttpServer, Reply, nobody, raw_server, s3_error

WHERE = Location("s3", "bucket", "a.zip")
NO_URLS = ["127.0.0.1:9000", "localhost:9000", "ftp://x", "http:/x", "http://", "http://h:99999"]
NO_URLS += ["http://[::1", "http://a b", "http://a\n", ""]


def ask(url: str, *, by: str, beginning: bool = True) -> S3UnzipError:
    """Ask an endpoint for something; return what it ends with."""
    stores = stores_at(url, check_reachable=beginning)
    source, destination = stores.source(WHERE), stores.destination(WHERE)
    calls: dict[str, Callable[[], object]] = {
        "obstore": lambda: source.tail(WHERE, 10),
        "boto3": lambda: destination.create_upload("key", ObjectFacts("a/b", {})),
    }
    with pytest.raises(S3UnzipError) as caught:
        calls[by]()
    return caught.value


@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_a_wrong_endpoint_is_told_at_once(by: str) -> None:
    """Host, cause and advice in one error that is not tried again."""
    with nobody() as url:
        refused = ask(url, by=by)
    assert type(refused) is StorageError
    assert f"cannot reach {url}: connection refused; check --endp" in str(refused)
    unknown = ask("http://s3.eu-wset-1.invalid", by=by)
    assert type(unknown) is StorageError
    assert "s3.eu-wset-1.invalid: there is no host of this name; check --endp" in str(unknown)


@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_later_it_is_a_fault_that_may_pass(by: str) -> None:
    """A worker of an active run retries; the message has the cause."""
    with nobody() as url:
        found = ask(url, by=by, beginning=False)
    assert isinstance(found, ServiceFaultError)
    if by == "obstore":
        assert "Connection refused" in str(found)


def test_a_server_that_answers_is_reachable() -> None:
    """A broken answer at the beginning is a fault that may pass."""
    with HttpServer(lambda asked: Reply(200, b"x", cut=0)) as server:
        assert "cannot reach" not in str(ask(server.url, by="obstore"))
        Session(StoreConfig(endpoint_url=server.url)).check_bucket("bucket")


def test_an_endpoint_that_says_nothing() -> None:
    """It has as long as a connection may take: here a TLS handshake that is not answered."""
    with socket.create_server((HOST, 0)) as silent:
        refused = ask(f"https://{HOST}:{silent.getsockname()[1]}", by="obstore")
    assert type(refused) is StorageError
    assert ": no answer; check --endp" in str(refused)


@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_a_proxy_is_not_passed_by(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Only the proxy may know the endpoint; an error names both, and no user of the proxy."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with nobody() as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//me:SECRET@"))
        found = ask("http://no-such-host.invalid", by=by)
    assert isinstance(found, ServiceFaultError)
    where = f"http://no-such-host.invalid through the proxy {proxy}"
    assert str(found).endswith(f"; no answer from {where}")
    assert found.trouble.startswith(f"no answer from {where} (")
    assert "SECRET" not in f"{found}{found.trouble}"


def test_a_store_that_answers_with_errors_is_named() -> None:
    """The line that tells the user has the host, and does not say that it did not answer."""
    with HttpServer(lambda asked: s3_error(503, "SlowDown")) as server:
        found = ask(server.url, by="obstore")
    assert isinstance(found, ServiceFaultError)
    assert found.trouble == f"{server.url} answers with errors (SlowDown)"


@pytest.mark.parametrize("beginning", [True, False])
@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_an_untrusted_certificate_is_named(tmp_path: Path, by: str, *, beginning: bool) -> None:
    """It will not be trusted later either: cause and advice, not tried again."""
    with raw_server(lambda _: None, untrusted_context(tmp_path)) as host:
        found = ask(f"https://{host}", by=by, beginning=beginning)
    assert type(found) is StorageError
    assert "ertificate" in str(found)
    assert "AWS_CA_BUNDLE" in str(found)


@pytest.mark.parametrize("url", NO_URLS)
def test_endpoints_that_are_no_urls(url: str) -> None:
    """They are refused before any request."""
    with pytest.raises(UsageError, match="not a URL that begins with http"):
        check_endpoint(url)


def test_the_advice_for_an_endpoint_without_a_scheme() -> None:
    """Most people mean HTTP on a port: the message shows the probable URL."""
    with pytest.raises(UsageError, match=r"like http://127\.0\.0\.1:9000$"):
        check_endpoint("127.0.0.1:9000")
    for url in ("http://127.0.0.1:9000", "https://[::1]:9000/path"):
        check_endpoint(url)
