"""What requests to S3 contain, and what happens if a server does not implement them."""

import hashlib
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import parse_qsl
from zlib import crc32

import pytest
from msgspec.structs import replace

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    ThrottledError,
    UnconfirmedError,
    UnsupportedError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.stores import Stores
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Clock, Destination, ObjectFacts, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.contract.conftest import FACTS, refuse, scripted, stores_at
from tests.contract.test_s3_faults import CALLS, WHERE, one_copy
from tests.support.servers import HANG_SECONDS, Asked, Reply, raw_server, s3_error

PIN = Pin(9, '"e"')
VERSION = Pin(9, '"e"', "v1")
WHOLE = ByteRange(0, 9)
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
    if asked.method == "POST":  # Create and Complete
        return Reply(200, b"<Result><UploadId>u</UploadId><ETag>e</ETag></Result>")
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
    with scripted(answer, unsigned=True) as (stores, asked):
        READING[name](stores)
    assert {"authorization" in request.headers for request in asked} == {False}


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize(
    ("status", "odd"),
    [
        (206, {"x-amz-meta-note": "\xc3\xa4"}),  # VersityGW sends what it was given
        (206, {"Last-Modified": "2015-10-21T07:28:00.000Z"}),  # a date of ISO 8601
        (200, {}),  # lakeFS: a part has the status of a whole object
    ],
    ids=["metadata", "date", "status"],
)
def test_answers_that_obstore_cannot_read(name: str, status: int, odd: dict[str, str]) -> None:
    """The second attempt reads the object, because botocore sends it."""
    headers = {**TOLD, "Content-Range": "bytes 0-8/9", **odd}
    with scripted(lambda one: Reply(status, b"123456789", headers)) as (stores, _):
        Calls(Clock(), HANG_SECONDS, 1).run("get", lambda: READING[name](stores))


@pytest.mark.parametrize(("pays", "payer"), [(True, "requester"), (False, None)])
@pytest.mark.parametrize("name", READING)
def test_every_client_says_who_pays(name: str, payer: str | None, *, pays: bool) -> None:
    """The header is in each request, and it is signed. Without the option there is no header."""
    with scripted(answer, request_payer=pays) as (stores, asked):
        READING[name](stores)
    assert {
        (
            request.headers.get("x-amz-request-payer"),
            "x-amz-request-payer" in request.headers["authorization"],
        )
        for request in asked
    } == {(payer, pays)}


@pytest.mark.parametrize(("pays", "payer"), [(True, "requester"), (False, None)])
def test_a_copy_says_who_pays_for_its_source(payer: str | None, *, pays: bool) -> None:
    """Only UploadPartCopy has the header: it reads the archive with the writer's credentials."""
    with scripted(answer, request_payer=pays) as (stores, asked):
        out = stores.destination(_at(""))
        upload = Upload("k", out.create_upload("k", ObjectFacts("a/b", {})))
        with pytest.raises(StorageError):
            out.copy_part(upload, 1, 0, _at("a.zip"), PIN, WHOLE)
    assert [request.headers.get("x-amz-request-payer") for request in asked] == [None, payer]


@pytest.mark.parametrize(("unsigned", "version"), [(False, "v1"), (True, None)])
def test_an_anonymous_pin_is_the_etag(*, unsigned: bool, version: str | None) -> None:
    """Public buckets rarely allow s3:GetObjectVersion, so an anonymous pin has no version."""
    with scripted(answer, unsigned=unsigned) as (stores, _):
        source = stores.source(_at("a.zip"))
        pins = source.stat(_at("a.zip")).pin, source.tail(_at("a.zip"), 9).pin
    assert pins == (Pin(9, '"e"', version),) * 2


WRITING: dict[str, Callable[[Destination, ObjectFacts], object]] = {
    "put": lambda out, facts: out.put("a.csv", b"1,2", facts, if_absent=False),
    "put of an odd key": lambda out, facts: out.put("a//b", b"1,2", facts, if_absent=False),
    "upload": lambda out, facts: out.create_upload("a.csv", facts),
}


