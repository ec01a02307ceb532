"""Archives on the web: servers that know all of HTTP, and servers that do not."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from s3unzip.errors import (
    LinkRefusedError,
    NotFoundError,
    RangesUnsupportedError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    ThrottledError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.web import WebSource
from s3unzip.zip import ByteRange
from tests.support.patience import HANG_SECONDS
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, nobody

DATA = bytes(range(256)) * 10_000
QUERY = "token=SECRET"


@contextmanager
def _serving(
    answer: Callable[[Asked], Reply], stall_seconds: float = HANG_SECONDS
) -> Iterator[tuple[Location, HttpServer, WebSource]]:
    with HttpServer(answer) as server:
        host = server.url.removeprefix("http://")
        source = WebSource(StoreConfig(connect_seconds=5.0, stall_seconds=stall_seconds))
        yield Location("http", host, f"a.zip?{QUERY}"), server, source


def _files(**knows: bool) -> WebFiles:
    return WebFiles({"a.zip": DATA}, **knows)


def test_ranges_carry_the_pin() -> None:
    """The end, the size and the ETag come in one response; every range is exact and conditional."""
    with _serving(_files()) as (where, server, source):
        tail = source.tail(where, 1_000)
        assert tail.data == DATA[-1_000:]
        assert source.tail(where, 10**9).data == DATA
        assert tail.pin == source.head(where)
        assert len(server.asked) == 3
        archive = source.pinned(where, tail.pin)
        assert b"".join(archive.stream(ByteRange(5, 1_000_000))) == DATA[5:1_000_000]
        assert b"".join(archive.stream(ByteRange(0, len(DATA)))) == DATA
        assert b"".join(archive.stream(ByteRange(7, 7))) == b""
        assert all("if-match" in asked.headers for asked in server.asked[3:])


@pytest.mark.parametrize("data", [DATA, b""])
@pytest.mark.parametrize(
    "knows", [{}, {"suffixes": False}, {"weak": True}, {"etags": False}, {"conditions": False}]
)
def test_servers_that_know_less(knows: dict[str, bool], data: bytes) -> None:
    """Without suffix ranges, strong ETags or conditions an archive can be read all the same.

    Each request is a GET: the signature of a presigned URL is for one method.
    """
    with _serving(WebFiles({"a.zip": data}, **knows)) as (where, server, source):
        tail = source.tail(where, 1_000)
        assert (tail.data, tail.pin.size) == (data[-1_000:], len(data))
        archive = source.pinned(where, tail.pin)
        assert b"".join(archive.stream(ByteRange(0, len(data)))) == data
        assert {asked.method for asked in server.asked} == {"GET"}
        # Servers compare fractions of a second that no header has, so dates are compared here.
        assert not any("if-unmodified-since" in asked.headers for asked in server.asked)


def test_a_server_without_ranges() -> None:
    """The message says what to do; to answer with another range is as good as with none."""
    with (
        _serving(_files(ranges=False)) as (where, _, source),
        pytest.raises(RangesUnsupportedError, match="download the archive"),
    ):
        source.tail(where, 1_000)
    wrong = Reply(206, DATA[:9], {"Content-Range": "bytes 1-9/10"})
    with (
        _serving(lambda _: wrong) as (where, _, source),
        pytest.raises(RangesUnsupportedError, match="got 1 to 10; download the archive"),
    ):
        b"".join(source.pinned(where, Pin(10)).stream(ByteRange(0, 10)))


@pytest.mark.parametrize("knows", [{}, {"conditions": False}, {"weak": True}, {"etags": False}])
def test_overwritten_between_two_reads(knows: dict[str, bool]) -> None:
    """Where the server does not compare, the answer's ETag and size are compared here."""
    web = _files(**knows)
    with _serving(web) as (where, _, source):
        archive = source.pinned(where, source.tail(where, 10).pin)
        web.files["a.zip"] = DATA + b"more"
        with pytest.raises(SourceChangedError):
            b"".join(archive.stream(ByteRange(0, 10)))
        web.files.clear()
        with pytest.raises(SourceChangedError):
            b"".join(archive.stream(ByteRange(0, 10)))


