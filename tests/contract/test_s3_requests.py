"""What requests of S3 say: signature, payer, properties; and what answers to HEAD mean."""

import socket
import time
from collections.abc import Callable
from urllib.parse import parse_qsl
from zlib import crc32

import pytest
from msgspec.structs import replace

from s3unzip.errors import (
    AccessDeniedError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores import Stores
from s3unzip.stores.ports import CopiesParts, ObjectFacts, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.contract.places import FACTS, stores_at
from tests.support.patience import HANG_SECONDS
from tests.support.servers import Asked, HttpServer, Reply, raw_server

PIN = Pin(9, '"e"')
WHOLE = ByteRange(0, 9)
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
TOLD = {"ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", "x-amz-version-id": "v1"}
OWNED = {"mtime": "1", "owner": "me"}
PROPERTIES = ObjectFacts(
    "text/csv",
    OWNED,
    "gzip",
    "max-age=60",
    "STANDARD_IA",
    {"team": "data + co", "Größe": "1/2", "empty": ""},
    "private",
)
KEYS = ["plain/key.txt", "odd//key.txt"]
SIZE = 16 * 1024**2  # of a body: much more than the system keeps of the connection


def answer(asked: Asked) -> Reply:
    """Answer as a bucket that is versioned and has one object of nine bytes."""
    if asked.method == "POST":
        return Reply(200, BEGUN)
    if asked.method == "GET":
        return Reply(206, b"123456789", TOLD | {"Content-Range": "bytes 0-8/9"})
    if "x-amz-copy-source" in asked.headers:
        return Reply(400)
    return Reply(200, b"123456789" if asked.method == "HEAD" else b"", TOLD)


def _at(key: str) -> Location:
    return Location("s3", "bucket", key)


READING: dict[str, Callable[[Stores], object]] = {
    "tail": lambda s3: s3.source(_at("a.zip")).tail(_at("a.zip"), 9),
    "head": lambda s3: s3.source(_at("a.zip")).head(_at("a.zip")),
    "range": lambda s3: list(s3.source(_at("a.zip")).pinned(_at("a.zip"), PIN).stream(WHOLE)),
    "odd key": lambda s3: list(s3.source(_at("a//b")).pinned(_at("a//b"), PIN).stream(WHOLE)),
}


@pytest.mark.parametrize("name", READING)
def test_no_client_signs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials nothing looks for them, and no request says who asks."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with HttpServer(answer) as server:
        READING[name](stores_at(server.url, unsigned=True))
    assert server.asked
    assert not [asked for asked in server.asked if "authorization" in asked.headers]


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("name", READING)
def test_every_client_says_who_pays(name: str, *, pays: bool) -> None:
    """The header is in each request, and it is signed; nobody pays unasked."""
    with HttpServer(answer) as server:
        READING[name](stores_at(server.url, request_payer=pays))
    assert server.asked
    for asked in server.asked:
        assert asked.headers.get("x-amz-request-payer") == ("requester" if pays else None)
        assert ("x-amz-request-payer" in asked.headers["authorization"]) is pays


@pytest.mark.parametrize("pays", [True, False])
def test_a_copy_says_who_pays_for_its_source(*, pays: bool) -> None:
    """Only UploadPartCopy has the header: it reads the archive with the writer's credentials."""
    with HttpServer(answer) as server:
        out = stores_at(server.url, request_payer=pays).destination(_at(""))
        assert isinstance(out, CopiesParts)
        upload = out.create_upload("k", ObjectFacts("a/b", {}))
        with pytest.raises(StorageError):
            out.copy_part(Upload("k", upload), 1, 0, _at("a.zip"), PIN, WHOLE)
    began, copied = server.asked
    assert "x-amz-request-payer" not in began.headers
    assert copied.headers.get("x-amz-request-payer") == ("requester" if pays else None)


@pytest.mark.parametrize(("unsigned", "version"), [(False, "v1"), (True, None)])
def test_an_anonymous_pin_is_the_etag(*, unsigned: bool, version: str | None) -> None:
    """Public buckets rarely allow s3:GetObjectVersion, so no version is asked for."""
    with HttpServer(answer) as server:
        source = stores_at(server.url, unsigned=unsigned).source(_at("a.zip"))
        pins = source.head(_at("a.zip")), source.tail(_at("a.zip"), 9).pin
    assert pins == (Pin(9, '"e"', version),) * 2


@pytest.mark.parametrize(
    "facts", [PROPERTIES, replace(PROPERTIES, acl=None), ObjectFacts("text/csv", OWNED)]
)
@pytest.mark.parametrize("name", ["put", "put of an odd key", "upload"])
def test_each_property_is_a_header(
    name: str, facts: ObjectFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All properties are sent and signed, whatever variables say; unasked the bucket's hold."""
    monkeypatch.setenv("AWS_DISABLE_TAGGING", "true")
    with HttpServer(answer) as server:
        out = stores_at(server.url).destination(_at(""))
        if name == "upload":
            out.create_upload("a.csv", facts)
        else:
            out.put("a.csv" if name == "put" else "a//b", b"1,2", facts, if_absent=False)
    (asked,) = server.asked
    headers = asked.headers
    assert headers["content-type"] == "text/csv"
    assert (headers["x-amz-meta-owner"], headers["x-amz-meta-mtime"]) == ("me", "1")
    assert headers.get("cache-control") == facts.cache_control
    assert headers.get("x-amz-storage-class") == facts.storage_class
    assert headers.get("x-amz-acl") == facts.acl
    tags = dict(parse_qsl(headers.get("x-amz-tagging", ""), keep_blank_values=True))
    assert tags == (facts.tags or {})
    if facts.tags:
        assert headers["content-encoding"] == "gzip"
        acl = ("x-amz-acl",) if facts.acl else ()
        for signed in (*acl, "x-amz-tagging", "x-amz-storage-class"):
            assert signed in headers["authorization"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("text", "crc"), [("cbf43926", 0xCBF43926), (None, None), ("no", None)])
def test_size_and_crc(key: str, text: str | None, crc: int | None) -> None:
    """One HEAD brings both, whichever client carries it; of another writer's there is no CRC."""
    told = TOLD if text is None else TOLD | {"x-amz-meta-zip-crc32": text}
    with HttpServer(lambda asked: Reply(200, bytes(11), told)) as server:
        found = stores_at(server.url).destination(_at("")).head(key)
    assert found == StoredObject(key, 11, crc, "e")
    quick = crc is not None or "//" in key  # else the store is asked for its own checksum
    assert [asked.method for asked in server.asked] == ["HEAD"] * (1 if quick else 2)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, None),
        (503, ThrottledError),
        (429, ThrottledError),
        (500, ServiceFaultError),
        (403, AccessDeniedError),
    ],
)
def test_a_head_is_judged_by_its_status(
    key: str, status: int, kind: type[S3UnzipError] | None
) -> None:
    """A HEAD has no code: the status is read by what it always means, after one attempt.

    Of a 403 a GET may say more.
    """
    with HttpServer(lambda asked: Reply(status)) as server:
        out = stores_at(server.url).destination(_at(""))
        if kind is None:
            assert out.head(key) is None
            return
        with pytest.raises(kind, match=rf"^s3:GetObject s3://bucket/{key}"):
            out.head(key)
    assert [asked.method for asked in server.asked] == ["HEAD"] + ["GET"] * (status == 403)


@pytest.mark.parametrize("call", ["part", "odd key"])
def test_a_body_may_wait_longer_than_a_connection(call: str) -> None:
    """A server that takes nothing for longer than a connection may take gets the whole body."""
    received: list[int] = []

    def take(one: socket.socket) -> None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        one.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(1.0)
        while sum(received) < SIZE and (piece := one.recv(SIZE)):
            received.append(len(piece))
        one.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')

    body = bytes(SIZE)
    with raw_server(take) as host:
        stores = stores_at(f"http://{host}", connect_seconds=0.2, put_seconds=HANG_SECONDS)
        out = stores.destination(_at(""))
        if call == "part":
            out.upload_part(Upload("key", "id"), 1, 0, body, crc32(body))
        else:
            out.put("odd//key", body, FACTS, if_absent=False)
    assert sum(received) == SIZE
