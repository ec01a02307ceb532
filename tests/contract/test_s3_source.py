"""Stores without ETags or suffix ranges, and servers that send little at a time or hang up."""

import contextlib
import random
import re
import socket
import threading
from collections.abc import Callable

import pytest
from mypy_boto3_s3 import S3Client

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import CopiesParts, Source, Upload
from s3unzip.zip import ByteRange
from tests.contract.conftest import session_of
from tests.contract.places import FACTS, Place, list_all, s3_place, stores_at
from tests.support.memory import ManualClock
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, raw_server, s3_error

DATA = bytes(range(256)) * 100
DATE, LATER = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:01 GMT"
ANY = Location("s3", "bucket", "a.zip")


class Store:
    """One object on a server, which describes it by the headers it is told to."""

    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}
        self.suffix: Reply | None = None  # the answer to a suffix range

    def __call__(self, asked: Asked) -> Reply:
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", asked.headers.get("range", ""))
        if found is None:
            return Reply(200, DATA, self.headers)
        if not found[1]:
            if self.suffix is not None:
                return self.suffix
            start, stop = len(DATA) - int(found[2]), len(DATA)
        else:
            start, stop = int(found[1]), int(found[2]) + 1
        told = {"Content-Range": f"bytes {start}-{stop - 1}/{len(DATA)}", **self.headers}
        return Reply(206, DATA[start:stop], told)


@pytest.mark.parametrize("key", ["plain/a.zip", "odd//a.zip"])
def test_an_object_without_an_etag_is_pinned_by_its_date(key: str) -> None:
    """It is read, and a change is seen, also by the answer's date alone."""
    store = Store(Last_Modified=DATE)
    where = Location("s3", "bucket", key)
    with HttpServer(store) as server:
        source = stores_at(server.url).source(ANY)
        tail = source.tail(where, 100)
        assert tail.data == DATA[-100:]
        assert source.stat(where) == tail._replace(data=b"")
        assert tail.modified == 1_445_412_480  # it begins the id of a run
        archive = source.pinned(where, tail.pin)
        assert b"".join(archive.stream(ByteRange(5, 10))) == DATA[5:10]
        assert b"".join(archive.stream(ByteRange(5, 500))) == DATA[5:500]
        assert "if-unmodified-since" not in server.asked[-1].headers  # gateways refuse it
        store.headers["Last-Modified"] = LATER
        with pytest.raises(SourceChangedError):
            b"".join(archive.stream(ByteRange(5, 10)))


def test_an_etag_that_looks_like_a_date_is_compared() -> None:
    """No month has 99 days, so it is an ETag, and its object is read."""
    with HttpServer(Store(ETag="Wed, 99 Oct 2015 07:28:00 GMT")) as server:
        archive = (
            stores_at(server.url)
            .source(ANY)
            .pinned(ANY, Pin(len(DATA), "Wed, 99 Oct 2015 07:28:00 GMT"))
        )
        assert b"".join(archive.stream(ByteRange(5, 10))) == DATA[5:10]


def test_an_object_with_nothing_to_pin_by_is_refused() -> None:
    """The message says what the store does not give, and what to do."""
    with (
        HttpServer(Store()) as server,
        pytest.raises(StorageError, match="neither an ETag nor a version nor a date"),
    ):
        stores_at(server.url).source(ANY).head(ANY)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, DATA, {"ETag": '"e"', "Last-Modified": DATE}),
        s3_error(416, "InvalidRange"),
        s3_error(501, "NotImplemented"),
        s3_error(400, "InvalidRange"),
    ],
    ids=["whole", "416", "501", "400"],
)
def test_a_store_without_suffix_ranges(answer: Reply) -> None:
    """The source requests the size first, then a range."""
    store = Store(ETag='"e"', Last_Modified=DATE)
    store.suffix = answer
    with HttpServer(store) as server:
        tail = stores_at(server.url).source(ANY).tail(ANY, 100)
    assert (tail.data, tail.pin.size) == (DATA[-100:], len(DATA))
    assert tail.modified == 1_445_412_480.0  # DATE


SENT = random.Random(1).randbytes(400_000)
KEYS = {"s3": "bucket/a.zip", "web": "a.zip"}
HEAD = b'HTTP/1.1 206 OK\r\nETag: "e"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
RANGE = b"Content-Range: bytes 0-99999/100000\r\nContent-Length: 100000\r\n\r\n"


def _locate(kind: str, url: str) -> tuple[Source, Location]:
    bucket, _, key = KEYS[kind].partition("/")
    location = Location("s3", bucket, key)
    if kind == "web":
        location = Location("http", url.partition("://")[2], KEYS[kind])
    return stores_at(url).source(location), location


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("size", [150_000, 7_000])
def test_a_server_that_always_hangs_up_is_read_to_the_end(kind: str, size: int) -> None:
    """Each request begins at the byte where the last one broke; no byte comes twice."""
    files = WebFiles(dict.fromkeys(KEYS.values(), SENT))
    sent = []

    def answer(asked: Asked) -> Reply:
        reply = files(asked)
        if asked.method == "HEAD" or reply.status != 206 or len(reply.body) <= size:
            sent.append(len(reply.body) if asked.method == "GET" else 0)
            return reply
        sent.append(size)
        return Reply(reply.status, reply.body, reply.headers, cut=size)

    with HttpServer(answer) as server:
        source, where = _locate(kind, server.url)
        calls = Calls(ManualClock(), 60.0, 4)
        tail = calls.tail(source, where, 200_000)
        assert (tail.data, tail.missing) == (SENT[-200_000:], 0)
        assert calls.read(source.pinned(where, tail.pin), ByteRange(0, 200_000)) == SENT[:200_000]
    assert sum(sent) == len(SENT)