@pytest.mark.parametrize(
    "facts", [PROPERTIES, replace(PROPERTIES, acl=None), ObjectFacts("text/csv", OWNED)]
)
@pytest.mark.parametrize("name", WRITING)
def test_each_property_is_a_header(
    name: str, facts: ObjectFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All properties are sent and signed, whatever variables say; unset ones are not sent."""
    monkeypatch.setenv("AWS_DISABLE_TAGGING", "true")
    with scripted(answer) as (stores, asked):
        WRITING[name](stores.destination(_at("")), facts)
    (request,) = asked
    sent = request.headers
    expected = {
        "content-type": "text/csv",
        "x-amz-meta-owner": "me",
        "x-amz-meta-mtime": "1",
        "cache-control": facts.cache_control,
        "content-encoding": facts.content_encoding,
        "x-amz-storage-class": facts.storage_class,
        "x-amz-acl": facts.acl,
    }
    assert {header: sent.get(header) for header in expected} == expected
    tags = dict(parse_qsl(sent.get("x-amz-tagging", ""), keep_blank_values=True))
    assert tags == (facts.tags or {})
    signed = [name for name in expected if name.startswith("x-amz-") and name in sent]
    signed += ["x-amz-tagging"] * bool(tags)
    assert [name for name in signed if name not in sent["authorization"]] == []


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("told", "crc"),
    [
        ({"x-amz-meta-zip-crc32": "cbf43926"}, 0xCBF43926),
        ({}, None),
        ({"x-amz-meta-zip-crc32": "no"}, None),
    ],
)
def test_size_and_crc(key: str, told: dict[str, str], crc: int | None) -> None:
    """One HEAD brings both, whichever client sends it; objects of other writers have no CRC-32."""
    with scripted(lambda _: Reply(200, bytes(11), TOLD | told)) as (stores, asked):
        assert stores.destination(_at("")).head(key) == StoredObject(key, 11, crc, "e")
    # Without a CRC-32, a second HEAD asks for the store's checksum.
    assert len(asked) == 1 + (crc is None and "//" not in key)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, ThrottledError),
        (429, ThrottledError),
        (500, ServiceFaultError),
        (403, AccessDeniedError),
    ],
)
def test_a_head_is_judged_by_its_status(key: str, status: int, kind: type[S3UnzipError]) -> None:
    """The answer to a HEAD has no code, so its status decides, after one attempt.

    After a 403, a GET may say more.
    """
    refuse(
        lambda stores: stores.destination(_at("")).head(key),
        lambda _: Reply(status),
        kind,
        rf"^s3:GetObject s3://bucket/{key}",
        sent=["HEAD"] + ["GET"] * (status == 403),
    )


@pytest.mark.parametrize("key", KEYS)
def test_a_head_of_nothing_is_one_request(key: str) -> None:
    """A 404 says all that there is to know."""
    with scripted(lambda _: Reply(404)) as (stores, asked):
        assert stores.destination(_at("")).head(key) is None
    assert [request.method for request in asked] == ["HEAD"]


@pytest.mark.parametrize(
    "send",
    [
        lambda out, body: out.upload_part(Upload("key", "id"), 1, 0, body, crc32(body)),
        lambda out, body: out.put("odd//key", body, FACTS, if_absent=False),
    ],
    ids=["part", "put odd"],
)
def test_a_body_may_wait_longer_than_a_connection(
    send: Callable[[Destination, bytes], object],
) -> None:
    """The server waits for longer than a connection may take, and still gets the whole body."""
    received: list[int] = []

    def take(one: socket.socket) -> None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        one.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(1.0)
        while sum(received) < SIZE and (piece := one.recv(SIZE)):
            received.append(len(piece))
        one.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')

    with raw_server(take) as host:
        stores = stores_at(f"http://{host}", connect_seconds=0.2, put_seconds=HANG_SECONDS)
        send(stores.destination(_at("")), bytes(SIZE))
    assert sum(received) == SIZE


S3 = "A header you provided implies functionality that is not implemented"
CHECKSUM_REFUSALS = {
    "Cloudflare R2": s3_error(
        501,
        "NotImplemented",
        "Header 'x-amz-checksum-crc64nvme' with value 'rosUhgp5mIg=' not implemented",
    ),
    "Backblaze B2": s3_error(
        400,
        "InvalidArgument",
        "Unsupported header 'x-amz-checksum-crc32' received for this API call.",
    ),
    "a server that calls it invalid": s3_error(
        400, "InvalidArgument", "x-amz-checksum-crc64nvme is not a valid header"
    ),
    "a server that says no more": s3_error(400, "InvalidArgument"),
    "a server without this checksum": s3_error(
        400, "InvalidRequest", "Checksum algorithm CRC64NVME is not available"
    ),
    "Garage": s3_error(400, "InvalidDigest", "Invalid digest: Invalid checksum for part 1"),
    "others": s3_error(501, "NotImplemented", S3),
    "no checksums in Complete": s3_error(400, "MalformedXML"),
}
PARTS = [Part(1, '"e"', 4, crc32(b"body"), "2J1zfg==")]
UPLOAD = Upload("key", "u")


def has_checksums(asked: Asked) -> bool:
    """Return whether a request has a checksum that S3 can do without."""
    optional = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-mp-object-size")
    return any(name.startswith(optional) for name in asked.headers) or b"<Checksum" in asked.body


WRITES: dict[str, Callable[[Stores], object]] = {
    name: CALLS[name] for name in ("put", "put odd", "create", "part")
} | {
    "complete": lambda stores: stores.destination(WHERE).complete_upload(
        UPLOAD, PARTS, if_absent=False
    )
}


@pytest.mark.parametrize("server_name", CHECKSUM_REFUSALS)
@pytest.mark.parametrize("call", WRITES)
def test_a_server_without_checksums_gets_none(call: str, server_name: str) -> None:
    """The request is sent again at once without them; later ones have none to begin with.

    Where checksums go with a body, it is not hashed for the signature. Else the signature covers
    it, so that the server verifies it as well.
    """
    with scripted(
        lambda request: (
            CHECKSUM_REFUSALS[server_name] if has_checksums(request) else answer(request)
        )
    ) as (stores, asked):
        for _ in range(2):
            WRITES[call](stores)
    assert list(map(has_checksums, asked)) == [True, False, False]
    assert asked[0].headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert asked[1].headers["x-amz-content-sha256"] == hashlib.sha256(asked[1].body).hexdigest()


@pytest.mark.parametrize("by", ["variable", "profile"])
@pytest.mark.parametrize("call", WRITES)
def test_checksums_can_be_switched_off(
    call: str, by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for the AWS CLI: by a variable or in a profile, also in upper case."""
    profile = tmp_path / "config"
    profile.write_text("[default]\nrequest_checksum_calculation = when_required\n")
    variables = {
        "variable": ("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED"),
        "profile": ("AWS_CONFIG_FILE", str(profile)),
    }
    monkeypatch.setenv(*variables[by])
    with scripted(answer) as (stores, asked):
        WRITES[call](stores)
    (request,) = asked
    assert not has_checksums(request)
    assert request.headers["x-amz-content-sha256"] == hashlib.sha256(request.body).hexdigest()


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
    """501 is final after two requests, the second without checksums; the option is named.

    Ceph 16 gives no reason if it does not know a storage class or cannot use KMS.
    """
    asked = refuse(
        lambda stores: write(stores.destination(WHERE)),
        lambda _: s3_error(501, "NotImplemented", said),
        UnsupportedError,
        re.escape(f"NotImplemented: {said}; ") + f".*{advice}",
    )
    assert len(asked) == 2
    refuse(
        lambda stores: write(stores.destination(WHERE)),
        lambda _: s3_error(400, "InvalidArgument", ""),
        StorageError,
        "InvalidArgument; perhaps this server does not implement the request",
    )


@pytest.mark.parametrize("call", ["tail", "read", "list"])
@pytest.mark.parametrize("status", [501, 505])
def test_an_unimplemented_request_is_not_retried(call: str, status: int) -> None:
    """A request that a server does not implement will not be implemented in a minute."""
    refuse(
        CALLS[call],
        lambda _: Reply(status),
        UnsupportedError,
        "does not implement",
        # A store without suffix ranges answers 501, so a HEAD asks for the size.
        sent=["GET"] + ["HEAD"] * ((call, status) == ("tail", 501)),
    )


def test_a_server_that_does_not_copy_is_asked_once() -> None:
    """After a 501 for UploadPartCopy, no other copy is requested, whatever a copy at work meets."""

    def answer(_: Asked) -> Reply:
        if len(asked) == 1:  # the copy meets another fault after the 501 of the second copy
            with pytest.raises(UnsupportedError):
                one_copy(stores)
            return s3_error(404, "NoSuchUpload")
        return s3_error(501, "NotImplemented")

    with scripted(answer) as (stores, asked):
        with pytest.raises(NotFoundError):
            one_copy(stores)
        for _ in range(3):
            with pytest.raises(UnsupportedError):
                one_copy(stores)
        assert not stores.destination(WHERE).copies_from(WHERE, replace(PIN, size=2**30))
    assert len(asked) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        s3_error(501, "NotImplemented"),
        s3_error(405, "MethodNotAllowed"),
        s3_error(400, "MissingContentMD5"),  # MinIO, PowerScale OneFS
        s3_error(400, "MissingArgument", "Missing Some Required Arguments."),  # Aliyun OSS
        s3_error(400, "InvalidRequest", "Missing required header for this request: Content-MD5"),
    ],
)
def test_a_server_that_deletes_one_by_one(refusal: Reply) -> None:
    """Google Cloud Storage had no DeleteObjects; other servers require Content-MD5 with it."""
    with scripted(
        lambda request: refusal if request.method == "POST" else s3_error(404, "NoSuchKey")
    ) as (stores, asked):
        stores.destination(WHERE).delete(["a", "b c"])
    assert [request.path for request in asked[1:]] == ["/bucket/a", "/bucket/b%20c"]