def test_redirects() -> None:
    """A link may lead elsewhere, the range goes along; a circle ends."""
    web = _files()

    def answer(asked: Asked) -> Reply:
        if asked.path.startswith("/link"):
            return Reply(302, headers={"Location": f"/a.zip?{QUERY}"})
        if asked.path.startswith("/circle"):
            return Reply(302, headers={"Location": "/circle"})
        return web(asked)

    with _serving(answer) as (where, _, source):
        link = Location("http", where.bucket, "link")
        archive = source.pinned(link, source.tail(link, 10).pin)
        assert b"".join(archive.stream(ByteRange(5, 10))) == DATA[5:10]
        with pytest.raises(StorageError, match="redirects"):
            source.head(Location("http", where.bucket, "circle"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(206, DATA[:10], {"Content-Range": "bytes 0-9/10"}, cut=4),
        Reply(206, DATA[:10], {"Content-Range": "bytes 0-9/10"}, cut=4, stall=1.0),
        Reply(206, DATA[:4], {"Content-Range": "bytes 0-9/10"}),
    ],
    ids=["cut", "stall", "short"],
)
def test_a_body_that_breaks(reply: Reply) -> None:
    """Half a body is a fault that can be retried."""
    with _serving(lambda asked: reply, 0.5) as (where, _, source), pytest.raises(ServiceFaultError):
        list(source.pinned(where, Pin(10)).stream(ByteRange(0, 10)))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, LinkRefusedError),
        (401, LinkRefusedError),
        (403, LinkRefusedError),
        (404, NotFoundError),
        (405, StorageError),
        (410, LinkRefusedError),
        (418, StorageError),
        (429, ThrottledError),
        (500, ServiceFaultError),
        (503, ThrottledError),
    ],
)
def test_every_status_has_one_meaning(status: int, kind: type[S3UnzipError]) -> None:
    """One attempt, one error, and no query in its message."""
    with _serving(lambda asked: Reply(status)) as (where, server, source):
        with pytest.raises(S3UnzipError) as caught:
            source.tail(where, 10)
        assert type(caught.value) is kind
        assert "a.zip" in str(caught.value)
        assert "SECRET" not in str(caught.value)
        assert len(server.asked) == 1


def test_a_silent_server_and_a_closed_port_can_be_retried() -> None:
    """Both can be retried, and neither message has the query."""
    over = threading.Event()

    def silent(asked: Asked) -> Reply:
        over.wait(HANG_SECONDS)
        return Reply(200)

    with _serving(silent, 0.5) as (where, _, source), nobody() as url:
        for location in (where, Location("http", url.removeprefix("http://"), f"a.zip?{QUERY}")):
            with pytest.raises(ServiceFaultError) as caught:
                source.tail(location, 10)
            assert "SECRET" not in str(caught.value)
        over.set()


def test_a_server_whose_etags_differ_from_answer_to_answer() -> None:
    """That is not a changed archive, and starting again would not help."""
    numbers = itertools.count()
    web = _files(conditions=False)

    def answer(asked: Asked) -> Reply:
        reply = web(asked)
        return replace(reply, headers={**reply.headers, "ETag": f'"{next(numbers)}"'})

    with _serving(answer) as (where, _, source):
        archive = source.pinned(where, source.tail(where, 10).pin)
        with pytest.raises(StorageError, match=r"differs from answer to answer.*curl -o") as caught:
            b"".join(archive.stream(ByteRange(0, 10)))
        assert not isinstance(caught.value, SourceChangedError)


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go through them, and an error names the proxy without its user."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    where = Location("http", "archives.example", "a.zip")
    with HttpServer(lambda asked: _files()(replace(asked, path="/a.zip"))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert WebSource(StoreConfig()).tail(where, 10).data == DATA[-10:]
        assert proxy.asked[0].path == "http://archives.example:80/a.zip"
    with nobody() as url:
        monkeypatch.setenv("https_proxy", url.replace("//", "//me:SECRET@"))
        with pytest.raises(
            ServiceFaultError, match=f"through the proxy {url}: .*refused"
        ) as caught:
            WebSource(StoreConfig()).tail(Location("https", "archives.example", "a.zip"), 10)
        assert "SECRET" not in str(caught.value)
        monkeypatch.setenv("no_proxy", "archives.example")
        with pytest.raises(S3UnzipError) as direct:
            WebSource(StoreConfig()).tail(Location("https", "archives.example", "a.zip"), 10)
        assert "proxy" not in str(direct.value)
