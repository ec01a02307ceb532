"""Large bodies over slow links: to send one may take longer than to connect."""

import socket
import time
from zlib import crc32

import pytest

from s3unzip.model import Location
from s3unzip.stores.ports import Upload
from tests.contract.places import FACTS, raw_server, stores_at
from tests.patience import HANG_SECONDS

SIZE = 16 * 1024**2  # much more than the system keeps of the connection
PAUSE_SECONDS = 1.0


@pytest.mark.parametrize("call", ["part", "odd key"])
def test_a_body_may_wait_longer_than_a_connection(call: str) -> None:
    """A server that takes nothing for longer than a connection may take gets the whole body."""
    received: list[int] = []

    def answer(one: socket.socket) -> None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        one.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(PAUSE_SECONDS)
        while sum(received) < SIZE and (piece := one.recv(SIZE)):
            received.append(len(piece))
        one.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')

    with raw_server(answer) as host:
        stores = stores_at(f"http://{host}", connect_seconds=0.2, put_seconds=HANG_SECONDS)
        destination = stores.destination(Location("s3", "bucket", "a.zip"))
        body = bytes(SIZE)
        if call == "part":
            destination.upload_part(Upload("key", "id"), 1, 0, body, crc32(body))
        else:
            destination.put("odd//key", body, FACTS, if_absent=False)
    assert sum(received) == SIZE
