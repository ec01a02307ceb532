"""Stores without ETags or suffix ranges, and servers that send little at a time or hang up."""

import contextlib
import random
import re
import socket
import threading

import pytest

from s3unzip.errors import ServiceFaultError, SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Source
from s3unzip.zip import ByteRange
from tests.contract.places import stores_at
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
