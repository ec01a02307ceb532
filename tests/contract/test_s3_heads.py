"""HEAD for many objects at once: what is answered, and what is left to a HEAD of its own."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from s3unzip.model import Location
from s3unzip.stores.ports import AsksMany, StoredObject
from s3unzip.stores.s3.access import S3Access
from s3unzip.stores.s3.stores import S3Stores
from tests.contract.test_s3_lean import HERE, RawServer, destination_of
from tests.servers import HOST, Asked, HttpServer, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS = [f"key {number}" for number in range(50)]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but a test name a proxy."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, keys: Sequence[str], at_once: int = 4) -> list[int | None]:
    """Return the size of each object, None where the batch cannot tell."""
    target = destination_of(url, stall_seconds=0.5)
    assert isinstance(target, AsksMany)
    return [None if one is None else one.size for one in target.heads(keys, at_once)]


def _number(asked: Asked) -> int:
    return int(asked.path.rpartition("%20")[2])


def test_each_answer_is_of_its_key() -> None:
    """Many objects over few connections: each gets its own answer, and no key is asked twice."""

    def answer(asked: Asked) -> Reply:
        number = _number(asked)
        headers = {"ETag": f'"{number}"', "x-amz-meta-zip-crc32": f"{number:08x}"}
        return Reply(200, bytes(number), headers)

    with HttpServer(answer) as server:
        target = destination_of(server.url)
        assert isinstance(target, AsksMany)
        found = target.heads(KEYS, 4)
        assert found == [StoredObject(key, n, n, str(n), None) for n, key in enumerate(KEYS)]
        assert target.heads(KEYS[:3], 4) == found[:3]
        assert len(server.asked) == 53
        assert all(asked.method == "HEAD" for asked in server.asked)


def test_what_is_not_there_is_left_to_a_head() -> None:
    """A 404 or a 403 is no answer of the batch; the others are asked all the same."""

    def answer(asked: Asked) -> Reply:
        number = _number(asked)
        return Reply({7: 404, 11: 403}.get(number, 200), bytes(number))

    with HttpServer(answer) as server:
        found = ask(server.url, KEYS)
    assert found == [None if number in {7, 11} else number for number in range(50)]


def test_a_throttled_store_is_not_asked_for_more() -> None:
    """After the first 503 the rest of the batch is left to calls that slow down."""
    with HttpServer(lambda _: Reply(503, b"")) as server:
        assert ask(server.url, KEYS) == [None] * 50
        assert len(server.asked) <= 4


def test_a_server_that_hangs_up_after_each_answer() -> None:
    """The next request goes out on a new connection."""
    last = HERE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server = RawServer(*[[last]] * 5)
    assert ask(server.url, KEYS[:5], 1) == [3] * 5
    server.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["nothing", "cut", "no HTTP", "no length"],
)
def test_an_answer_that_is_none_is_left_to_a_head(answer: bytes) -> None:
    """It is never taken for an object."""
    server = RawServer([answer])
    assert ask(server.url, KEYS[:1]) == [None]
    server.close()


def test_silence_ends_a_batch() -> None:
    """A server that accepts and says nothing is given up after the time for a stall."""
    with socket.create_server((HOST, 0)) as listener:
        assert ask(f"http://{HOST}:{listener.getsockname()[1]}", KEYS) == [None] * 50


def test_without_a_server_or_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection, a proxy or no credentials: `head` says what is wrong."""
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
    assert ask(url, KEYS[:2]) == [None, None]
    monkeypatch.setenv("http_proxy", url)
    monkeypatch.setenv("no_proxy", "")
    assert ask("http://s3.invalid:9000", KEYS[:2]) == [None, None]
    monkeypatch.delenv("http_proxy")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    access = S3Access(url, connect_seconds=2.0, stall_seconds=0.5)
    target = S3Stores(Location("s3", "work", ""), access=access).destination(
        Location("s3", "bucket", "")
    )
    assert isinstance(target, AsksMany)
    assert target.heads(KEYS[:2], 4) == [None, None]
