"""Requests without a signature, and requests that the requester pays: of each client of S3."""

from collections.abc import Callable, Iterator

import pytest

from s3unzip.errors import StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.ports import CopiesParts, ObjectFacts, Stores, Upload
from s3unzip.zip import ByteRange
from tests.contract.places import stores_at
from tests.servers import Asked, HttpServer, Reply

PIN = Pin(9, '"e"')
WHOLE = ByteRange(0, 9)
EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def answer(asked: Asked) -> Reply:
    """Answer as a bucket that is versioned and has one object of nine bytes."""
    told = {"ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
    told["x-amz-version-id"] = "v1"
    if "list-type" in asked.path:
        return Reply(200, EMPTY)
    if asked.method == "HEAD":
        return Reply(200, b"123456789", told)
    return Reply(206, b"123456789", told | {"Content-Range": "bytes 0-8/9"})


def at(key: str) -> Location:
    """Return an object of the bucket."""
    return Location("s3", "bucket", key)


READING: dict[str, Callable[[Stores], object]] = {
    "tail": lambda s3: s3.source(at("a.zip")).tail(at("a.zip"), 9),
    "head": lambda s3: s3.source(at("a.zip")).head(at("a.zip")),
    "range": lambda s3: s3.source(at("a.zip")).pinned(at("a.zip"), PIN).read(WHOLE),
    "odd key": lambda s3: s3.source(at("a//b")).pinned(at("a//b"), PIN).read(WHOLE),
}


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """The bucket's server."""
    with HttpServer(answer) as running:
        yield running


@pytest.mark.parametrize("name", READING)
def test_no_client_signs(server: HttpServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials nothing looks for them, and no request says who asks."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    READING[name](stores_at(server.url, unsigned=True))
    assert server.asked
    assert not [asked for asked in server.asked if "authorization" in asked.headers]


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("name", READING)
def test_every_client_says_who_pays(server: HttpServer, name: str, *, pays: bool) -> None:
    """The header is in each request, and it is signed; nobody pays unasked."""
    READING[name](stores_at(server.url, request_payer=pays))
    assert server.asked
    for asked in server.asked:
        assert asked.headers.get("x-amz-request-payer") == ("requester" if pays else None)
        assert ("x-amz-request-payer" in asked.headers["authorization"]) is pays


def test_an_anonymous_pin_is_the_etag(server: HttpServer) -> None:
    """Public buckets rarely allow s3:GetObjectVersion, so no version is asked for."""
    where = at("a.zip")
    assert stores_at(server.url).source(where).head(where).version_id == "v1"
    for pin in (
        stores_at(server.url, unsigned=True).source(where).head(where),
        stores_at(server.url, unsigned=True).source(where).tail(where, 9).pin,
    ):
        assert (pin.etag, pin.version_id) == ('"e"', None)


@pytest.mark.parametrize("pays", [True, False])
def test_a_copy_says_who_pays_for_its_source(*, pays: bool) -> None:
    """Only UploadPartCopy has the header: it reads the archive with the writer's credentials."""
    begun = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"

    def answer_copy(asked: Asked) -> Reply:
        return Reply(200, begun) if asked.method == "POST" else Reply(400)

    with HttpServer(answer_copy) as server:
        out = stores_at(server.url, request_payer=pays).destination(at(""))
        assert isinstance(out, CopiesParts)
        upload = out.create_upload("k", ObjectFacts("a/b", {}))
        with pytest.raises(StorageError):
            out.copy_part(Upload("k", upload), 1, 0, at("a.zip"), PIN, WHOLE)
    began, copied = server.asked
    assert "x-amz-request-payer" not in began.headers
    assert copied.headers.get("x-amz-request-payer") == ("requester" if pays else None)
