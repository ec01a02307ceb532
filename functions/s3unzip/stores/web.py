"""Archives on the web: ranges of one URL, each range held to the same validator.

Servers differ: some take no suffix range, some no If-Match, some no ranges at
all. What a server ignores is checked here in its answer. A URL is named
without its query, which may be a signature.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import urllib3
from urllib3.exceptions import (
    HTTPError,
    LocationValueError,
    MaxRetryError,
    ResponseError,
    SSLError,
)

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
from s3unzip.stores.ports import Tail
from s3unzip.zipformat.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3.response import BaseHTTPResponse

    from s3unzip.model import Location
    from s3unzip.stores.ports import Buffer

PIECE = 1024**2
REDIRECTS = 5
CONNECTIONS = 64  # kept open to one host
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class WebSource:
    """Reads archives from ``http`` and ``https`` URLs; threads may share it."""

    def __init__(self, connect_seconds: float = 10.0, stall_seconds: float = 30.0) -> None:
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS,
            timeout=urllib3.Timeout(connect=connect_seconds, read=stall_seconds),
            retries=urllib3.Retry(
                total=REDIRECTS, connect=0, read=0, redirect=REDIRECTS, status=0, other=0
            ),
            # A compressed body would have other ranges.
            headers={"User-Agent": "s3unzip", "Accept-Encoding": "identity"},
        )

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin, with one request where the server can.

        Raises:
            RangesUnsupportedError: the server sends the whole file whatever is asked.
        """
        with self.request("GET", location, {"Range": f"bytes=-{length}"}) as answer:
            if answer.status == 206:
                start, size = _answered(answer, location)
                data = _body(answer, location)
                if start + len(data) == size and len(data) == min(length, size):
                    return Tail(data, Pin(size, _validator(answer)))
                raise ServiceFaultError(f"{_name(location)}: {len(data)} bytes of the end came")
            if answer.status not in {200, 416, 501}:
                raise _refusal(answer.status, location)
        pin = self.head(location)
        want = ByteRange(max(0, pin.size - length), pin.size)
        return Tail(self.pinned(location, pin).read(want), pin)

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        with self.request("HEAD", location, {}) as answer:
            if answer.status != 200:
                raise _refusal(answer.status, location)
            size = answer.headers.get("Content-Length", "")
            if not size.isdigit():
                raise RangesUnsupportedError(
                    f"{_name(location)}: the server does not tell the size; download the archive"
                )
            return Pin(int(size), _validator(answer))

    def pinned(self, location: Location, pin: Pin) -> WebArchive:
        """Return a reader of exactly that version."""
        return WebArchive(self, location, pin)

    @contextmanager
    def request(
        self, method: str, location: Location, headers: dict[str, str]
    ) -> Iterator[BaseHTTPResponse]:
        """Hand out one answer, its body not yet read."""
        url = f"{location.scheme}://{location.bucket}/{location.key}"
        try:
            answer = self._pool.request(
                method, url, headers={**self._pool.headers, **headers}, preload_content=False
            )
            try:
                yield answer
            finally:
                # A body that was not read is not wanted: the connection goes with it.
                if answer.length_remaining == 0:
                    answer.drain_conn()
                else:
                    answer.close()
                answer.release_conn()
        except HTTPError as error:
            raise _fault(error, location) from None


class WebArchive:
    """One version of one archive; threads may share it."""

    def __init__(self, source: WebSource, location: Location, pin: Pin) -> None:
        self._source = source
        self._location = location
        self._pin = pin

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request."""
        return b"".join(self.stream(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request."""
        if not want.length:
            return
        name, came = _name(self._location), 0
        with self._source.request("GET", self._location, self._headers(want)) as answer:
            self._check(answer, want)
            for piece in answer.stream(PIECE, decode_content=False):
                came += len(piece)
                yield piece
        if came != want.length:
            raise ServiceFaultError(f"{name}: {came:,} of {want.length:,} bytes came")

    def _headers(self, want: ByteRange) -> dict[str, str]:
        headers = {"Range": f"bytes={want.start}-{want.stop - 1}"}
        etag = self._pin.etag
        if etag is not None and etag.startswith('"'):
            headers["If-Match"] = etag
        elif etag is not None and not etag.startswith("W/"):
            headers["If-Unmodified-Since"] = etag
        return headers

    def _check(self, answer: BaseHTTPResponse, want: ByteRange) -> None:
        name = _name(self._location)
        if answer.status == 200:
            raise RangesUnsupportedError(
                f"{name}: the server does not answer range requests; download the archive"
            )
        if answer.status in {404, 410, 412, 416}:
            raise SourceChangedError(
                f"{name}: HTTP {answer.status}; the archive changed since it was planned"
            )
        if answer.status != 206:
            raise _refusal(answer.status, self._location)
        start, size = _answered(answer, self._location)
        found = _validator(answer)
        if size != self._pin.size or (self._pin.etag and found and found != self._pin.etag):
            raise SourceChangedError(f"{name}: the archive changed since it was planned")
        if start != want.start:
            raise ServiceFaultError(f"{name}: asked for byte {want.start}, got {start}")


def _name(location: Location) -> str:
    host = location.bucket.rpartition("@")[2]
    return f"{location.scheme}://{host}/{location.key.partition('?')[0]}"


def _validator(answer: BaseHTTPResponse) -> str | None:
    """Return the ETag, else the date of the last change, else nothing."""
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified")


def _answered(answer: BaseHTTPResponse, location: Location) -> tuple[int, int]:
    """Return where the answered range begins, and the size of the whole."""
    found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if found is None:
        raise RangesUnsupportedError(
            f"{_name(location)}: the server's Content-Range makes no sense; download the archive"
        )
    return int(found[1]), int(found[3])


def _body(answer: BaseHTTPResponse, location: Location) -> bytes:
    try:
        return answer.read(decode_content=False)
    except HTTPError as error:
        raise _fault(error, location) from None


def _refusal(status: int, location: Location) -> S3UnzipError:
    text = f"{_name(location)}: HTTP {status}"
    if status in {401, 403}:
        return AccessDeniedError(f"{text}; the link may have expired")
    if status in {404, 410}:
        return NotFoundError(f"{text}; check the URL")
    if status in {429, 503}:
        return ThrottledError(text)
    if status >= 500 or status == 408:
        return ServiceFaultError(text)
    return StorageError(text)


def _fault(error: HTTPError, location: Location) -> S3UnzipError:
    # A MaxRetryError repeats the URL with its query; its reason does not.
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, ResponseError):
        return StorageError(f"{_name(location)}: more than {REDIRECTS} redirects")
    if isinstance(reason, SSLError):
        return StorageError(f"{_name(location)}: {reason}; check the certificate and SSL_CERT_FILE")
    if isinstance(reason, LocationValueError):
        return StorageError(f"{_name(location)}: not a URL")
    return ServiceFaultError(f"{_name(location)}: {type(reason).__name__}: {_last_words(reason)}")


def _last_words(error: Exception) -> str:
    return str(error).rpartition(": ")[2][:200]
