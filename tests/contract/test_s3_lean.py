"""The client of HEAD and LIST: its signatures, its connections, and answers that are none."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location
from s3unzip.stores.ports import ListedObject
from s3unzip.stores.s3.access import S3Access
from s3unzip.stores.s3.lean.signing import UNSIGNED, Signer, Target, encode_path, encode_query
from s3unzip.stores.s3.stores import S3Stores
from tests.servers import HOST, Asked, HttpServer, Reply

if TYPE_CHECKING:
    from s3unzip.stores.ports import Destination, StoredObject

WHERE = Location("s3", "bucket", "")
KEYS = ["plain", "a b+c%20~'(*)", "ünï/文/😀", "//x/./../y/", "\x01\n", "=&?#;:@$,"]
ENTRY = "<Contents><Key>{0}</Key><Size>{1}</Size><ETag>&quot;{2}&quot;</ETag></Contents>"


def destination_of(url: str, stall_seconds: float = 5.0) -> Destination:
    """Return the bucket behind `url`."""
    access = S3Access(url, connect_seconds=2.0, stall_seconds=stall_seconds)
    return S3Stores(Location("s3", "work", ""), access=access).destination(WHERE)


def listing(url: str) -> list[ListedObject]:
    """Return all that is listed."""
    return list(destination_of(url).list_objects("", "", "\U0010ffff"))


def page(*entries: str, token: str = "", encoding: str = "url") -> Reply:
    """Return one answer of LIST; `token` leads to the next."""
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    body = (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<EncodingType>{encoding}</EncodingType><IsTruncated>{str(bool(token)).lower()}"
        f"</IsTruncated>{more}{''.join(entries)}</ListBucketResult>"
    )
    return Reply(200, body.encode())


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("token", [None, "session/token=="])
def test_the_signature_is_botocores(key: str, token: str | None) -> None:
    """The signature equals botocore's for every key, query and credentials."""
    known = ReadOnlyCredentials("AKID", "secret", token)
    path, query = encode_path(f"/bucket/{key}"), encode_query({"prefix": key, "list-type": "2"})
    target = Target("GET", "host:7070", path, query)
    ours = Signer(lambda: known, "eu-west-1").sign(target, {"x-amz-checksum-mode": "ENABLED"})
    request = AWSRequest("GET", f"http://host:7070{path}?{query}")
    request.headers["x-amz-checksum-mode"] = "ENABLED"
    request.headers["x-amz-content-sha256"] = UNSIGNED
    request.context["timestamp"] = ours["x-amz-date"]
    auth = S3SigV4Auth(Credentials("AKID", "secret", token), "s3", "eu-west-1")
    if token is not None:
        request.headers["x-amz-security-token"] = token
    request.headers["x-amz-date"] = ours["x-amz-date"]
    text = auth.string_to_sign(request, auth.canonical_request(request))
    assert ours["authorization"].endswith("Signature=" + auth.signature(text, request))


def test_pages_and_encoded_keys() -> None:
    """A listing continues over pages; keys may be percent-encoded or plain."""

    def answer(asked: Asked) -> Reply:
        if "continuation-token=a%20token" in asked.path:
            return page(ENTRY.format("c%20d", 7, "f"), encoding="none")
        return page(ENTRY.format("a%2Bb+c", 5, "e-2"), token="a token")

    with HttpServer(answer) as server:
        found = listing(server.url)
    assert found == [ListedObject("a+b c", 5, "e-2"), ListedObject("c%20d", 7, "f")]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<ListBucketResult><Contents>"),
        Reply(200, b""),
        Reply(200, b"<a/>", cut=2),
        Reply(200, b"<a>" + b" " * (16 * 1024**2) + b"</a>"),
        page("<Contents><Key>a</Key></Contents>"),
        page("<Contents><Key>a</Key><Size>many</Size></Contents>"),
        Reply(200, b"<r><IsTruncated>true</IsTruncated></r>"),
    ],
    ids=["cut XML", "empty", "cut body", "too long", "no size", "no number", "no next page"],
)
def test_a_listing_that_is_none_is_a_fault(reply: Reply) -> None:
    """An invalid listing is a fault, not an empty listing; a retry may help."""
    with HttpServer(lambda _: reply) as server, pytest.raises(ServiceFaultError) as caught:
        listing(server.url)
    assert str(caught.value).startswith("s3:ListBucket s3://bucket/")


