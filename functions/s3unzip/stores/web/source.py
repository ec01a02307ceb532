"""Archives on the web: ranges of one URL, each range held to the same validator.

Servers differ: some take no suffix range, some no If-Match, some no ranges at
all. What a server ignores is checked here in its answer. A server may also be
hostile: nothing of a body is read beyond what was asked for, and numbers are
parsed with bounds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    RangesUnsupportedError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    ThrottledError,
)
from s3unzip.model import Pin
from s3unzip.stores.calls import count_request
from s3unzip.stores.ports import Tail
from s3unzip.stores.web.access import WebAccess
from s3unzip.stores.web.requests import WebRequests, show
from s3unzip.zip import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.response import BaseHTTPResponse

    from s3unzip.model import Location
    from s3unzip.stores.ports import Buffer

PIECE = 1024**2
DOWNLOAD = "download the archive, or add --allow download"
MAX_VALIDATOR = 1024  # characters of an ETag or a date; it goes with each request
# [0-9], for \d takes the digits of all scripts; 19 of them are more than any size.
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_LENGTH = re.compile(r"[0-9]{1,19}")


class WebSource:
    """Reads archives from ``http`` and ``https`` URLs; threads may share it."""

    def __init__(self, access: WebAccess | None = None) -> None:
        self._requests = WebRequests(access or WebAccess())

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin, with one request where the server can.

        Raises:
            RangesUnsupportedError: the server sends the whole file whatever is asked.
        """
        with self._requests.send("GET", location, {"Range": f"bytes=-{length}"}) as answer:
            if answer.status == 206:
                span, size = _answered(answer, location)
                if span != ByteRange(max(0, size - length), size):
                    raise ServiceFaultError(
                        f"{show(location)}: asked for the last {length:,} bytes, got others"
                    )
                data = b"".join(_body(answer, span.length, location))
                return Tail(data, Pin(size, _validator(answer)))
            if answer.status not in {200, 416, 501}:
                raise _refusal(answer.status, location)
        count_request("head")
        pin = self.head(location)
        count_request("get")
        want = ByteRange(max(0, pin.size - length), pin.size)
        return Tail(self.pinned(location, pin).read(want), pin)

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        with self._requests.send("HEAD", location, {}) as answer:
            if answer.status != 200:
                raise _refusal(answer.status, location)
            size = answer.headers.get("Content-Length", "")
            if not _LENGTH.fullmatch(size):
                raise RangesUnsupportedError(
                    f"{show(location)}: the server does not tell the size; {DOWNLOAD}"
                )
            return Pin(int(size), _validator(answer))

    def download(
        self,
        location: Location,
        begin: Callable[[int | None], None],
        write: Callable[[bytes], None],
    ) -> Pin | None:
        """Give the whole archive to `write`, if the server answers no range requests.

        With one request; with two if its answer to a range makes no sense.

        Args:
            location: of the archive.
            begin: is told the size before the first byte; None: the server does not tell it.
            write: takes the bytes in pieces.

        Returns:
            The pin; None if the archive can be read in ranges, or not at all.

        Raises:
            ServiceFaultError: the body ended early.
        """
        for headers in ({"Range": "bytes=0-0"}, {}):
            with self._requests.send("GET", location, headers) as answer:
                if answer.status == 200:
                    return _take_body(answer, location, begin, write)
                if answer.status != 206 or _CONTENT_RANGE.fullmatch(
                    answer.headers.get("Content-Range", "")
                ):
                    return None
            count_request("get")
        return None

    def pinned(self, location: Location, pin: Pin) -> WebArchive:
        """Return a reader of exactly that version."""
        return WebArchive(self._requests, location, pin)


class WebArchive:
    """One version of one archive; threads may share it."""

    def __init__(self, requests: WebRequests, location: Location, pin: Pin) -> None:
        self._requests = requests
        self._location = location
        self._pin = pin

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request."""
        return b"".join(self.stream(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request."""
        if not want.length:
            return
        headers = self._headers(want)
        with self._requests.send("GET", self._location, headers) as answer:
            self._check(answer, want)
            yield from _body(answer, want.length, self._location)

    def _headers(self, want: ByteRange) -> dict[str, str]:
        headers = {"Range": f"bytes={want.start}-{want.stop - 1}"}
        etag = self._pin.etag
        if etag is not None and etag.startswith('"'):
            headers["If-Match"] = etag
        elif etag is not None and not etag.startswith("W/"):
            headers["If-Unmodified-Since"] = etag
        return headers

    def _check(self, answer: BaseHTTPResponse, want: ByteRange) -> None:
        name = show(self._location)
        if answer.status == 200:
            raise RangesUnsupportedError(
                f"{name}: the server does not answer range requests; {DOWNLOAD}"
            )
        if answer.status in {404, 410, 412, 416}:
            raise SourceChangedError(
                f"{name}: HTTP {answer.status}; the archive changed since it was planned"
            )
        if answer.status != 206:
            raise _refusal(answer.status, self._location)
        span, size = _answered(answer, self._location)
        found = _validator(answer)
        if size != self._pin.size or (self._pin.etag and found and found != self._pin.etag):
            raise SourceChangedError(f"{name}: the archive changed since it was planned")
        if span != want:
            raise ServiceFaultError(
                f"{name}: asked for bytes {want.start:,} to {want.stop:,}, "
                f"got {span.start:,} to {span.stop:,}"
            )


def _take_body(
    answer: BaseHTTPResponse,
    location: Location,
    begin: Callable[[int | None], None],
    write: Callable[[bytes], None],
) -> Pin:
    """Give the whole body to `write`; check that it has the declared length."""
    told = answer.headers.get("Content-Length", "")
    size = int(told) if _LENGTH.fullmatch(told) else None
    begin(size)
    came = 0
    while piece := answer.read(PIECE, decode_content=False):
        came += len(piece)
        write(piece)
    if size is not None and came != size:
        raise ServiceFaultError(f"{show(location)}: {came:,} of {size:,} bytes came")
    return Pin(came, _validator(answer))


def _validator(answer: BaseHTTPResponse) -> str | None:
    """Return the ETag, else the date of the last change, else nothing."""
    found = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    return found if found and len(found) <= MAX_VALIDATOR else None


def _answered(answer: BaseHTTPResponse, location: Location) -> tuple[ByteRange, int]:
    """Return the range that was answered, and the size of the whole."""
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None:
        raise RangesUnsupportedError(
            f"{show(location)}: the server's Content-Range makes no sense; {DOWNLOAD}"
        )
    return ByteRange(int(found[1]), int(found[2]) + 1), int(found[3])


def _body(answer: BaseHTTPResponse, length: int, location: Location) -> Iterator[bytes]:
    """Yield `length` bytes of a body in pieces; what follows them is not read."""
    left = length
    while left and (piece := answer.read(min(PIECE, left), decode_content=False)):
        left -= len(piece)
        yield piece
    if left:
        raise ServiceFaultError(f"{show(location)}: {length - left:,} of {length:,} bytes came")


def _refusal(status: int, location: Location) -> S3UnzipError:
    text = f"{show(location)}: HTTP {status}"
    if status in {401, 403}:
        return AccessDeniedError(f"{text}; the link may have expired")
    if status in {404, 410}:
        return NotFoundError(f"{text}; check the URL")
    if status in {429, 503}:
        return ThrottledError(text)
    if status >= 500 or status == 408:
        return ServiceFaultError(text)
    return StorageError(text)