def test_a_request_deletes_at_most_1000_records() -> None:
    """S3 refuses a DeleteObjects request with more keys."""
    deleted = b"<DeleteResult>" + b"<Deleted/>" * 1_000 + b"</DeleteResult>"
    with scripted(lambda _: Reply(200, deleted)) as (stores, asked):
        stores.run_store("run").delete([str(number) for number in range(1_001)])
    assert [request.body.count(b"<Key>") for request in asked] == [1_000, 1]


LISTED = (
    "<ListPartsResult><Part><PartNumber>{}</PartNumber><Size>{}</Size></Part></ListPartsResult>"
)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (Reply(200, LISTED.format(1, 11).encode()), pytest.raises(StorageError, match="range")),
        (Reply(200, LISTED.format(1, 10).encode()), nullcontext()),
        (Reply(200, LISTED.format(2, 11).encode()), nullcontext()),
        (Reply(200, b"<ListPartsResult/>"), nullcontext()),
        (s3_error(403, "AccessDenied"), nullcontext()),
        (s3_error(501, "NotImplemented"), nullcontext()),
    ],
)
def test_a_copied_part_of_another_size(
    listed: Reply, expected: AbstractContextManager[object]
) -> None:
    """Eucalyptus copied a byte too many, and emulators ignore the range of a copy."""
    with (
        scripted(
            lambda asked: {"GET": listed}.get(asked.method, Reply(200, b"<R><ETag>e</ETag></R>"))
        ) as (stores, _),
        expected,
    ):
        part = one_copy(stores)
        assert (part.crc32, part.checksum_crc32) == (None, None), "no empty checksum is sent later"


