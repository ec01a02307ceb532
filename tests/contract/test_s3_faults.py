"""What the S3 adapters make of every kind of answer, over the wire, from a scripted server."""

import base64
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from zlib import crc32

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    ConflictError,
    ExpiredKeysError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    StoreFullError,
    ThrottledError,
    UsageError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.stores import Stores, ports, run_store
from s3unzip.stores.calls import Calls
from s3unzip.stores.s3.credentials import ProfileKeys
from s3unzip.zip import ByteRange
from tests.contract.conftest import FACTS, list_all, refuse, scripted, stores_at
from tests.support.memory import ManualClock
from tests.support.servers import HANG_SECONDS, VERSITY, Asked, Reply, s3_error, serve_range

WHERE = Location("s3", "bucket", "a.zip")
OWNER = "111122223333"
ODD = Location("s3", "bucket", "odd//a.zip")
PIN = Pin(1_000, '"etag"', "v1")
BODY = bytes(1_000)
ETAG = {"ETag": '"etag"'}
LINE = r"\As3:[A-Z]\w+ s3://bucket/.*\Z"
ANSWERS: list[tuple[Reply, type[S3UnzipError]]] = [
    (s3_error(503, "SlowDown"), ThrottledError),
    (s3_error(503, "ServiceUnavailable"), ThrottledError),
    (s3_error(429, "TooManyRequests"), ThrottledError),
    (s3_error(400, "KMS.ThrottlingException"), ThrottledError),
    (s3_error(500, "InternalError"), ServiceFaultError),
    (Reply(502, b"<html>bad gateway</html>"), ServiceFaultError),
    (s3_error(409, "OperationAborted"), ServiceFaultError),
    (s3_error(409, "ConcurrentModification"), ServiceFaultError),  # Ceph
    (s3_error(409, "ObjectParentIsFile"), StorageError),  # VersityGW: it will never fit
    (Reply(409), ServiceFaultError),  # a HEAD has no body
    (s3_error(400, "RequestTimeout"), ServiceFaultError),
    (Reply(408, b"<html>Request Time-out"), ServiceFaultError),  # HAProxy
    (s3_error(400, "ExpiredToken"), ExpiredKeysError),
    (s3_error(400, "BadDigest"), ServiceFaultError),
    (s3_error(400, "XAmzContentSHA256Mismatch"), ServiceFaultError),
    (
        s3_error(403, "AccessDenied", "User is not authorized to perform: kms:GenerateDataKey"),
        AccessDeniedError,
    ),
    (s3_error(400, "KMS.DisabledException"), AccessDeniedError),
    (s3_error(403, "InvalidAccessKeyId"), AccessDeniedError),
    (s3_error(403, "InvalidObjectState"), StorageError),
    (s3_error(400, "InvalidRequest"), StorageError),
    (s3_error(507, "XMinioStorageFull"), StoreFullError),
    (s3_error(400, "XMinioAdminBucketQuotaExceeded"), StoreFullError),
]


def _one_read(stores: Stores, where: Location = WHERE) -> bytes:
    return b"".join(stores.source(where).pinned(where, PIN).stream(ByteRange(0, 10)))


def _one_put(stores: Stores, key: str = "member", *, if_absent: bool = False) -> None:
    stores.destination(WHERE).put(key, b"body", FACTS, if_absent=if_absent)


def one_copy(stores: Stores) -> Part:
    """Copy ten bytes of a pinned archive."""
    return stores.destination(WHERE).copy_part(
        ports.Upload("key", "id"), 1, 0, WHERE, PIN, ByteRange(0, 10)
    )


