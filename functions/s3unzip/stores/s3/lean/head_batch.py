"""HEAD for many objects, by one thread over several connections.

A thread for each connection needs three times the CPU: most of it goes to changes of threads.
"""

from __future__ import annotations

import select
from http.client import HTTPException
from typing import TYPE_CHECKING

from s3unzip.stores.s3.answers import S3_ERRORS
from s3unzip.stores.s3.lean.client import read_head

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from s3unzip.stores.s3.lean.client import LeanClient


class HeadBatch:
    """One batch of HEAD requests; no request is tried again.

    Args:
        client: gives the connections and the requests.
        keys: of the objects.
    """

    def __init__(self, client: LeanClient, keys: Sequence[str]) -> None:
        self._client = client
        self._keys = keys
        self._answers: list[Mapping[str, str] | None] = [None] * len(keys)
        self._next = 0  # place of the next key
        self._waiting: dict[int, tuple[socket.socket, int]] = {}  # and the place, by descriptor
        self._poll = select.poll()
        self._is_refused = False  # the store may want fewer requests

    def run(self, connections: int) -> list[Mapping[str, str] | None]:
        """Return the headers of each object; None if a HEAD of its own must tell what is wrong.

        After the first answer with a status of 500 or more, nothing else is asked.
        """
        try:
            for _ in range(min(connections, len(self._keys))):
                self._open()
            while self._waiting and not self._is_refused:
                ready = self._poll.poll(1_000 * self._client.stall_seconds)
                if not ready:
                    break
                for descriptor, _ in ready:
                    self._receive(descriptor)
        except (OSError, *S3_ERRORS):  # no connection, or no credentials any more
            pass
        finally:
            for opened, _ in self._waiting.values():
                opened.close()
        return self._answers

    def _open(self) -> None:
        """Send the next request on a connection that is idle or new."""
        if self._next < len(self._keys):
            opened, _ = self._client.take()
            self._send(opened)

    def _send(self, opened: socket.socket) -> None:
        place = self._next
        self._next += 1
        self._waiting[opened.fileno()] = (opened, place)
        self._poll.register(opened, select.POLLIN)
        opened.sendall(self._client.head_request(self._keys[place]))

    def _receive(self, descriptor: int) -> None:
        """Take the answer to one request, and send the next on its connection."""
        opened, place = self._waiting.pop(descriptor)
        self._poll.unregister(opened)
        try:
            (status, headers, _), keeps = read_head(opened)
        except (OSError, HTTPException):
            opened.close()
            return
        if status == 200:
            self._answers[place] = headers
        self._is_refused = self._is_refused or status >= 500
        if not keeps:
            opened.close()
            self._open()
        elif self._next < len(self._keys) and not self._is_refused:
            self._send(opened)
        else:
            self._client.keep(opened)
