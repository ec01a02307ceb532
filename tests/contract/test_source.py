"""What every source promises, stores that know less, servers that hang up, and S3 itself."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import replace as replace_field
from functools import partial

import pytest
from msgspec.structs import replace
from mypy_boto3_s3 import S3Client

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    UsageError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores import Stores, archives, config, ports
from s3unzip.stores.calls import Calls
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import S3Source
from s3unzip.zip import ByteRange
from tests.contract.conftest import (
    FACTS,
    Place,
    list_all,
    read_range,
    refuse,
    scripted,
    stores_at,
)
from tests.support import memory, zips
from tests.support.servers import (
    Asked,
    HttpServer,
    Reply,
    WebFiles,
    raw_server,
    s3_error,
    serve_range,
)

MIB = 1024**2
DATA = random.Random(1).randbytes(3_000_001)


@pytest.mark.parametrize("data", [DATA, b"0123456789", b""])
def test_tail_gives_the_end_and_the_pin(place: Place, data: bytes) -> None:
    """The last bytes come with size and version; of a small archive all of them, or none."""
    where = place.fill("a.zip", data)
    tail = place.source.tail(where, 1_000)
    assert (tail.data, tail.pin.size) == (data[-1_000:], len(data))
    assert tail.pin.etag
    assert place.source.stat(where) == tail._replace(data=b"")


def test_ranges_are_exact(place: Place) -> None:
    """Every range is the slice it names, also one of tens of MiB, and comes in pieces."""
    data = random.Random(2).randbytes(24 * MIB)
    size = len(data)
    where = place.fill("a.zip", data)
    archive = place.source.pinned(where, place.source.stat(where).pin)
    for start, stop in [
        (0, 1),
        (11, size),
        (0, size),
        (size - 1, size),
        (1_000, 1_001),
        (5, 2_000_000),
        (7, 7),
    ]:
        pieces = list(archive.stream(ByteRange(start, stop)))
        assert b"".join(pieces) == data[start:stop]
        assert all(len(piece) <= 4 * MIB for piece in pieces)


@pytest.mark.parametrize(
    "change",
    [
        lambda place: place.fill("a.zip", DATA[::-1]),
        lambda place: place.destination.delete([place.key("a.zip")]),
    ],
    ids=["overwritten", "deleted"],
)
def test_an_archive_that_changes_between_two_reads(
    place: Place, change: Callable[[Place], object]
) -> None:
    """The second range is refused, never mixed in."""
    where, pin = place.fill_pinned("a.zip", DATA)
    assert read_range(place.source, where, pin, 0, 4) == DATA[:4]
    change(place)
    with pytest.raises(SourceChangedError, match=r"a\.zip"):
        read_range(place.source, where, pin, 4, 8)


def test_the_parts_of_a_split_archive(place: Place) -> None:
    """Parts beside each other are read as one, each pinned to its version."""
    parts = zips.build_split(
        *(zips.Entry(f"{n}.txt", b"%d " % n * 700) for n in range(9)), sizes=[3_000] * 2
    )
    whole = b"".join(parts)
    wheres = list(map(place.fill, zips.part_names("a", len(parts)), parts))
    calls = Calls(memory.ManualClock(), 1.0, 4)
    look = partial(
        archives.read_whole_tail, place.source, wheres[-1], calls, length=1_000, max_parts=10
    )
    tail = look()
    assert (tail.refusal, tail.pin.size) == (None, len(whole))
    assert whole.endswith(tail.data)
    archive = place.source.pinned(wheres[-1], tail.pin)
    for start, stop in ((0, len(whole)), (2_999, 3_001), (3_000, 6_001), (7, 7)):
        assert calls.read(archive, ByteRange(start, stop)) == whole[start:stop]
    place.fill("a.z02", parts[1][::-1])
    assert calls.read(archive, ByteRange(0, 10)) == whole[:10]
    with pytest.raises(SourceChangedError, match=r"a\.z02"):
        calls.read(archive, ByteRange(2_999, 3_001))
    place.destination.delete([wheres[0].key])
    refusal = look().refusal
    assert refusal is not None
    assert refusal.message == "a.z01, part 1 of 3"


@pytest.mark.parametrize(
    "ask",
    [lambda source, where: source.tail(where, 10), lambda source, where: source.stat(where)],
    ids=["tail", "stat"],
)
def test_an_archive_that_is_not_there(
    place: Place, ask: Callable[[archives.Source, Location], object]
) -> None:
    """The error names it."""
    with pytest.raises(NotFoundError, match="nothing"):
        ask(place.source, place.at("nothing.zip"))


def test_a_version_is_deleted_once(place: Place) -> None:
    """The archive is gone, and a second attempt finds that."""
    where, pin = place.fill_pinned("a.zip", b"first")
    for _ in range(2):
        place.source.delete(where, pin)
        with pytest.raises(NotFoundError):
            place.source.stat(where)


def test_a_newer_archive_is_never_deleted(place: Place) -> None:
    """What was put over the archive since its run stays."""
    where, pin = place.fill_pinned("a.zip", b"first")
    place.fill("a.zip", b"second one")
    with pytest.raises(SourceChangedError, match="newer"):
        place.source.delete(where, pin)
    assert place.source.tail(where, 100).data == b"second one"


Versions = tuple[S3Client, S3Source, Location]


@pytest.fixture
def versions(ministack: str) -> Versions:
    """A place for an archive in a bucket that keeps versions."""
    session = Session(AwsSession(config.StoreConfig(endpoint_url=ministack, region="us-east-1")))
    bucket, s3 = f"versions-{id(session)}", session.client("control")
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return s3, S3Source(session), Location("s3", bucket, "a.zip")


def _put(s3: S3Client, where: Location, body: bytes) -> Pin:
    answer = s3.put_object(Bucket=where.bucket, Key=where.key, Body=body, Tagging="team=red")
    return Pin(len(body), answer["ETag"], answer["VersionId"])


def bodies(s3: S3Client, bucket: str) -> list[bytes]:
    """Return what all versions of a bucket hold; delete markers are none."""
    return sorted(
        s3.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])["Body"].read()
        for one in s3.list_object_versions(Bucket=bucket).get("Versions", [])
    )


def test_one_version_of_several_is_tagged_and_deleted(versions: Versions) -> None:
    """Tags are added to those of the version that was extracted; it is gone for good, no other."""
    s3, source, where = versions
    pins = [_put(s3, where, body) for body in (b"first", b"second")]
    for _ in range(2):
        source.tag(where, pins[0], {"state": "extracted"})
    assert [source.tags(where, pin) for pin in pins] == [
        {"team": "red", "state": "extracted"},
        {"team": "red"},
    ]
    for _ in range(2):
        source.delete(where, pins[0])
        assert bodies(s3, where.bucket) == [b"second"]


def test_tagging_is_refused(versions: Versions) -> None:
    """Too many tags, a version that is gone, and a bucket without versions are refused."""
    s3, source, where = versions
    pin = _put(s3, where, b"first")
    with pytest.raises(StorageError, match="would have 11 tags, but S3 allows at most 10"):
        source.tag(where, pin, {str(number): "x" for number in range(10)})
    with pytest.raises(StorageError, match="bucket without versioning"):
        source.tag(where, replace(pin, version_id="null"), {"a": "b"})
    source.delete(where, pin)
    with pytest.raises(SourceChangedError, match="gone"):
        source.tag(where, pin, {"a": "b"})


@pytest.mark.parametrize("pin", [Pin(5), Pin(5, "Mon, 01 Jan 2024 00:00:00 GMT")])
def test_an_archive_without_version_and_etag_is_left(versions: Versions, pin: Pin) -> None:
    """A date alone cannot tell a newer archive apart."""
    s3, source, where = versions
    _put(s3, where, b"first")
    with pytest.raises(StorageError, match="neither versions nor strong ETags"):
        source.delete(where, pin)
    assert bodies(s3, where.bucket) == [b"first"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_file_has_no_tags(place: Place) -> None:
    """A request to tag a file is refused."""
    where, pin = place.fill_pinned("a.zip", b"first")
    with pytest.raises(UsageError, match="only s3:// objects can be tagged"):
        place.source.tag(where, pin, {"a": "b"})
    assert place.source.tags(where, pin) == {}


WEB = Location("https", "example.org", "a.zip")


@pytest.mark.parametrize(
    "ask",
    [
        lambda stores: stores.source(Location("ftp", "host", "a.zip")),
        lambda stores: stores.destination(WEB),
        lambda stores: stores.run_store("run"),
        lambda stores: stores.source(WEB).delete(WEB, Pin(1)),
    ],
    ids=["source", "destination", "run store", "deletion"],
)
def test_an_unknown_scheme_is_refused(ask: Callable[[Stores], object]) -> None:
    """The message says what there is."""
    with pytest.raises(UsageError, match="s3://"):
        ask(OpenedStores(config.StoreConfig(WEB)))


OBJECT = bytes(range(256)) * 100
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
MODIFIED = 1_445_412_480.0  # the same; it begins the id of a run
ANY = Location("s3", "bucket", "a.zip")


class Store:
    """One object on a server, which describes it by the headers it is told to."""

    def __init__(self, *, suffix: Reply | None = None, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}
        self.suffix = suffix  # the answer to a suffix range

    def __call__(self, asked: Asked) -> Reply:
        if asked.method == "DELETE":
            return Reply(204)
        text = asked.headers.get("range", "")
        if self.suffix is not None and text.startswith("bytes=-"):
            return self.suffix
        return serve_range(OBJECT, text, self.headers)


@pytest.mark.parametrize("key", ["plain/a.zip", "odd//a.zip"])
@pytest.mark.parametrize("refused", ["if-match", "nothing"])
@pytest.mark.parametrize(
    ("header", "old", "new"),
    [
        ("Last-Modified", DATE, "Wed, 21 Oct 2015 07:28:01 GMT"),
        *(("ETag", etag, '"f"') for etag in ('"e"', 'W/"e"', "e", DATE.replace("21", "99"))),
    ],
)
@pytest.mark.parametrize(
    "begin",
    [
        lambda source, where, pin: read_range(source, where, pin, 5, 10),
        lambda source, where, pin: source.delete(where, pin),
    ],
    ids=["read first", "delete first"],
)
def test_a_server_that_refuses_or_ignores_conditions(
    header: str, old: str, new: str, refused: str, key: str, begin: Callable[..., object]
) -> None:
    """Without one, the object is read and deleted; the ETag or the date shows a change."""
    store = Store(suffix=None, **{header: old})
    where = Location("s3", "bucket", key)
    refusal = s3_error(412, "PreconditionFailed")
    with scripted(lambda asked: refusal if refused in asked.headers else store(asked)) as served:
        source = served[0].source(ANY)
        # A strong ETag is refused once. Without one, nothing is deleted.
        with contextlib.suppress(ServiceFaultError, StorageError):
            begin(source, where, source.stat(where).pin)
        tail = source.tail(where, 100)
        assert tail.data == OBJECT[-100:]
        assert source.stat(where) == tail._replace(data=b"")
        assert read_range(source, where, tail.pin, 5, 10) == OBJECT[5:10]
        assert "if-unmodified-since" not in served[1][-1].headers  # gateways refuse it
        if tail.pin.has_strong_etag:
            source.delete(where, tail.pin)
            assert served[1][-1].method == "DELETE"
        store.headers[header] = new
        with pytest.raises(SourceChangedError):
            read_range(source, where, tail.pin, 5, 10)


def test_a_server_that_sends_bodies_in_chunks() -> None:
    """A proxy may leave out the length of a body; the next attempt reads such an object."""
    store = Store(ETag='"e"')

    def answer(asked: Asked) -> Reply:
        reply = store(asked)
        if asked.method == "HEAD":
            return reply
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(reply.body), reply.body)
        return Reply(reply.status, body, reply.headers | {"Transfer-Encoding": "chunked"})

    with scripted(answer) as (stores, _):
        source = stores.source(ANY)
        with pytest.raises(ServiceFaultError, match="Content-Length"):
            source.tail(ANY, 100)
        assert source.tail(ANY, 100).data == OBJECT[-100:]


def test_an_object_with_nothing_to_pin_by_is_refused() -> None:
    """The message says what the store does not give, and what to do."""
    refuse(
        lambda stores: stores.source(ANY).stat(ANY),
        Store(),
        StorageError,
        r"nor a version nor a date, .* that the endpoint is an S3 serv",
    )


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, OBJECT, {"ETag": '"e"', "Last-Modified": DATE}),
        s3_error(416, "InvalidRange"),
        s3_error(501, "NotImplemented"),
        s3_error(400, "InvalidRange"),
    ],
    ids=["whole", "416", "501", "400"],
)
def test_a_store_without_suffix_ranges(answer: Reply) -> None:
    """The source requests the size first, then a range."""
    with scripted(Store(suffix=answer, ETag='"e"', Last_Modified=DATE)) as (stores, _):
        tail = stores.source(ANY).tail(ANY, 100)
    assert (tail.data, tail.pin.size, tail.modified) == (OBJECT[-100:], len(OBJECT), MODIFIED)


SENT = random.Random(1).randbytes(400_000)
HEAD = (
    b'HTTP/1.1 206 OK\r\nETag: "e"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
    b"Content-Range: bytes 0-99999/100000\r\nContent-Length: 100000\r\n\r\n"
)
LOCATE: dict[str, Callable[[str], Location]] = {
    "s3": lambda _: ANY,
    "web": lambda url: Location("http", url.partition("://")[2], ANY.key),
}


@pytest.mark.parametrize("kind", LOCATE)
@pytest.mark.parametrize("size", [150_000, 7_000])
def test_a_server_that_always_hangs_up_is_read_to_the_end(kind: str, size: int) -> None:
    """Each request begins at the byte where the last one broke; no byte comes twice."""
    files = WebFiles(dict.fromkeys((f"bucket/{ANY.key}", ANY.key), SENT))
    sent = []

    def answer(asked: Asked) -> Reply:
        reply = files(asked)
        if reply.status == 206:
            reply = replace_field(reply, cut=size)
        if asked.method == "GET":
            sent.append(min(len(reply.body), reply.cut or len(reply.body)))
        return reply

    with HttpServer(answer) as server:
        where = LOCATE[kind](server.url)
        source = stores_at(server.url).source(where)
        calls = Calls(memory.ManualClock(), 60.0, 4)
        tail = archives.read_end(source, where, calls, 200_000)
        assert tail.data == SENT[-200_000:]
        assert calls.read(source.pinned(where, tail.pin), ByteRange(0, 200_000)) == SENT[:200_000]
    assert sum(sent) == len(SENT)


@pytest.mark.parametrize("kind", LOCATE)
def test_bytes_are_passed_on_as_they_come(kind: str) -> None:
    """The caller sees ten bytes, although the server sends no more before the caller has them."""
    have_come = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + bytes(10))
        have_come.wait(60)

    with raw_server(answer) as host:
        where = LOCATE[kind](f"http://{host}")
        source = stores_at(f"http://{host}").source(where)
        pieces = source.stream(where, Pin(100_000, '"e"'), ByteRange(0, 100_000))
        assert bytes(next(pieces)) == bytes(10)
        have_come.set()
        with contextlib.suppress(ServiceFaultError):
            list(pieces)


each_server = pytest.mark.parametrize("place", ["ministack", "versitygw"], indirect=True)


def _control(place: Place) -> S3Client:
    assert place.session is not None
    return place.session.client("control")


@each_server
def test_a_pinned_version_outlives_an_overwrite(place: Place) -> None:
    """With versioning on, the version that was planned is read to its end."""
    _control(place).put_bucket_versioning(
        Bucket=place.root.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    old = b"old" * 3 * MIB
    where = place.fill("a.zip", old)
    pin = place.source.tail(where, 10).pin
    assert pin.version_id
    assert place.source.stat(where).pin == pin
    place.fill("a.zip", b"new" * 3 * MIB)
    assert place.source.stat(where).pin != pin
    assert read_range(place.source, where, pin, 3, 9) == b"oldold"
    assert read_range(place.source, where, pin, 0, len(old)) == old
    upload = place.begin("copy")
    place.destination.complete_upload(
        upload,
        [place.destination.copy_part(upload, 1, 0, where, pin, ByteRange(0, len(old)))],
        if_absent=False,
    )
    assert b"".join(place.destination.read(upload.key)) == old


@each_server
def test_type_encoding_and_metadata_are_stored(place: Place) -> None:
    """Type, encoding and metadata are kept by single and by multipart uploads."""
    facts = ports.ObjectFacts("text/csv", {"zip-crc32": "cbf43926", "mode": "644"}, "gzip")
    place.fill("single", b"123456789", facts)
    upload = place.begin("parts", facts)
    place.destination.complete_upload(
        upload,
        [place.destination.upload_part(upload, 1, 0, b"123456789", 0xCBF43926)],
        if_absent=True,
    )
    for name in ("single", "parts"):
        answer = _control(place).head_object(Bucket=place.root.bucket, Key=place.key(name))
        assert facts == ports.ObjectFacts(
            answer["ContentType"], answer["Metadata"], answer["ContentEncoding"]
        ), name


@each_server
def test_the_store_verifies_what_it_gets(place: Place) -> None:
    """A single PUT is stored with its CRC64NVME, a part with a wrong CRC-32 is refused."""
    where = place.fill("a", b"123456789")
    assert (
        _control(place).head_object(Bucket=where.bucket, Key=where.key, ChecksumMode="ENABLED")[
            "ChecksumCRC64NVME"
        ]
        == "rosUhgp5mIg="
    )
    upload = place.begin("b")
    with pytest.raises(S3UnzipError, match=r"s3:PutObject s3://bucket.*/b: \w+"):
        place.destination.upload_part(upload, 1, 0, b"flipped", 1)
    place.destination.abort_upload(upload)


CALLS: list[Callable[[Stores, Location], object]] = [
    lambda stores, where: stores.source(where).tail(where, 10),
    lambda stores, where: stores.source(where).stat(where).pin,
    lambda stores, where: stores.destination(where).put("k", b"", FACTS, if_absent=False),
    lambda stores, where: list_all(stores.destination(where), ""),
    lambda stores, where: stores.destination(where).create_upload("k", FACTS),
]


@each_server
@pytest.mark.parametrize("call", CALLS)
def test_a_missing_bucket(place: Place, call: Callable[[Stores, Location], object]) -> None:
    """Every call says which bucket there is not."""
    stores = OpenedStores(config.StoreConfig(Location("s3", "no-such-bucket", "")), place.session)
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