CALLS: dict[str, Callable[[Stores], object]] = {
    "tail": lambda stores: stores.source(WHERE).tail(WHERE, 10),
    "read": _one_read,
    "read odd": lambda stores: _one_read(stores, ODD),
    "put": _one_put,
    "put odd": lambda stores: _one_put(stores, "odd//key"),
    "list": lambda stores: list_all(stores.destination(WHERE), ""),
    "create": lambda stores: stores.destination(WHERE).create_upload("key", FACTS),
    "part": lambda stores: stores.destination(WHERE).upload_part(
        ports.Upload("key", "id"), 1, 0, b"body", crc32(b"body")
    ),
    "copy": one_copy,
    "complete": lambda stores: stores.destination(WHERE).complete_upload(
        ports.Upload("key", "id"), [Part(1, '"etag"', 4)], if_absent=False
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_answer_has_one_meaning(call: str) -> None:
    """The same response is the same error for every client, after one attempt."""
    replies = iter([reply for reply, _ in ANSWERS])
    with scripted(lambda _: next(replies)) as (stores, asked):
        for number, (reply, kind) in enumerate(ANSWERS, start=1):
            with pytest.raises(S3UnzipError, match=LINE) as caught:
                CALLS[call](stores)
            assert (type(caught.value), len(asked)) == (kind, number), reply


@pytest.mark.parametrize("key", ["\udcff.zip", "odd//\ud800"], ids=["plain", "odd"])
@pytest.mark.parametrize(
    "call",
    [
        lambda stores, key: stores.source(WHERE).tail(Location("s3", "bucket", key), 10),
        lambda stores, key: _one_read(stores, Location("s3", "bucket", key)),
        _one_put,
        lambda stores, key: stores.destination(WHERE).create_upload(key, FACTS),
        lambda stores, key: list_all(stores.destination(WHERE), key),
    ],
    ids=["tail", "read", "put", "create", "list"],
)
def test_a_key_that_is_not_unicode_is_a_mistake(
    call: Callable[[Stores, str], object], key: str
) -> None:
    """A shell can type such a key, and an event can hold it; S3 has none, so nothing is retried."""
    refuse(
        lambda stores: call(stores, key),
        lambda _: Reply(500),
        UsageError,
        "not valid Unicode",
        sent=[],
    )


@pytest.mark.parametrize("call", ["tail", "read", "read odd"])
def test_a_body_beyond_its_range_is_refused(call: str) -> None:
    """It may be the whole object, so none of its bytes are taken for those of the range."""

    def answer(asked: Asked) -> Reply:
        return replace(serve_range(BODY, asked.headers["range"], ETAG), body=BODY)

    refuse(
        CALLS[call],
        answer,
        StorageError,
        "more than the 10 bytes of the requested range",
        sent=["GET"],
    )


@pytest.mark.parametrize("call", ["read", "read odd", "copy"])
def test_a_version_that_may_not_be_read(call: str) -> None:
    """ETag and version id go with each read, so no read can mix two versions.

    The attempt after the denied one is pinned by the ETag alone, and so are all others.
    """

    def answer(asked: Asked) -> Reply:
        if "versionId" in (asked.path + asked.headers.get("x-amz-copy-source", "")):
            return s3_error(403, "AccessDenied")
        if asked.method == "PUT":
            return Reply(200, b"<R><ETag>e</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></R>")
        return serve_range(BODY, "bytes=0-9", ETAG)

    with scripted(answer) as (stores, asked):
        with pytest.raises(ServiceFaultError, match="s3:GetObjectVersion"):
            CALLS[call](stores)
        CALLS[call](stores)
        CALLS[call](stores)
    prefix = "x-amz-copy-source-" * (call == "copy")
    assert [request.headers[f"{prefix}if-match"] for request in asked] == ['"etag"'] * 3


@pytest.mark.parametrize("call", ["read", "read odd"])
def test_two_reads_at_once_of_a_version_that_may_not_be_read(call: str) -> None:
    """Each of them is tried again: the first denial does not make the second one final."""
    denials = threading.Barrier(2)

    def answer(_: Asked) -> Reply:
        denials.wait(HANG_SECONDS)
        return s3_error(403, "AccessDenied")

    with scripted(answer) as (stores, _), ThreadPoolExecutor(2) as pool:
        for read in [pool.submit(CALLS[call], stores) for _ in range(2)]:
            with pytest.raises(ServiceFaultError, match="s3:GetObjectVersion"):
                read.result()


@pytest.mark.parametrize("where", [WHERE, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize(
    ("stall", "soon"), [(0.0, {}), (1.5, {"stall_seconds": 0.5, "put_seconds": 0.5})]
)
def test_a_body_that_breaks(where: Location, stall: float, soon: dict[str, float]) -> None:
    """Half a body, or one that stops coming, is a fault that can be retried where it broke."""
    headers = ETAG | {"Content-Range": "bytes 0-999/1000"}
    with scripted(lambda _: Reply(206, BODY, headers, 500, stall), **soon) as (stores, _):
        with pytest.raises(ServiceFaultError, match=r"after 500 of 1,000 bytes|Read timeout"):
            list(stores.source(where).pinned(where, PIN).stream(ByteRange(0, 1_000)))
        if not stall:
            assert len(stores.source(where).tail(where, 1_000).data) == 500


@pytest.mark.parametrize(
    ("call", "limit"),
    [
        *((call, "stall_seconds") for call in ("tail", "read", "list", "create")),
        *((call, "put_seconds") for call in ("put", "put odd", "read odd", "part")),
        *((call, "slow_seconds") for call in ("copy", "complete")),
    ],
)
def test_a_server_that_is_silent(call: str, limit: str) -> None:
    """Silence ends in a fault. Only Complete and copies wait for `slow_seconds`."""
    over = threading.Event()
    waited_for = list[Asked]()

    def answer(asked: Asked) -> Reply:
        if not over.wait(HANG_SECONDS):
            waited_for.append(asked)
        return Reply(200)

    with scripted(answer, **{limit: 0.3}) as (stores, _):
        try:
            with pytest.raises(ServiceFaultError):
                CALLS[call](stores)
        finally:
            over.set()
    assert not waited_for, "another limit ended the call"


def test_a_put_has_type_metadata_and_checksum() -> None:
    """Type, metadata, and a checksum for S3 to verify; the body is not hashed for the signature."""
    with scripted(
        lambda _: Reply(200, headers={"ETag": '"x"'}),
        destination_kms_key="arn:aws:kms:eu-west-1:1:key/k",
    ) as (stores, asked):
        _one_put(stores, if_absent=True)
        _one_put(stores, "odd//key", if_absent=True)
    for put in asked:
        assert put.body == b"body"
        assert put.headers["x-amz-server-side-encryption-bucket-key-enabled"].lower() == "true"
        assert {
            "content-type": "application/json",
            "x-amz-meta-zip-crc32": "0000000a",
            "x-amz-meta-mtime": "1700000000",
            "if-none-match": "*",
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-west-1:1:key/k",
            "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
        }.items() <= put.headers.items()
    plain, odd = asked
    assert (
        plain.path,
        len(base64.b64decode(plain.headers["x-amz-checksum-crc64nvme"])),
        base64.b64decode(odd.headers["x-amz-checksum-crc32"]),
    ) == ("/bucket/member", 8, crc32(b"body").to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("status", "code"), [(409, "ConditionalRequestConflict"), (400, "InvalidPart")]
)
def test_an_upload_that_must_be_begun_anew(status: int, code: str) -> None:
    """A race was lost, or somebody dropped the upload: it is dropped, and reported as gone."""
    refuse(
        CALLS["complete"],
        lambda one: Reply(204) if one.method == "DELETE" else s3_error(status, code),
        NotFoundError,
        code,
        sent=["POST", "DELETE"],
    )


OTHER_RANGES = {
    "another range": Reply(206, bytes(10), ETAG | {"Content-Range": "bytes 5-14/1000"}),
    "a range without its size": Reply(206, bytes(10), ETAG | {"Content-Range": "bytes 0-9/*"}),
    "no range": Reply(206, bytes(10), ETAG),
    "all bytes": Reply(200, BODY, ETAG),
}
# The answer to a HEAD has no body, so a GET of one byte asks for the code.
HEADS: dict[str, tuple[Reply, type[S3UnzipError], str]] = {
    "keys that have expired": (
        s3_error(400, "ExpiredToken"),
        ExpiredKeysError,
        "ExpiredToken: said so; set AWS_ACCESS_KEY_ID",
    ),
    "no right to list": (
        s3_error(403, "AccessDenied", "User is not authorized to perform: s3:ListBucket on bucket"),
        AccessDeniedError,
        "; s3:ListBucket may be",
    ),
    "no right": (
        s3_error(403, "AccessDenied"),
        AccessDeniedError,
        "s3:ListBucket if there is no such key",
    ),
    "an organization's policy": (
        s3_error(
            403, "AccessDenied", "not authorized to perform: s3:GetObject with an explicit deny"
        ),
        AccessDeniedError,
        "deny; ask whoever manages that policy to allow the action",
    ),
    "keys that nobody knows": (
        s3_error(403, "InvalidAccessKeyId"),
        AccessDeniedError,
        "check the credentials",
    ),
    "a session token that MinIO does not know": (
        s3_error(403, "InvalidTokenId"),
        AccessDeniedError,
        "AWS_SESSION_TOKEN",
    ),
    "a refusal without a code": (Reply(400), StorageError, "HTTP 400"),
}
MORE_CALLS: dict[str, Callable[[Stores], object]] = {
    "head": lambda stores: stores.destination(WHERE).head("key"),
    "head odd": lambda stores: stores.destination(WHERE).head("odd//key"),
    "put if absent": lambda stores: _one_put(stores, if_absent=True),
}
# By what the answer means: a call, the answer, the error, and words of its message.
MEANINGS: dict[str, tuple[str, Reply, type[S3UnzipError], str | None]] = {
    **{
        f"{call}: {status}, overwritten, deleted, cut or hidden by a marker": (
            call,
            Reply(status),
            SourceChangedError,
            None,
        )
        for call in ("read", "read odd")
        for status in (404, 405, 412, 416)
    },
    **{  # both clients refuse such a response before its first byte
        f"{call}: {name}": (call, reply, ServiceFaultError, "does not follow the S3 protocol")
        for call in ("read", "read odd")
        for name, reply in OTHER_RANGES.items()
    },
    "read: fewer bytes than requested": (
        "read",
        serve_range(BODY, "bytes=0-6", ETAG),
        ServiceFaultError,
        None,
    ),
    "put: a lost race, which may be tried again": (
        "put if absent",
        s3_error(409, "ConditionalRequestConflict"),
        ServiceFaultError,
        None,
    ),
    "put: the object exists": (
        "put if absent",
        s3_error(412, "PreconditionFailed"),
        ConflictError,
        None,
    ),
    "complete: a fault that is found after 200": (
        "complete",
        s3_error(200, "InternalError"),
        ServiceFaultError,
        None,
    ),
    "copy: the upload is gone, not the archive": (
        "copy",
        s3_error(404, "NoSuchUpload"),
        NotFoundError,
        "s3://bucket/key",
    ),
    "put: a web server that does not speak S3": (
        "put",
        Reply(404),
        NotFoundError,
        "HTTP 404; check the bucket's name",
    ),
    "put: a quota, as Ceph refuses": (
        "put",
        s3_error(403, "QuotaExceeded", "full"),
        StoreFullError,
        "QuotaExceeded: full$",
    ),
    "put: an endpoint that has moved to https": (
        "put",
        Reply(308, headers={"Location": "https://127.0.0.1/"}),
        StorageError,
        "HTTP 308; the endpoint redirects: give its new URL",
    ),
    "tail: an endpoint that wants https": (
        "tail",
        Reply(400, b"Client sent an HTTP request to an HTTPS server."),
        StorageError,
        "HTTP 400.*; an HTTPS server answers http:// requests in this way: check the endpoint",
    ),
    "part: Scaleway, which accepts 1,000 parts": (
        "part",
        s3_error(
            400, "InvalidArgument", "Part number must be an integer between 1 and 1000, inclusive"
        ),
        StorageError,
        "inclusive; this server accepts fewer parts .*part_bytes",
    ),
    "part: a proxy with a limit below the size of a part": (
        "part",
        Reply(413, b"<html>413 Request Entity Too Large"),
        StorageError,
        "HTTP 413.*; the server, or a proxy in front of it, limits",
    ),
    **{
        f"{call}: a wrong region": (  # the answer names no other region, so retries are pointless
            call,
            s3_error(400, "AuthorizationHeaderMalformed", "the region &#34;eu-wst-1&#34; is wrong"),
            NotFoundError,
            r'the region "eu-wst-1" is wrong; check .*--region',
        )
        for call in ("read", "put", "list")
    },
    **{
        f"{call}: {name}": (call, *answer)
        for call in ("head", "head odd")
        for name, answer in HEADS.items()
    },
}


@pytest.mark.parametrize("meaning", MEANINGS)
def test_an_answer_to_one_call_has_its_meaning(meaning: str) -> None:
    """The error says what is missing or wrong, and whether another attempt may help."""
    call, reply, kind, words = MEANINGS[meaning]
    refuse((CALLS | MORE_CALLS)[call], lambda _: reply, kind, words)


@pytest.fixture
def recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore errors of destructors: at the limit of recursion they cannot run either."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.mark.usefixtures("recursion")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("headers", [{}, {"x-amz-bucket-region": "eu-west-9"}])
def test_redirects_without_end(call: str, headers: dict[str, str]) -> None:
    """The client asks again for the region that no answer gives, until Python stops it."""
    refuse(CALLS[call], lambda _: Reply(301, headers=headers), ServiceFaultError)


@pytest.mark.usefixtures("recursion")
@pytest.mark.parametrize("status", [301, 307, 400])
def test_an_owner_that_is_not_confirmed(status: int) -> None:
    """A redirect without end does not confirm the owner, and raises an error of ours.

    A 400 with an id of S3 is not that of a server that wants HTTPS.
    """
    asked = refuse(
        _one_put,
        lambda _: Reply(status, headers={"x-amz-request-id": "1"}),
        (ServiceFaultError, StorageError),
        r"\A(?!.*HTTPS)",
        destination_owner=OWNER,
    )
    assert "PUT" not in [request.method for request in asked]


def test_the_owner_is_checked_before_the_first_put() -> None:
    """Nothing is sent to a bucket of another account; the check holds for a while."""
    with scripted(lambda _: Reply(200, headers=ETAG), destination_owner=OWNER) as (stores, asked):
        for call in ("put", "put", "put", "part"):
            CALLS[call](stores)
    owners = [request.headers.get("x-amz-expected-bucket-owner") for request in asked]
    assert asked[0].path == "/bucket"
    assert [request.method for request in asked] == ["HEAD"] + ["PUT"] * 4
    assert (owners[0], owners[-1]) == (OWNER, OWNER)


@pytest.mark.parametrize("call", ["put", "head"])
def test_a_bucket_of_another_account(call: str) -> None:
    """The error says so, and no other request was sent."""
    asked = refuse(
        (CALLS | MORE_CALLS)[call],
        lambda _: Reply(403),
        AccessDeniedError,
        OWNER,
        destination_owner=OWNER,
    )
    assert [request.path for request in asked] == ["/bucket"]


@pytest.mark.parametrize(("key", "owner"), [("key", None), ("odd//key", OWNER)])
def test_a_read_confirms_no_owner_by_another_request(key: str, owner: str | None) -> None:
    """Each read takes one GET, which names the owner where botocore sends it."""
    with scripted(lambda _: Reply(200, b"body", ETAG), destination_owner=OWNER) as (stores, asked):
        assert b"".join(stores.destination(WHERE).read(key)) == b"body"
    assert [get.headers.get("x-amz-expected-bucket-owner") for get in asked] == [owner]


@pytest.mark.parametrize("call", CALLS)
def test_messages_keep_secrets(call: str) -> None:
    """S3 repeats the key id and the string to sign in its refusal; we do not."""
    refusal = (
        b"<Error><Code>SignatureDoesNotMatch</Code><Message>does not match</Message>"
        b"<AWSAccessKeyId>AKIASECRET</AWSAccessKeyId><StringToSign>AWS4-HMAC</StringToSign></Error>"
    )
    with (
        scripted(lambda _: Reply(403, refusal)) as (stores, _),
        pytest.raises(AccessDeniedError) as caught,
    ):
        CALLS[call](stores)
    secrets = ("AKIASECRET", "AWS4-HMAC", VERSITY["AWS_SECRET_ACCESS_KEY"])
    assert not [secret for secret in secrets if secret in str(caught.value)]
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("call", ["read", "put"])
def test_ctrl_c_while_credentials_are_asked_for(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Obstore calls Python for credentials. An interrupt there is no fault of the store."""

    def interrupt(_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProfileKeys, "require", interrupt)
    with pytest.raises(KeyboardInterrupt):
        CALLS[call](stores_at("http://127.0.0.1:9"))


# By what is wrong: variables, of which None is unset; the profile; an error and words of it.
SETTINGS: dict[str, tuple[dict[str, str | None], str | None, type[S3UnzipError], str]] = {
    "no credentials": (dict.fromkeys(VERSITY), None, AccessDeniedError, "AWS_PROFILE"),
    "no file of certificates": (
        {"AWS_CA_BUNDLE": "/none.pem"},
        None,
        UsageError,
        "AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE: /none.pem: No such file",
    ),
    "no certificates": ({"AWS_CA_BUNDLE": __file__}, None, UsageError, "[Nn]o certificates"),
    "no such mode": (
        {"AWS_DEFAULTS_MODE": "fast"},
        None,
        StorageError,
        "invalid defaults mode: fast",
    ),
    "no such profile": ({}, "no-such", UsageError, "no-such"),
}


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        *(("no credentials", call) for call in ("read", "put", "list")),
        ("no file of certificates", "read"),
        ("no certificates", "read"),
        ("no such mode", "list"),
        *(("no such profile", call) for call in ("read", "list")),
    ],
)
def test_a_wrong_setting_is_no_silence_of_the_store(
    monkeypatch: pytest.MonkeyPatch, setting: str, call: str
) -> None:
    """The error is final before any request, and says what to set or quotes the library."""
    variables, profile, kind, words = SETTINGS[setting]
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert not refuse(CALLS[call], lambda _: Reply(500), kind, words, profile=profile)


RECORD_CALLS: dict[str, Callable[[run_store.RunStore], object]] = {
    "write": lambda work: work.write("stop.json", [b"{}"]),
    "read": lambda work: work.read("stop.json"),
    "stream": lambda work: list(work.stream("plan.jsonl")),
    "names": lambda work: list(work.names("outcomes/")),
    "delete": lambda work: work.delete(["stop.json"]),
}


@pytest.mark.parametrize("call", RECORD_CALLS)
def test_a_run_store_spends_one_budget(call: str) -> None:
    """Only the step's calls retry and count requests, so the budget is spent once."""
    clock = ManualClock()
    calls = Calls(clock, budget_seconds=2.0, at_once=4)
    asked = refuse(
        lambda stores: RECORD_CALLS[call](stores.run_store("run", calls)),
        lambda _: s3_error(503, "ServiceUnavailable"),
        ThrottledError,
    )
    assert clock.slept <= 2.0
    counts = calls.requests
    assert counts.get + counts.put + counts.list + counts.delete == len(asked) == counts.throttled
    assert counts.retries == len(asked) - 1 > 0