@pytest.mark.parametrize(
    ("call", "body", "kind"),
    [
        *(
            (lambda stores: stores.destination(WHERE).delete(["a", "b"]), body, ServiceFaultError)
            for body in (b"", b"<html/>", b"<DeleteResult/>")
        ),
        (WRITES["complete"], b"", UnconfirmedError),
        (WRITES["complete"], b"<CompleteMultipartUploadResult/>", UnconfirmedError),
    ],
)
def test_an_answer_that_tells_of_nothing_done(
    call: Callable[[Stores], object], body: bytes, kind: type[S3UnzipError]
) -> None:
    """A proxy may answer every request with 200: nothing shows what became of the objects."""
    refuse(call, lambda _: Reply(200, body), kind)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InternalError", ServiceFaultError),
        ("SlowDown", ThrottledError),
        ("AccessDenied", StorageError),
    ],
)
def test_one_object_of_many_is_not_deleted(code: str, kind: type[S3UnzipError]) -> None:
    """S3 answers 200 and names the object; a fault that may pass can be retried."""
    error = f"<R><Error><Key>b</Key><Code>{code}</Code><Message>m</Message></Error></R>"
    with (
        scripted(lambda _: Reply(200, error.encode())) as (stores, _),
        pytest.raises(kind, match=f"^s3:DeleteObject s3://bucket/b: {code}: m") as caught,
    ):
        stores.destination(WHERE).delete(["a", "b"])
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("finish", "methods"),
    [
        (lambda source, where: source.delete(where, VERSION), ["DELETE"]),
        (lambda source, where: source.tag(where, VERSION, {"a": "b"}), ["GET", "PUT"]),
        (lambda source, where: source.tag(where, VERSION, {}), ["GET"]),
    ],
    ids=["delete", "tag", "has the tags"],
)
def test_a_version_is_not_read_to_finish_it(
    finish: Callable[[Source, Location], object], methods: list[str]
) -> None:
    """Deleting and tagging need their own rights on the version, and no s3:GetObjectVersion."""
    with scripted(lambda _: Reply(200, b"<Tagging><TagSet/></Tagging>")) as (stores, asked):
        finish(stores.source(_at("a.zip")), _at("a.zip"))
    assert [request.method for request in asked if "versionId=" in request.path] == methods


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (
            (s3_error(412, "PreconditionFailed"), Reply(200, b"1", TOLD | {"ETag": '"newer"'})),
            pytest.raises(SourceChangedError, match="newer"),
        ),
        ((s3_error(404, "NoSuchKey"),), nullcontext()),
    ],
    ids=["replaced", "deleted"],
)
def test_an_archive_that_changes_just_before_it_is_deleted(
    replies: Sequence[Reply], expected: AbstractContextManager[object]
) -> None:
    """S3 compares the ETag with the DELETE, too; an archive that is gone needs no DELETE."""
    answers = iter([Reply(200, b"123456789", TOLD), *replies])  # the first is that of a HEAD
    with scripted(lambda _: next(answers)) as (stores, _), expected:
        stores.source(_at("a.zip")).delete(_at("a.zip"), PIN)