@pytest.mark.parametrize("kind", KEYS)
def test_bytes_are_passed_on_as_they_come(kind: str) -> None:
    """The caller sees ten bytes, although the server sends no more before the caller has them."""
    have_come = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + RANGE + bytes(10))
        have_come.wait(60)

    with raw_server(answer) as host:
        source, where = _locate(kind, f"http://{host}")
        pieces = source.pinned(where, Pin(100_000, '"e"')).stream(ByteRange(0, 100_000))
        assert bytes(next(pieces)) == bytes(10)
        have_come.set()
        with contextlib.suppress(ServiceFaultError):
            list(pieces)


MIB = 1024**2


@pytest.fixture(params=["ministack", "versitygw"])
def s3(request: pytest.FixtureRequest, aws_variables: None) -> Place:
    url: str = request.getfixturevalue(request.param)
    return s3_place(request.param, session_of(url), takes_any_key=False)


def _control(place: Place) -> S3Client:
    assert place.session is not None
    return place.session.client("control")


def test_a_pinned_version_outlives_an_overwrite(s3: Place) -> None:
    """With versioning on, the version that was planned is read to its end."""
    _control(s3).put_bucket_versioning(
        Bucket=s3.root.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    old, new = b"old" * 3 * MIB, b"new" * 3 * MIB
    where = s3.fill("a.zip", old)
    pin = s3.source.tail(where, 10).pin
    assert pin.version_id
    assert s3.source.head(where) == pin
    s3.fill("a.zip", new)
    assert s3.source.head(where) != pin
    archive = s3.source.pinned(where, pin)
    assert b"".join(archive.stream(ByteRange(3, 9))) == b"oldold"
    assert b"".join(archive.stream(ByteRange(0, len(old)))) == old
    upload = Upload(s3.key("copy"), s3.destination.create_upload(s3.key("copy"), FACTS))
    assert isinstance(s3.destination, CopiesParts)
    part = s3.destination.copy_part(upload, 1, 0, where, pin, ByteRange(0, len(old)))
    s3.destination.complete_upload(upload, [part], if_absent=False)
    assert b"".join(s3.destination.read(s3.key("copy"))) == old


def test_type_encoding_and_metadata_are_stored(s3: Place) -> None:
    """Type, encoding and metadata are kept by single and by multipart uploads."""
    facts = FACTS.__class__("text/csv", {"zip-crc32": "cbf43926", "mode": "644"}, "gzip")
    s3.fill("single", b"123456789", facts)
    upload = Upload(s3.key("parts"), s3.destination.create_upload(s3.key("parts"), facts))
    part = s3.destination.upload_part(upload, 1, 0, b"123456789", 0xCBF43926)
    s3.destination.complete_upload(upload, [part], if_absent=True)
    for name in ("single", "parts"):
        answer = _control(s3).head_object(Bucket=s3.root.bucket, Key=s3.key(name))
        assert answer["ContentType"] == "text/csv"
        assert answer["ContentEncoding"] == "gzip"
        assert answer["Metadata"] == {"zip-crc32": "cbf43926", "mode": "644"}


def test_the_store_verifies_what_it_gets(s3: Place) -> None:
    """A single PUT is stored with its CRC64NVME, a part with a wrong CRC-32 is refused."""
    s3.fill("a", b"123456789")
    answer = _control(s3).head_object(
        Bucket=s3.root.bucket, Key=s3.key("a"), ChecksumMode="ENABLED"
    )
    assert answer["ChecksumCRC64NVME"] == "rosUhgp5mIg="
    upload = Upload(s3.key("b"), s3.destination.create_upload(s3.key("b"), FACTS))
    with pytest.raises(Exception, match=r"s3:PutObject s3://bucket.*/b: \w+"):
        s3.destination.upload_part(upload, 1, 0, b"flipped", 1)
    s3.destination.abort_upload(upload)


CALLS: list[Callable[[Stores, Location], object]] = [
    lambda stores, where: stores.source(where).tail(where, 10),
    lambda stores, where: stores.source(where).head(where),
    lambda stores, where: stores.destination(where).put("k", b"", FACTS, if_absent=False),
    lambda stores, where: list_all(stores.destination(where), ""),
    lambda stores, where: stores.destination(where).create_upload("k", FACTS),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_bucket(s3: Place, call: Callable[[Stores, Location], object]) -> None:
    """Every call says which bucket there is not."""
    stores = OpenedStores(StoreConfig(Location("s3", "no-such-bucket", "")), s3.session)
    with pytest.raises(NotFoundError, match="no-such-bucket"):
        call(stores, Location("s3", "no-such-bucket", "a.zip"))


@pytest.mark.parametrize("call", [CALLS[0], *CALLS[2:]])  # VersityGW's HEAD does not say why
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_bad_credentials(
    versitygw: str,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    call: Callable[[Stores, Location], object],
) -> None:
    """A server that checks credentials refuses them, and the message says which to check."""
    monkeypatch.setenv(variable, "wrong")
    with pytest.raises(AccessDeniedError) as caught:
        call(stores_at(versitygw), Location("s3", "bucket-of-none", "a.zip"))
    assert "testtest" not in str(caught.value)