@pytest.mark.parametrize("size", [b"-1", b"-a", b"-99999999999999999999", b"9" * 5_000])
def test_a_listing_with_a_chunk_of_an_impossible_size_is_a_fault(size: bytes) -> None:
    """No more than a page is read of it, and no other error leaves the adapter."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = RawServer([head + size + b"\r\n<a/>\r\n0\r\n\r\n"])
    with pytest.raises(ServiceFaultError):
        listing(server.url)
    server.close()


class RawServer:
    """Answers each request on a connection with the next of some bytes, then hangs up."""

    def __init__(self, *connections: list[bytes]) -> None:
        self._connections = connections
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.asked = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for answers in self._connections:
            opened, _ = self._listener.accept()
            with opened:
                for answer in answers:
                    received = b""
                    while b"\r\n\r\n" not in received:
                        received += opened.recv(65536)
                    self.asked += 1
                    opened.sendall(answer)

    def close(self) -> None:
        """Stop."""
        self._thread.join(10)
        self._listener.close()


HERE = b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "e"\r\n\r\n'


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but a test name a proxy."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    """A kept connection may be gone when it is used again: the request goes out on another."""
    server = RawServer([HERE, HERE], [HERE])
    target = destination_of(server.url)
    assert [target.head("a") for _ in range(3)] == [target_of(3)] * 3
    server.close()
    assert server.asked == 3


def target_of(size: int) -> tuple[str, int, None, str, None]:
    """Return what HEAD says of an object of nobody's."""
    return ("a", size, None, "e", None)


def test_a_head_in_pieces() -> None:
    """An answer is read to its blank line, however it is cut."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            opened, _ = listener.accept()
            with opened:
                opened.recv(65536)
                for at in range(0, len(HERE), 7):
                    opened.sendall(HERE[at : at + 7])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        assert destination_of(url).head("a") == target_of(3)
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
    ids=[
        "nothing",
        "cut",
        "no HTTP",
        "no status",
        "no length",
        "odd length",
        "long length",
        "too long",
    ],
)
def test_a_head_that_is_none_is_a_fault(answer: bytes) -> None:
    """It is never taken for an object, nor for none."""
    server = RawServer([answer])
    with pytest.raises(ServiceFaultError):
        destination_of(server.url).head("a")
    server.close()


def test_silence_ends_a_head() -> None:
    """A server that accepts and says nothing is given up after the time for a stall."""
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        with pytest.raises(ServiceFaultError, match=r"no byte came within 0\.2 s"):
            destination_of(url, stall_seconds=0.2).head("a")


def head_of(reply: Reply) -> tuple[StoredObject | None, Asked]:
    """Return what a HEAD answered with `reply` says, and how it was asked."""
    with HttpServer(lambda _: reply) as server:
        return destination_of(server.url).head("a"), server.asked[0]


def test_the_stores_own_checksum() -> None:
    """The CRC-32 of a whole object is used; that of parts is a checksum of checksums."""
    for text, expected in (("y/Q5Jg==", 0xCBF43926), ("y/Q5Jg==-3", None), ("???", None)):
        reply = Reply(200, bytes(9), {"x-amz-checksum-crc32": text})
        found, asked = head_of(reply)
        assert found is not None
        assert found.checksum == expected
        assert asked.headers["x-amz-checksum-mode"] == "ENABLED"


def test_behind_a_proxy_boto3_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment names a proxy, it carries HEAD and LIST as everything else."""

    def answer(asked: Asked) -> Reply:
        if asked.method == "HEAD":
            return Reply(200, bytes(3), {"ETag": '"e"', "x-amz-meta-zip-crc32": "0000000a"})
        return page(ENTRY.format("a", 3, "e"))

    with HttpServer(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        target = destination_of("http://s3.invalid:9000")
        assert target.head("a") == ("a", 3, 10, "e", None)
        assert list(target.list_objects("", "", "z")) == [ListedObject("a", 3, "e")]
    assert all(asked.path.startswith("http://s3.invalid:9000/") for asked in proxy.asked)
    assert "no_proxy" in os.environ
