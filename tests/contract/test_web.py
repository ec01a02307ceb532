"""Archives on the web: servers that know all of HTTP, know less, or are hostile or slow."""

import itertools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    LinkRefusedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    ThrottledError,
    UnsupportedError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.web import WebSource
from tests.contract.conftest import read_range
from tests.support.servers import (
    HANG_SECONDS,
    Asked,
    HttpServer,
    Reply,
    WebFiles,
    make_tls,
    nobody,
    raw_server,
)

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


def test_every_range_is_exact() -> None:
    """The end, the size and the ETag come in one response; each range is one more request.

    None has If-Match, in which some servers refuse their own ETags.
    """
    with _serving(_files()) as (where, server, source):
        tail = source.tail(where, 1_000)
        assert (tail.data, source.tail(where, 10**9).data) == (DATA[-1_000:], DATA)
        assert tail.pin == source.stat(where).pin
        assert len(server.asked) == 3
        for start, stop in ((5, 1_000_000), (0, len(DATA)), (7, 7)):
            assert read_range(source, where, tail.pin, start, stop) == DATA[start:stop]
        assert not any("if-match" in asked.headers for asked in server.asked)


@pytest.mark.parametrize("data", [DATA, b""])
@pytest.mark.parametrize("knows", [{}, {"suffixes": False}, {"weak": True}, {"etags": False}])
def test_servers_that_know_less(knows: dict[str, bool], data: bytes) -> None:
    """Without suffix ranges or strong ETags an archive can be read all the same.

    Each request is a GET: the signature of a presigned URL is for one method.
    """
    with _serving(WebFiles({"a.zip": data}, **knows)) as (where, server, source):
        tail = source.tail(where, 1_000)
        assert (tail.data, tail.pin.size) == (data[-1_000:], len(data))
        assert read_range(source, where, tail.pin, 0, len(data)) == data
        assert {asked.method for asked in server.asked} == {"GET"}
        # Servers compare fractions of a second that no header has, so dates are compared here.
        assert not any("if-unmodified-since" in asked.headers for asked in server.asked)


@pytest.mark.parametrize("status", [400, 404, 405, 416, 500, 501])
def test_a_server_that_refuses_suffix_ranges(status: int) -> None:
    """Its answer says nothing about the archive: Nexus sends 404, and Fastly 501."""

    def answer(asked: Asked) -> Reply:
        return Reply(status) if asked.headers["range"].startswith("bytes=-") else _files()(asked)

    with _serving(answer) as (where, _, source):
        assert source.tail(where, 1_000).data == DATA[-1_000:]


@pytest.mark.parametrize(
    ("answer", "read", "words"),
    [
        (
            WebFiles({"a.zip": DATA}, ranges=False),
            lambda source, where: source.tail(where, 1_000),
            "download the archive",
        ),
        (
            lambda _: Reply(206, DATA[:9], {"Content-Range": "bytes 1-9/10"}),
            lambda source, where: read_range(source, where, Pin(10), 0, 10),
            "got 1 to 10; download the archive",
        ),
    ],
    ids=["none", "another"],
)
def test_a_server_without_ranges(
    answer: Callable[[Asked], Reply], read: Callable[[WebSource, Location], object], words: str
) -> None:
    """The message says what to do; to answer with another range is as good as with none."""
    with (
        _serving(answer) as (where, _, source),
        pytest.raises(UnsupportedError, match=words),
    ):
        read(source, where)


@pytest.mark.parametrize("knows", [{}, {"weak": True}, {"etags": False}])
def test_overwritten_between_two_reads(knows: dict[str, bool]) -> None:
    """The ETag and the size of each response are compared; an ETag may become a strong one."""
    web = _files(**knows)
    with _serving(web) as (where, _, source):
        pin = source.tail(where, 10).pin
        web.weak = False
        assert read_range(source, where, pin, 5, 10) == DATA[5:10]
        for files in ({"a.zip": DATA + b"more"}, {}):
            web.files = files
            with pytest.raises(SourceChangedError):
                read_range(source, where, pin, 0, 10)


