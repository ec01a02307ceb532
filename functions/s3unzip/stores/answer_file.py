"""The file that `http.client` reads an answer from: it refuses reads without a bound.

`http.client` takes the size of a chunk as a server wrote it, also a negative one: then it reads
to the end of the connection, however much comes, or raises what is no error of HTTP.
"""

from __future__ import annotations

import io
from http.client import HTTPException
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


class ChunkSizeError(HTTPException):
    """A server says that a chunk of its answer has a negative size."""


class AnswerFile(io.BufferedReader):
    """The bytes of one connection."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes.

        Raises:
            ChunkSizeError: the size is negative.
        """
        if size is None or size < 0:
            raise ChunkSizeError("a chunk of the answer has a negative size")
        return super().read(size)


class AnswerSocket:
    """A connected socket, as far as `http.client.HTTPResponse` needs it."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected

    def makefile(self, *_: object, **__: object) -> AnswerFile:
        """Return a file that reads from the socket."""
        return AnswerFile(self._connected.makefile("rb", buffering=0))
