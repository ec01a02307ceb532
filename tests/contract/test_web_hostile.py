"""Web servers that are hostile, slow or badly set up: what an HTTP source takes of them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from s3unzip.errors import S3UnzipError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.web import WebSource
from s3unzip.zip import ByteRange
from tests.contract.places import untrusted_context
from tests.support.servers import HttpServer, Reply, WebFiles, raw_server

DATA = bytes(range(256)) * 100
ASKED = 64 * 1024
FAST = StoreConfig(connect_seconds=2.0, stall_seconds=0.4)
HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-65535/4000000000\r\n"


@contextmanager
def _serving(answer: Callable[[socket.socket], None]) -> Iterator[Location]:
    with raw_server(answer) as host:
        yield Location("http", host, "a.zip?token=SECRET")


def _read(where: Location, config: StoreConfig = FAST) -> bytes:
    return b"".join(WebSource(config).pinned(where, Pin(4_000_000_000)).stream(ByteRange(0, ASKED)))


@pytest.mark.parametrize("way", ["length", "chunks", "close"])
def test_no_more_of_a_body_is_read_than_was_asked_for(way: str) -> None:
    """The client reads the requested 64 KiB of an endless body, with any framing."""
    sent = []
    heads = {
        "length": b"Content-Length: 4000000000\r\n\r\n",
        "chunks": b"Transfer-Encoding: chunked\r\n\r\nEE6B2800\r\n",
        "close": b"Connection: close\r\n\r\n",
    }

    def endless(one: socket.socket) -> None:
        one.sendall(HEAD + heads[way])
        with suppress(OSError):
            while True:
                sent.append(one.send(bytes(65536)))

    with _serving(endless) as where:
        assert _read(where) == bytes(ASKED)
    assert sum(sent) < 64 * 1024**2  # what the system's buffers took


def test_a_slow_but_steady_server_is_read() -> None:
    """More than the stall limit in all, yet never as long without a byte."""

    def answer(one: socket.socket) -> None:
        one.sendall(HEAD + b"Content-Length: 65536\r\n\r\n")
        for _ in range(4):
            time.sleep(0.6)
            one.sendall(bytes(16_384))

    with _serving(answer) as where:
        assert _read(where, StoreConfig(connect_seconds=2.0, stall_seconds=2.0)) == bytes(ASKED)


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
    with _serving(lambda one: one.sendall(partial)) as where:
        for ask in (
            lambda: b"".join(WebSource(FAST).pinned(where, Pin(10)).stream(ByteRange(0, 10))),
            lambda: WebSource(FAST).tail(where, 10),
        ):
            with suppress(S3UnzipError):
                ask()
    with _serving(lambda one: one.sendall(whole)) as where, pytest.raises(S3UnzipError):
        WebSource(FAST).head(where)


@pytest.mark.parametrize("allowed", [False, True])
def test_redirects_to_other_hosts(*, allowed: bool) -> None:
    """They are followed where that is allowed; the user's credentials stay at home.

    The message names the other host and the option, no secret; the host gets no request.
    """
    with HttpServer(WebFiles({"a.zip": DATA})) as other:
        answer = Reply(302, headers={"Location": f"{other.url}/a.zip?token=OTHER"})
        with HttpServer(lambda asked: answer) as server:
            host = server.url.removeprefix("http://")
            where = Location("http", f"me:pass%20word@{host}", "a.zip?token=SECRET")
            source = WebSource(StoreConfig(other_hosts=allowed))
            if allowed:
                assert source.tail(where, 10).data == DATA[-10:]
            else:
                with pytest.raises(StorageError, match="redirects to another host") as caught:
                    source.tail(where, 10)
                assert "--allow other-hosts" in str(caught.value)
                for secret in ("SECRET", "OTHER", "pass"):
                    assert secret not in str(caught.value)
    assert server.asked[0].headers["authorization"] == "Basic bWU6cGFzcyB3b3Jk"
    assert [one.path for one in other.asked] == ["/a.zip?token=OTHER"] * allowed
    for one in other.asked:
        assert "authorization" not in one.headers
        assert one.headers["range"] == "bytes=-10"


@pytest.mark.parametrize(
    "target", ["ftp://x/a", "http://[::1", "https://x:99999999/", "file:///etc/passwd"]
)
def test_redirects_to_nonsense(target: str) -> None:
    """A target that is no URL of HTTP is refused, and not repeated."""
    with HttpServer(lambda asked: Reply(302, headers={"Location": target})) as server:
        where = Location("http", server.url.removeprefix("http://"), "a.zip")
        with pytest.raises(StorageError, match="redirects to"):
            WebSource(FAST).tail(where, 10)


def test_an_unknown_host_is_named() -> None:
    """One line with the host and what to do; it is not tried again."""
    where = Location("http", "no-such-host.invalid", "a.zip")
    with pytest.raises(StorageError, match=r"no host named no-such-host\.invalid; check the URL"):
        WebSource(FAST).tail(where, 10)


def test_an_untrusted_certificate_is_named(tmp_path: Path) -> None:
    """The cause in plain words, and where to name a certificate to trust."""
    with (
        raw_server(lambda _: None, untrusted_context(tmp_path)) as host,
        pytest.raises(StorageError, match=r"not trusted: self-signed certificate.*SSL_CERT_FILE"),
    ):
        _read(Location("https", host, "a.zip"))