def test_redirects() -> None:
    """A link may lead elsewhere, the range goes along; a circle ends.

    Servers write a path in UTF-8, which is no ASCII and yet no Latin-1.
    """
    web = WebFiles({"a.zip": DATA, "%C3%A4.zip": DATA})
    targets = {"/link": f"/a.zip?{QUERY}", "/utf8": "/\xc3\xa4.zip", "/circle": "/circle"}

    def answer(asked: Asked) -> Reply:
        if asked.path in targets:
            return Reply(302, headers={"Location": targets[asked.path]})
        return web(asked)

    with _serving(answer) as (where, _, source):
        for key in ("link", "utf8"):
            link = Location("http", where.bucket, key)
            assert read_range(source, link, source.tail(link, 10).pin, 5, 10) == DATA[5:10]
        with pytest.raises(StorageError, match="redirects"):
            source.stat(Location("http", where.bucket, "circle"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(206, DATA[:10], {"Content-Range": "bytes 0-9/10"}, cut=4),
        Reply(206, DATA[:10], {"Content-Range": "bytes 0-9/10"}, cut=4, stall=1.0),
        Reply(206, DATA[:4], {"Content-Range": "bytes 0-9/10"}),
        Reply(200, DATA[:10]),
    ],
    ids=["cut", "stall", "short", "all bytes"],
)
def test_a_body_that_breaks(reply: Reply) -> None:
    """Half a body, or a whole file where ranges came before, is a fault that can be retried."""
    with _serving(lambda _: reply, 0.5) as (where, _, source), pytest.raises(ServiceFaultError):
        read_range(source, where, Pin(10), 0, 10)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, LinkRefusedError),
        (401, LinkRefusedError),
        (403, LinkRefusedError),
        (404, NotFoundError),
        (405, StorageError),
        (407, AccessDeniedError),
        (410, LinkRefusedError),
        (418, StorageError),
        (429, ThrottledError),
        (500, ServiceFaultError),
        (503, ThrottledError),
    ],
)
def test_every_status_has_one_meaning(status: int, kind: type[S3UnzipError]) -> None:
    """One attempt, one error, and no query and no password in its message."""
    with (
        _serving(lambda _: Reply(status)) as (where, server, source),
        pytest.raises(S3UnzipError, match=r"a\.zip") as caught,
    ):
        source.stat(Location("http", f"me:SECRET@{where.bucket}", where.key))
    assert (type(caught.value), len(server.asked)) == (kind, 1)
    assert "SECRET" not in str(caught.value)
    assert ("refuses the user name or the password" in str(caught.value)) == (status == 401)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("7.5", 7.0), ("-7", 0.0), ("", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)],
)
def test_a_server_says_how_long_to_wait(status: int, header: str, seconds: float) -> None:
    """The next attempt waits for so many seconds; a date says nothing without its clock."""
    with (
        _serving(lambda _: Reply(status, headers={"Retry-After": header})) as (where, _, source),
        pytest.raises(ThrottledError) as caught,
    ):
        source.stat(where)
    assert caught.value.wait_seconds == seconds


def test_a_silent_server_and_a_closed_port_can_be_retried() -> None:
    """Both can be retried, and neither message has the query."""
    over = threading.Event()

    def silent(_: Asked) -> Reply:
        over.wait(HANG_SECONDS)
        return Reply(200)

    with _serving(silent, 0.5) as (where, _, source), nobody() as url:
        for location in (where, Location("http", url.removeprefix("http://"), f"a.zip?{QUERY}")):
            with pytest.raises(ServiceFaultError) as caught:
                source.tail(location, 10)
            assert "SECRET" not in str(caught.value)
        over.set()


def test_a_server_that_hangs_up_is_told_in_words() -> None:
    """The reason is a sentence of the client, without the names of its classes."""
    with raw_server(lambda _: None) as host, pytest.raises(ServiceFaultError) as caught:
        WebSource(StoreConfig()).tail(Location("http", host, "a.zip"), 10)
    assert caught.value.trouble.endswith("a.zip (remote end closed connection without response)")


