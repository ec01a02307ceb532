"""Large bodies over slow links: to send one may take longer than to connect."""

import socket
import threading
import time
from contextlib import closing
from zlib import crc32

import pytest
from msgspec.structs import replace

from s3unzip.model import Location
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.ports import Upload
from tests.contract.places import FACTS
from tests.patience import HANG_SECONDS
from tests.servers import HOST

SIZE = 16 * 1024**2  # much more than the system keeps of the connection
PAUSE_SECONDS = 1.0
WHERE = Location("s3", "bucket", "a.zip")


class SlowServer:
    """Lets a client wait before it takes one body."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._listener.bind((HOST, 0))
        self._listener.listen()
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.received = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with closing(self._listener.accept()[0]) as sock:
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(1)
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(PAUSE_SECONDS)
            while self.received < SIZE and (piece := sock.recv(SIZE)):
                self.received += len(piece)
            sock.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')

    def close(self) -> None:
        """Stop."""
        self._thread.join(HANG_SECONDS)
        self._listener.close()


@pytest.mark.parametrize("call", ["part", "odd key"])
def test_a_body_may_wait_longer_than_a_connection(call: str) -> None:
    """A server that takes nothing for longer than a connection may take gets the whole body."""
    server = SlowServer()
    access = StoreConfig(endpoint_url=server.url, connect_seconds=0.2, put_seconds=HANG_SECONDS)
    destination = open_stores(replace(access, work=Location("s3", "work", ""))).destination(WHERE)
    body = bytes(SIZE)
    if call == "part":
        destination.upload_part(Upload("key", "id"), 1, 0, body, crc32(body))
    else:
        destination.put("odd//key", body, FACTS, if_absent=False)
    server.close()
    assert server.received == SIZE
