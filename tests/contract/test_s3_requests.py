"""What requests to S3 contain, and what happens if a server does not implement them."""

import hashlib
import socket
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
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
    UnconfirmedError,
    UnsupportedError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.stores import Stores
from s3unzip.stores.ports import Destination, ObjectFacts, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.contract.places import FACTS, stores_at
from tests.contract.test_s3_faults import CALLS, WHERE, one_copy
from tests.support.servers import HANG_SECONDS, Asked, HttpServer, Reply, raw_server, s3_error

PIN = Pin(9, '"e"')
WHOLE = ByteRange(0, 9)
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
DONE = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
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
SIZE = 16 * 1024**2  # bytes of a body: many more than the system buffers for a connection


def answer(asked: Asked) -> Reply:
    """Answer as a bucket that is versioned and has one object of nine bytes."""
    if asked.method == "POST":
        return Reply(200, BEGUN if "?uploads" in asked.path else DONE)
    if asked.method == "GET":
        return Reply(206, b"123456789", TOLD | {"Content-Range": "bytes 0-8/9"})
    if "x-amz-copy-source" in asked.headers:
        return Reply(400)
    return Reply(200, b"123456789" if asked.method == "HEAD" else b"", TOLD)


def _at(key: str) -> Location:
    return Location("s3", "bucket", key)


READING: dict[str, Callable[[Stores], object]] = {
    "tail": lambda s3: s3.source(_at("a.zip")).tail(_at("a.zip"), 9),
    "head": lambda s3: s3.source(_at("a.zip")).stat(_at("a.zip")).pin,
    "range": lambda s3: list(s3.source(_at("a.zip")).pinned(_at("a.zip"), PIN).stream(WHOLE)),
    "odd key": lambda s3: list(s3.source(_at("a//b")).pinned(_at("a//b"), PIN).stream(WHOLE)),
}


@pytest.mark.parametrize("name", READING)
def test_no_client_signs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `unsigned`, no credentials are needed, and no request has a signature."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with HttpServer(answer) as server:
        READING[name](stores_at(server.url, unsigned=True))
    assert server.asked
    assert not [asked for asked in server.asked if "authorization" in asked.headers]


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("name", READING)
def test_every_client_says_who_pays(name: str, *, pays: bool) -> None:
    """The header is in each request, and it is signed. Without the option there is no header."""
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
        upload = out.create_upload("k", ObjectFacts("a/b", {}))
        with pytest.raises(StorageError):
            out.copy_part(Upload("k", upload), 1, 0, _at("a.zip"), PIN, WHOLE)
    began, copied = server.asked
    assert "x-amz-request-payer" not in began.headers
    assert copied.headers.get("x-amz-request-payer") == ("requester" if pays else None)


@pytest.mark.parametrize(("unsigned", "version"), [(False, "v1"), (True, None)])
def test_an_anonymous_pin_is_the_etag(*, unsigned: bool, version: str | None) -> None:
    """Public buckets rarely allow s3:GetObjectVersion, so an anonymous pin has no version."""
    with HttpServer(answer) as server:
        source = stores_at(server.url, unsigned=unsigned).source(_at("a.zip"))
        pins = source.stat(_at("a.zip")).pin, source.tail(_at("a.zip"), 9).pin
    assert pins == (Pin(9, '"e"', version),) * 2


