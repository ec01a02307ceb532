"""HTTP/1.1 on a blocking socket, just enough to pass it on: heads, bodies, chunks."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

PIECE = 256 * 1024
HEAD = 64 * 1024  # bytes of a head, at most
NO_BODY = frozenset({204, 304})


class Link:
    """So many bytes a second: who comes later waits for who came before."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0

    def carry(self, size: int) -> None:
        """Wait until `size` bytes are through."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


class Wire:
    """A socket with a buffer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._held = bytearray()

    def head(self) -> bytes | None:
        """Return a head with its empty line, None where the other side has ended."""
        while (at := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > HEAD or not self._more():
                return None
        return self._take(at + 4)

    def body(self, fields: dict[bytes, bytes], *, endless: bool = False) -> Iterator[bytes]:
        """Yield a body as it is on the wire, chunk lines included.

        Raises:
            ConnectionError: the other side ended before the body did.
        """
        if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            yield from self._chunks()
        elif b"content-length" in fields:
            yield from self._exactly(int(fields[b"content-length"]))
        elif endless:
            while self._held or self._more():
                yield self._take(len(self._held))

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.sock.sendall(data)

    def close(self, *, reset: bool = False) -> None:
        """End the connection, with a RST if asked."""
        with contextlib.suppress(OSError):
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def _more(self) -> bool:
        data = self.sock.recv(PIECE)
        self._held += data
        return bool(data)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._held and not self._more():
                raise ConnectionError("the body is too short")
            taken = self._take(min(size, len(self._held)))
            size -= len(taken)
            yield taken

    def _chunks(self) -> Iterator[bytes]:
        while True:
            while (at := self._held.find(b"\r\n")) < 0:
                if not self._more():
                    raise ConnectionError("a chunk's size is missing")
            line = self._take(at + 2)
            yield line
            size = int(line.split(b";")[0], 16)
            yield from self._exactly(size + 2)
            if not size:
                return
