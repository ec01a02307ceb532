"""Servers that do not implement a request or one of its headers, as they say it."""

import hashlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from msgspec.structs import replace

from s3unzip.errors import StorageError, UnconfirmedError, UnsupportedError
from s3unzip.model import Part
from s3unzip.stores import Stores
from s3unzip.stores.ports import CopiesParts, Destination, ObjectFacts, Upload
from tests.contract.places import FACTS, stores_at
from tests.contract.test_s3_faults import CALLS, PIN, WHERE, one_copy
from tests.support.servers import Asked, HttpServer, Reply, s3_error

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
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
DONE = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
UPLOAD = Upload("key", "u")


def has_checksums(asked: Asked) -> bool:
    """Return whether a request has a checksum that S3 can do without."""
    optional = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-mp-object-size")
    return any(name.startswith(optional) for name in asked.headers) or b"<Checksum" in asked.body


def _answer(asked: Asked) -> Reply:
    if asked.method == "POST":
        return Reply(200, BEGUN if "?uploads" in asked.path else DONE)
    return Reply(200, headers={"ETag": '"e"'})


def complete(stores: Stores) -> str | None:
    """Complete an upload whose parts were sent with checksums."""
    return stores.destination(WHERE).complete_upload(UPLOAD, PARTS, if_absent=False)


WRITES: dict[str, Callable[[Stores], object]] = {
    name: CALLS[name] for name in ("put", "put odd", "create", "part")
} | {"complete": complete}


@pytest.mark.parametrize("server_name", CHECKSUM_REFUSALS)
@pytest.mark.parametrize("call", WRITES)
def test_a_server_without_checksums_gets_none(call: str, server_name: str) -> None:
    """The request is sent again at once without them; later ones have none to begin with.

    The signature covers the body then, so that the server verifies it as well.
    """
    refusal = CHECKSUM_REFUSALS[server_name]
    with HttpServer(lambda asked: refusal if has_checksums(asked) else _answer(asked)) as server:
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
    """As for the AWS CLI: by a variable or in a profile; upper case counts, too."""
    if by == "variable":
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    else:
        (tmp_path / "config").write_text(
            "[default]\nrequest_checksum_calculation = when_required\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with HttpServer(_answer) as server:
        WRITES[call](stores_at(server.url))
    (asked,) = server.asked
    assert not has_checksums(asked)
    assert asked.headers["x-amz-content-sha256"] == hashlib.sha256(asked.body).hexdigest()


def test_checksums_go_with_all_that_is_written() -> None:
    """Where a server takes them no body is hashed for the signature."""
    with HttpServer(_answer) as server:
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
    # A store without ranges of a suffix answers 501: the size is asked for.
    assert methods == (["GET", "HEAD"] if (call, status) == ("tail", 501) else ["GET"])


def test_a_server_that_does_not_copy_is_asked_once() -> None:
    """501 for UploadPartCopy: later parts are not asked for."""
    with HttpServer(lambda asked: s3_error(501, "NotImplemented")) as server:
        stores = stores_at(server.url)
        for _ in range(3):
            with pytest.raises(UnsupportedError):
                one_copy(stores)
        destination = stores.destination(WHERE)
        assert isinstance(destination, CopiesParts)
        assert not destination.copies_from(WHERE, replace(PIN, size=2**30))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "refusal", [s3_error(501, "NotImplemented"), s3_error(400, "MissingContentMD5")]
)
def test_a_server_that_deletes_one_by_one(refusal: Reply) -> None:
    """Google Cloud Storage had no DeleteObjects; others want Content-MD5 with it."""
    gone = {"DELETE": s3_error(404, "NoSuchKey"), "POST": refusal}
    with HttpServer(lambda asked: gone[asked.method]) as server:
        stores_at(server.url).destination(WHERE).delete(["a", "b c"])
    assert [asked.path for asked in server.asked[1:]] == ["/bucket/a", "/bucket/b%20c"]


@pytest.mark.parametrize("body", [b"", b"<CompleteMultipartUploadResult/>"])
def test_a_complete_that_tells_of_no_object(body: bytes) -> None:
    """200 without an ETag may be an object or none."""
    with HttpServer(lambda asked: Reply(200, body)) as server, pytest.raises(UnconfirmedError):
        complete(stores_at(server.url))


@pytest.mark.parametrize("status", [400, 501])
def test_a_server_without_checksums_of_objects_is_asked_without(status: int) -> None:
    """Backblaze B2 refused the mode of a HEAD; without it, the object is there all the same."""
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