@pytest.mark.parametrize(
    "facts", [PROPERTIES, replace(PROPERTIES, acl=None), ObjectFacts("text/csv", OWNED)]
)
@pytest.mark.parametrize("name", ["put", "put of an odd key", "upload"])
def test_each_property_is_a_header(
    name: str, facts: ObjectFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All properties are sent and signed, whatever variables say; unset ones are not sent."""
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
    """One HEAD brings both, whichever client sends it; objects of other writers have no CRC-32."""
    told = TOLD if text is None else TOLD | {"x-amz-meta-zip-crc32": text}
    with HttpServer(lambda asked: Reply(200, bytes(11), told)) as server:
        found = stores_at(server.url).destination(_at("")).head(key)
    assert found == StoredObject(key, 11, crc, "e")
    quick = crc is not None or "//" in key  # otherwise a second HEAD asks for the store's checksum
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
    """The answer to a HEAD has no code, so its status decides, after one attempt.

    After a 403, a GET may say more.
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
    """The server waits for longer than a connection may take, and still gets the whole body."""
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


R2 = "Header 'x-amz-checksum-crc64nvme' with value 'rosUhgp5mIg=' not implemented"
B2 = "Unsupported header 'x-amz-checksum-crc32' received for this API call."
S3 = "A header you provided implies functionality that is not implemented"
CHECKSUM_REFUSALS = {
    "Cloudflare R2": s3_error(501, "NotImplemented", R2),
    "Backblaze B2": s3_error(400, "InvalidArgument", B2),
    "others": s3_error(501, "NotImplemented", S3),
    "no checksums in Complete": s3_error(400, "MalformedXML"),
}
PARTS = [Part(1, '"e"', 4, crc32(b"body"), "2J1zfg==")]
UPLOAD = Upload("key", "u")


def has_checksums(asked: Asked) -> bool:
    """Return whether a request has a checksum that S3 can do without."""
    optional = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-mp-object-size")
    return any(name.startswith(optional) for name in asked.headers) or b"<Checksum" in asked.body


def _complete(stores: Stores) -> str | None:
    return stores.destination(WHERE).complete_upload(UPLOAD, PARTS, if_absent=False)


WRITES: dict[str, Callable[[Stores], object]] = {
    name: CALLS[name] for name in ("put", "put odd", "create", "part")
} | {"complete": _complete}


@pytest.mark.parametrize("server_name", CHECKSUM_REFUSALS)
@pytest.mark.parametrize("call", WRITES)
def test_a_server_without_checksums_gets_none(call: str, server_name: str) -> None:
    """The request is sent again at once without them; later ones have none to begin with.

    The signature covers the body then, so that the server verifies it as well.
    """
    refusal = CHECKSUM_REFUSALS[server_name]
    with HttpServer(lambda asked: refusal if has_checksums(asked) else answer(asked)) as server:
        stores = stores_at(server.url)
        WRITES[call](stores)
        refused, taken = server.asked
        WRITES[call](stores)
    assert has_checksums(refused)
    assert not any(map(has_checksums, server.asked[1:]))
    assert len(server.asked) == 3
    assert taken.headers["x-amz-content-sha256"] == hashlib.sha256(taken.body).hexdigest()


@pytest.mark.parametrize("by", ["variable", "profile"])
@pytest.mark.parametrize("call", WRITES)
def test_checksums_can_be_switched_off(
    call: str, by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for the AWS CLI: by a variable or in a profile, also in upper case."""
    if by == "variable":
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    else:
        (tmp_path / "config").write_text(
            "[default]\nrequest_checksum_calculation = when_required\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with HttpServer(answer) as server:
        WRITES[call](stores_at(server.url))
    (asked,) = server.asked
    assert not has_checksums(asked)
    assert asked.headers["x-amz-content-sha256"] == hashlib.sha256(asked.body).hexdigest()


def test_checksums_go_with_all_that_is_written() -> None:
    """If a server takes checksums, no body is hashed for the signature."""
    with HttpServer(answer) as server:
        for call in WRITES.values():
            call(stores_at(server.url))
    assert all(map(has_checksums, server.asked))
    put = server.asked[0]
    assert len(b64decode(put.headers["x-amz-checksum-crc64nvme"])) == 8
    assert put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


COSTLY = ObjectFacts("a/b", {}, storage_class="STANDARD_IA", tags={"a": "b"})


WANTED: list[tuple[Callable[[Destination], object], str, str]] = [
    (
        lambda out: out.put("key", b"", COSTLY, if_absent=True),
        S3,
        "with --on-conflict never or --storage-class or --tag: leave it out",
    ),
    (lambda out: out.create_upload("key", COSTLY), S3, "with --storage-class or --tag: leave"),
    (
        lambda out: out.create_upload("key", COSTLY),
        "Header 'x-amz-tagging' not implemented",
        "with --tag: leave it out",
    ),
    (
        lambda out: out.put("key", b"", FACTS, if_absent=True),
        "Header 'If-None-Match' not implemented",
        "with --on-conflict never: leave it out",
    ),
    (
        lambda out: out.complete_upload(UPLOAD, PARTS, if_absent=True),
        S3,
        "with --on-conflict never: leave it out",
    ),
    (lambda out: out.create_upload("key", FACTS), S3, "this server does not implement the request"),
    (
        lambda out: out.replace("key", b"", FACTS, "e"),
        "Header 'If-Match' not implemented",
        "this server does not implement the request",
    ),
]


@pytest.mark.parametrize(("write", "said", "advice"), WANTED)
def test_a_header_that_the_user_wants_is_named(
    write: Callable[[Destination], object], said: str, advice: str
) -> None:
    """501 is final after two requests, the second without checksums; the option is named."""
    with HttpServer(lambda asked: s3_error(501, "NotImplemented", said)) as server:
        destination = stores_at(server.url).destination(WHERE)
        with pytest.raises(UnsupportedError) as caught:
            write(destination)
    assert f"NotImplemented: {said}; " in str(caught.value)
    assert advice in str(caught.value)
    assert len(server.asked) == 2


@pytest.mark.parametrize("call", ["tail", "read", "list"])
@pytest.mark.parametrize("status", [501, 505])
def test_an_unimplemented_request_is_not_retried(call: str, status: int) -> None:
    """A request that a server does not implement will not be implemented in a minute."""
    with (
        HttpServer(lambda asked: Reply(status)) as server,
        pytest.raises(UnsupportedError, match="does not implement"),
    ):
        CALLS[call](stores_at(server.url))
    methods = [asked.method for asked in server.asked]
    # A store without suffix ranges answers 501, so a HEAD asks for the size.
    assert methods == (["GET", "HEAD"] if (call, status) == ("tail", 501) else ["GET"])


def test_a_server_that_does_not_copy_is_asked_once() -> None:
    """After a 501 for UploadPartCopy, no other copy is requested."""
    with HttpServer(lambda asked: s3_error(501, "NotImplemented")) as server:
        stores = stores_at(server.url)
        for _ in range(3):
            with pytest.raises(UnsupportedError):
                one_copy(stores)
        destination = stores.destination(WHERE)
        assert not destination.copies_from(WHERE, replace(PIN, size=2**30))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "refusal", [s3_error(501, "NotImplemented"), s3_error(400, "MissingContentMD5")]
)
def test_a_server_that_deletes_one_by_one(refusal: Reply) -> None:
    """Google Cloud Storage had no DeleteObjects; other servers require Content-MD5 with it."""
    gone = {"DELETE": s3_error(404, "NoSuchKey"), "POST": refusal}
    with HttpServer(lambda asked: gone[asked.method]) as server:
        stores_at(server.url).destination(WHERE).delete(["a", "b c"])
    assert [asked.path for asked in server.asked[1:]] == ["/bucket/a", "/bucket/b%20c"]


@pytest.mark.parametrize("body", [b"", b"<CompleteMultipartUploadResult/>"])
def test_a_complete_that_tells_of_no_object(body: bytes) -> None:
    """After 200 without an ETag, it is not known whether the object exists."""
    with HttpServer(lambda asked: Reply(200, body)) as server, pytest.raises(UnconfirmedError):
        _complete(stores_at(server.url))


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_without_checksums_of_objects_is_asked_without(status: int) -> None:
    """Backblaze B2 refused the checksum mode of a HEAD; the next HEAD has none."""
    has = {"ETag": '"e"', "Content-Length": "4"}
    with HttpServer(
        lambda asked: Reply(status if has_checksums(asked) else 200, b"body", has)
    ) as server:
        found = stores_at(server.url).destination(WHERE).head("odd//key")
    assert found is not None
    assert (found.size, found.checksum) == (4, None)
    assert [has_checksums(asked) for asked in server.asked if "odd" in asked.path] == [True, False]


def test_other_refusals_keep_the_checksums() -> None:
    """A mistake in a request is no reason to leave its checksum out."""
    refusals = [s3_error(400, "InvalidRequest"), s3_error(400, "InvalidStorageClass")]
    replies = iter(refusals)
    with HttpServer(lambda asked: next(replies)) as server:
        stores = stores_at(server.url)
        for _ in refusals:
            with pytest.raises(StorageError):
                CALLS["put"](stores)
    assert all(map(has_checksums, server.asked))
