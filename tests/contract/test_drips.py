"""Servers that send little at a time, or hang up again and again: S3 and the web."""

import contextlib
import random
import socket
import threading

import pytest

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Source
from s3unzip.zip import ByteRange
from tests.contract.places import stores_at
from tests.support.memory import ManualClock
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, raw_server

DATA = random.Random(1).randbytes(400_000)
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
    files = WebFiles(dict.fromkeys(KEYS.values(), DATA))
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
        assert (tail.data, tail.missing) == (DATA[-200_000:], 0)
        assert calls.read(source.pinned(where, tail.pin), ByteRange(0, 200_000)) == DATA[:200_000]
    assert sum(sent) == len(DATA)


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