def test_a_server_whose_etags_differ_from_answer_to_answer() -> None:
    """That is not a changed archive, and starting again would not help."""
    numbers = itertools.count()
    web = _files()

    def answer(asked: Asked) -> Reply:
        reply = web(asked)
        return replace(reply, headers={**reply.headers, "ETag": f'"{next(numbers)}"'})

    with (
        _serving(answer) as (where, _, source),
        pytest.raises(StorageError, match=r"differs from answer to answer.*curl -o") as caught,
    ):
        read_range(source, where, source.tail(where, 10).pin, 0, 10)
    assert not isinstance(caught.value, SourceChangedError)


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go through them, and an error names the proxy without its user."""
    where = Location("http", "archives.example", "a.zip")
    encrypted = Location("https", "archives.example", "@me/a.zip")
    with HttpServer(lambda asked: _files()(replace(asked, path="/a.zip"))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert WebSource(StoreConfig()).tail(where, 10).data == DATA[-10:]
        assert proxy.asked[0].path == "http://archives.example:80/a.zip"
    with nobody() as url:
        monkeypatch.setenv("https_proxy", url.replace("//", "//me:SECRET@"))
        with pytest.raises(
            ServiceFaultError, match=f"archives.example/@me/a.zip: .*the proxy {url}: .*refused"
        ) as caught:
            WebSource(StoreConfig()).tail(encrypted, 10)
        assert "SECRET" not in str(caught.value)
        monkeypatch.setenv("no_proxy", "archives.example")
        for direct in (encrypted, Location("https", "archives.example?of=", "a.zip")):
            with pytest.raises(S3UnzipError, match=r"\A(?!.*proxy)"):
                WebSource(StoreConfig()).tail(direct, 10)


ASKED = 64 * 1024
FAST = StoreConfig(connect_seconds=2.0, stall_seconds=0.4)
HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-65535/4000000000\r\n"


def _read(host: str, config: StoreConfig = FAST, scheme: str = "http") -> bytes:
    return read_range(
        WebSource(config), Location(scheme, host, f"a.zip?{QUERY}"), Pin(4_000_000_000), 0, ASKED
    )


FRAMINGS = {
    "length": b"Content-Length: 4000000000\r\n\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\nEE6B2800\r\n",
    "close": b"Connection: close\r\n\r\n",
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_no_more_of_a_body_is_read_than_was_asked_for(framing: str) -> None:
    """The client reads the requested 64 KiB of an endless body, with any framing."""
    sent = []

    def endless(one: socket.socket) -> None:
        one.sendall(HEAD + FRAMINGS[framing])
        with suppress(OSError):
            while True:
                sent.append(one.send(bytes(65536)))

    with raw_server(endless) as host:
        assert _read(host) == bytes(ASKED)
    assert sum(sent) < 64 * 1024**2  # what the system's buffers took


def test_a_slow_but_steady_server_is_read() -> None:
    """More than the stall limit in all, yet never as long without a byte."""

    def answer(one: socket.socket) -> None:
        one.sendall(HEAD + b"Content-Length: 65536\r\n\r\n")
        for _ in range(8):
            time.sleep(0.6)
            one.sendall(bytes(8_192))

    with raw_server(answer) as host:
        assert _read(host, StoreConfig(connect_seconds=4.0, stall_seconds=4.0)) == bytes(ASKED)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": f"bytes 0-9/{'9' * 5000}"},
        {"Content-Range": f"bytes {'9' * 5000}-9/10"},
        {"Content-Range": "bytes 0-9/²"},
        {"Content-Range": "bytes 0-٣/10"},
        {"Content-Length": "9" * 5000},
        {"Content-Length": "²"},
        {"Content-Length": "-1"},
        {"ETag": '"' + "x" * 5000 + '"'},
    ],
    ids=str,
)
def test_numbers_are_parsed_with_bounds(headers: dict[str, str]) -> None:
    """Digits of other scripts and numbers without end are refused in one short line.

    A whole file of no byte is told by its length, which is compared as a text.
    """
    lines = {"Content-Range": "bytes 0-9/10", "Content-Length": "10", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    partial = f"HTTP/1.1 206 OK\r\n{head}\r\n".encode() + bytes(10)
    whole = f"HTTP/1.1 200 OK\r\n{head}\r\n".encode()
    source = WebSource(FAST)
    with raw_server(lambda one: one.sendall(partial)) as host:
        where = Location("http", host, "a.zip")
        for ask in (
            lambda: read_range(source, where, Pin(10), 0, 10),
            lambda: source.tail(where, 10),
        ):
            with suppress(S3UnzipError):
                ask()
    with (
        raw_server(lambda one: one.sendall(whole)) as host,
        pytest.raises(S3UnzipError, match=r"\A.{,300}\Z"),
    ):
        source.stat(Location("http", host, "a.zip"))


@pytest.mark.parametrize("allowed", [False, True])
def test_redirects_to_other_hosts(*, allowed: bool) -> None:
    """They are followed where that is allowed; the user's credentials stay at home.

    The message names the other host and the option, no secret; the host gets no request.
    """
    with (
        HttpServer(WebFiles({"a.zip": DATA})) as other,
        HttpServer(
            lambda _: Reply(302, headers={"Location": f"{other.url}/a.zip?token=OTHER"})
        ) as server,
    ):
        host = server.url.removeprefix("http://")
        where = Location("http", f"me:p\xe4ss%20\u20ac@{host}", f"a.zip?{QUERY}")
        source = WebSource(StoreConfig(other_hosts=allowed))
        if allowed:
            assert source.tail(where, 10).data == DATA[-10:]
        else:
            with pytest.raises(
                StorageError, match=r"redirects to another host.*--allow other-hosts"
            ) as caught:
                source.tail(where, 10)
            assert not re.search("SECRET|OTHER|pass", str(caught.value))
    assert server.asked[0].headers["authorization"] == "Basic bWU6cMOkc3Mg4oKs"
    assert [
        (asked.path, asked.headers["range"], "authorization" in asked.headers)
        for asked in other.asked
    ] == [("/a.zip?token=OTHER", "bytes=-10", False)] * allowed


@pytest.mark.parametrize(
    "target", ["ftp://x/a", "http://[::1", "https://x:99999999/", "file:///etc/passwd"]
)
def test_redirects_to_nonsense(target: str) -> None:
    """A target that is no URL of HTTP is refused, and not repeated."""
    with (
        HttpServer(lambda asked: Reply(302, headers={"Location": target})) as server,
        pytest.raises(StorageError, match="redirects to"),
    ):
        WebSource(FAST).tail(Location("http", server.url.removeprefix("http://"), "a.zip"), 10)


def test_no_redirect_leaves_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query of a presigned URL is never sent in the clear, whatever hosts are allowed."""
    tls = make_tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/a.zip\r\nContent-Length: 0\r\n\r\n"
    with (
        raw_server(lambda one: one.sendall(moved), tls) as host,
        pytest.raises(StorageError, match="redirects from https to http; not followed"),
    ):
        WebSource(StoreConfig(other_hosts=True)).stat(Location("https", host, "a.zip"))
