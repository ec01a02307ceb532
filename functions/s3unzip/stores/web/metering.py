"""Sockets that stop reading from a server that is too slow or sends too much.

A timeout of a socket counts from one byte to the next: a server that sends a byte a second, or a
header line a second, never exceeds it. So waiting is
metered. An answer's head has `stall_seconds` in all and a limit in bytes. Its
body may be waited for `stall_seconds`, and each `min_rate` bytes give a second
back: a request ends after `stall_seconds` + size / `min_rate` at the latest.
Only waiting counts, not what the caller does between two reads.
"""

from __future__ import annotations

import io
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from s3unzip.stores.answer_file import AnswerFile
from s3unzip.stores.web.access import MAX_HEAD_BYTES

if TYPE_CHECKING:
    import socket

    from _typeshed import WriteableBuffer

    from s3unzip.stores.web.access import WebAccess


class LongHeadError(HTTPException):
    """The head of an answer does not end."""


class Meter:
    """The time that one connection may still wait."""

    def __init__(self, access: WebAccess) -> None:
        self._stall = access.stall_seconds
        self._min_rate = access.min_rate
        self.begin_head()

    def begin_head(self) -> None:
        """Begin to wait for the head of an answer."""
        self._in_head = True
        self._head_bytes = 0
        self._left = self._stall

    def begin_body(self) -> None:
        """Begin to wait for a body."""
        self._in_head = False
        self._left = self._stall

    def seconds_left(self) -> float:
        """Return how long the next read may take.

        Raises:
            TimeoutError: no time is left.
        """
        if self._left <= 0:
            raise TimeoutError("timed out")
        return self._left

    def count(self, size: int, seconds: float) -> None:
        """Note that `size` bytes came after `seconds`.

        Raises:
            LongHeadError: the head is too long.
        """
        self._left -= seconds
        if not self._in_head:
            self._left = min(self._stall, self._left + size / self._min_rate)
            return
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise LongHeadError(f"more than {MAX_HEAD_BYTES:,} bytes of headers")


class MeteredSocket:
    """A connected socket whose reads are metered; all else is the socket's."""

    def __init__(self, connected: socket.socket, meter: Meter) -> None:
        self._connected = connected
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def makefile(self, *_: object, **__: object) -> AnswerFile:
        """Return a file that reads from the socket, as `http.client` asks for it."""
        return AnswerFile(_MeteredReader(self._connected, self._meter))


class _MeteredReader(io.RawIOBase):
    def __init__(self, connected: socket.socket, meter: Meter) -> None:
        self._connected = connected
        self._meter = meter
        self._raw = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._connected.settimeout(self._meter.seconds_left())
        began = time.monotonic()
        size = self._raw.readinto(buffer)
        self._meter.count(size or 0, time.monotonic() - began)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