@pytest.mark.parametrize("key", ["key", "odd//key"])
def test_a_put_whose_answer_has_no_etag(key: str) -> None:
    """The object is looked at: a proxy may answer every request with 200."""
    ours = {"X-Amz-Meta-Zip-Crc32": "a"}  # as servers in Go spell it
    head = Reply(200, b"body", ours)
    with scripted(lambda asked: head if asked.method == "HEAD" else Reply(200)) as (stores, asked):
        destination = stores.destination(WHERE)
        assert destination.put(key, b"body", FACTS, if_absent=False) is None
        for facts, text, older in (
            (FACTS, b"", ours),
            (FACTS, b"text", {}),
            (FACTS, b"text", {"x-amz-meta-zip-crc32": "1"}),
            (ObjectFacts("a/b", {}), b"text", {"x-amz-checksum-crc32": "AAAAAA=="}),
        ):
            head = Reply(200, text, older)
            with pytest.raises(ServiceFaultError, match="ETag"):
                destination.put(key, b"body", facts, if_absent=False)
    assert [request.method for request in asked][:2] == ["PUT", "HEAD"]


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_without_checksums_of_objects_is_asked_without(status: int) -> None:
    """Backblaze B2 refused the checksum mode of a HEAD; the next HEAD has none."""
    has = {"ETag": '"e"', "Content-Length": "4"}
    with scripted(
        lambda request: Reply(status if has_checksums(request) else 200, b"body", has)
    ) as (stores, asked):
        stored = stores.destination(WHERE).head("odd//key")
    assert stored == StoredObject("odd//key", 4, etag="e")
    assert [has_checksums(request) for request in asked if "odd" in request.path] == [True, False]


@pytest.mark.parametrize("code", ["InvalidRequest", "InvalidStorageClass"])
def test_other_refusals_keep_the_checksums(code: str) -> None:
    """A mistake in a request is no reason to leave its checksum out."""
    with scripted(lambda _: s3_error(400, code)) as (stores, asked):
        for _ in range(2):
            with pytest.raises(StorageError):
                CALLS["put"](stores)
    assert all(map(has_checksums, asked))
