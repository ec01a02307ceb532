"""Archives on the web: ranges of one URL, each range held to the same validator.

Servers differ: some take no suffix range, some no If-Match, some no ranges at all. What a server
ignores is checked here in its answer: size and ETag (or date) are compared each time, nothing of a
body is read beyond what was asked for, and numbers are parsed with bounds. A redirect is followed
within its host, and to another host only with `StoreConfig.other_hosts`. Credentials of the URL go
to its own host and nowhere else. URLs are named without user and query: both may be secrets.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import partial
from html import unescape
from http.client import responses
from typing import NamedTuple
from urllib.parse import unquote, urljoin
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import Url, make_headers, parse_url

from s3unzip import errors
from s3unzip.model import Location, Pin
from s3unzip.stores.archives import ArchiveSource
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import PIECE, Buffer, Tail
from s3unzip.zip import ByteRange

MAX_REDIRECTS = 5
CONNECTIONS = 64  # kept open to one host
DOWNLOAD = "download the archive first: curl -o archive.zip URL"
CHANGED = "the archive changed since it was planned"
WITHOUT_SUFFIX = frozenset({200, 416, 501})  # also of an empty file
EMPTY = "bytes */0"
PAGES = (b"<!doctype html", b"<html")
TEXTS = ("text/", "application/json", "application/xml")
MAX_REFUSAL = 4096  # bytes of a body that was not asked for
REDIRECTS = frozenset({301, 302, 303, 307, 308})
BROKEN_ANSWERS = (HTTPError, OverflowError, ValueError)  # the latter two: a chunk's length
PORTS = {"http": 80, "https": 443}
# A compressed body would have other ranges.
REQUEST_HEADERS = {"User-Agent": "s3unzip", "Accept-Encoding": "identity"}
MAX_VALIDATOR = 1024  # characters of an ETag or a date; it goes with each request
# `\d` also matches non-ASCII digits. 19 digits hold every 63-bit size.
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
# Not a token or an id of S3's error: these may be secrets.
_XML_CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
_XML_MESSAGE = re.compile(rb"<Message>([^<]{1,300})</Message>")
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


class WebSource(ArchiveSource):
    """Reads archives from URLs, through the proxies of the environment; threads may share it."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._beginning_ends = config.beginning_ends()
        self._pools: dict[str | None, PoolManager] = {}
        self._lock = threading.Lock()

    def end_beginning(self) -> None:
        """Retry a server that cannot be reached, from now on."""
        self._beginning_ends = 0.0

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin, with one request where the server can."""
        with self.send("GET", location, {"Range": f"bytes=-{length}"}) as answer:
            if answer.status == 206:
                span, size = _answered(answer, location)
                if span == ByteRange(max(0, size - length), size):
                    chunks = self.body(answer, span.length, location)
                    data = read_until_fault(chunks)
                    pin = Pin(size, _validator(answer))
                    missing = span.length - len(data)
                    return Tail(data, pin, _modified(answer), missing=missing)
            elif answer.status not in WITHOUT_SUFFIX:
                raise _refusal(answer, location)
        tail = super().tail(location, length)
        if tail.pin.size:
            count_request("get")
        return tail

    def stat(self, location: Location) -> Tail:
        """Return what is there now, by a GET of its first byte.

        Not by a HEAD: the signature of a presigned URL is for one method, and that is GET.
        """
        with self.send("GET", location, {"Range": "bytes=0-0"}) as answer:
            if answer.status == 206:
                size = _answered(answer, location)[1]
                return Tail(b"", Pin(size, _validator(answer)), _modified(answer))
            has_no_byte = answer.headers.get("Content-Range", EMPTY) == EMPTY
            is_empty = answer.headers.get("Content-Length") == "0"
            if (answer.status == 416 and has_no_byte) or (answer.status == 200 and is_empty):
                return Tail(b"", Pin(0, _validator(answer)), _modified(answer))
            raise _refusal(answer, location)

    def open(self, location: Location, pin: Pin) -> WebArchive:
        """Return a reader of exactly that version."""
        return WebArchive(self, location, pin)

    @contextmanager
    def send(
        self, method: str, location: Location, headers: Mapping[str, str]
    ) -> Iterator[BaseHTTPResponse]:
        """Yield the answer to one request, its body not yet read."""
        try:
            answer = self._follow(method, location, {**REQUEST_HEADERS, **headers})
            try:
                yield answer
            finally:
                if getattr(answer, "length_remaining", None) == 0:
                    answer.drain_conn()
                else:  # a body that was not read is not needed
                    answer.close()
                answer.release_conn()
        except BROKEN_ANSWERS as error:
            raise self._fault(error, location) from None

    def body(self, answer: BaseHTTPResponse, length: int, location: Location) -> Iterator[bytes]:
        """Yield `length` bytes of a body as they come; what follows them is not read."""
        size = 0
        try:
            while size < length:
                chunk = answer.read1(min(PIECE, length - size), decode_content=False)
                if not chunk:
                    break
                size += len(chunk)
                yield chunk
        except BROKEN_ANSWERS as error:
            raise self._fault(error, location) from None
        if size < length:
            raise errors.ServiceFaultError(f"{show(location)}: {size:,} of {length:,} bytes came")

    def _follow(
        self, method: str, location: Location, headers: Mapping[str, str]
    ) -> BaseHTTPResponse:
        """Return the last answer after redirects; only the URL's own host gets its password."""
        first = target = _parse(f"{location.scheme}://{location.bucket}/{location.key}")
        signed = headers
        if first.auth is not None:
            signed = {**headers, **make_headers(basic_auth=unquote(first.auth))}
        timeout = Timeout(connect=self._config.connect_seconds, read=self._config.stall_seconds)
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._pool(target).request(
                method,
                target._replace(auth=None).url,
                headers=signed if _reaches(first, target) else headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=timeout,
            )
            redirect = answer.headers.get("Location")
            if answer.status not in REDIRECTS or not redirect:
                return answer
            answer.close()
            target = self._redirected(location, first, target, redirect)
        raise errors.StorageError(f"{show(location)}: more than {MAX_REDIRECTS} redirects")

    def _redirected(self, location: Location, first: Url, target: Url, redirect: str) -> Url:
        """Return where `target` redirects to, if that may be followed."""
        name = show(location)
        try:
            new = _parse(urljoin(target.url, redirect))
        except (HTTPError, ValueError):
            raise errors.StorageError(f"{name}: redirects to what is not a URL") from None
        if target.scheme == "https" and new.scheme != "https":
            raise errors.StorageError(f"{name}: redirects from https to http; not followed")
        if not (_reaches(first, new) or self._config.other_hosts):
            raise errors.StorageError(
                f"{name}: redirects to another host, {str(new.host)[:253]}: give the "
                f"URL there, or add --allow other-hosts"
            )
        return new

    def _pool(self, target: Url) -> PoolManager:
        proxy = _proxy_of(str(target.scheme), str(target.host))
        with self._lock:
            if proxy not in self._pools:
                make_pool: Callable[..., PoolManager] = PoolManager
                if proxy is not None:
                    make_pool = partial(ProxyManager, proxy)
                self._pools[proxy] = make_pool(maxsize=CONNECTIONS)
            return self._pools[proxy]

    def _fault(self, error: Exception, location: Location) -> errors.S3UnzipError:
        """Return the error for a request without a whole answer; a fault if a retry may help."""
        name = show(location)
        proxy = _proxy_of(location.scheme, location.bucket.rpartition("@")[2])
        through = ""
        if proxy is not None:
            through = f" through the proxy {parse_url(proxy)._replace(auth=None).url}"
        cause = error
        if isinstance(error, ProxyError):
            cause = error.original_error
        refusal = _why_never(cause, via_proxy=proxy is not None)
        if refusal is not None:
            return errors.StorageError(f"{name}: {refusal}")
        is_unreachable = isinstance(cause, NewConnectionError | ConnectTimeoutError)
        reason = self._explain(error, cause)
        text = f"{type(error).__name__}: {reason}"
        if isinstance(error, ReadTimeoutError):
            text = reason
        elif is_unreachable or isinstance(error, ProxyError):
            text = f"cannot connect{through}: {reason}"
        if is_unreachable and time.monotonic() < self._beginning_ends:
            return errors.StorageError(f"{name}: {text}; check the URL, the port and the network")
        fault = errors.ServiceFaultError(f"{name}: {text}")
        fault.trouble = f"no answer from {name}{through} ({reason.lower()})"
        return fault

    def _explain(self, error: Exception, cause: BaseException) -> str:
        """Return in a few words why no whole answer came."""
        if isinstance(error, ReadTimeoutError):
            return f"the server sent nothing for {self._config.stall_seconds:g} s"
        if isinstance(cause, ConnectTimeoutError) and not isinstance(cause, NewConnectionError):
            return f"no answer within {self._config.connect_seconds:g} s"
        return _ERRNO.sub("", str(cause).rpartition(": ")[2])[:200]


class WebArchive:
    """One version of one archive; threads may share it."""

    def __init__(self, source: WebSource, location: Location, pin: Pin) -> None:
        self._source = source
        self._location = location
        self._pin = pin

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request."""
        if not want.length:
            return
        headers = {"Range": f"bytes={want.start}-{want.stop - 1}"}
        if self._pin.etag is not None and self._pin.etag.startswith('"'):
            headers["If-Match"] = self._pin.etag
        with self._source.send("GET", self._location, headers) as answer:
            self._check(answer, want)
            yield from self._source.body(answer, want.length, self._location)

    def _check(self, answer: BaseHTTPResponse, want: ByteRange) -> None:
        """Raise the error of an answer that is not `want` of the pinned version."""
        name = show(self._location)
        if answer.status in {404, 416}:
            raise errors.SourceChangedError(f"{name}: HTTP {answer.status}; {CHANGED}")
        if answer.status == 412:
            raise self._changed("HTTP 412; ")
        if answer.status != 206:
            raise _refusal(answer, self._location)
        span, size = _answered(answer, self._location)
        validator = _validator(answer)
        if size != self._pin.size:
            raise errors.SourceChangedError(f"{name}: {CHANGED}")
        if self._pin.etag and validator and validator != self._pin.etag:
            raise self._changed("")
        if span != want:
            raise errors.RangesUnsupportedError(
                f"{name}: asked for bytes {want.start:,} to {want.stop:,}, "
                f"got {span.start:,} to {span.stop:,}; {DOWNLOAD}"
            )

    def _changed(self, status: str) -> errors.S3UnzipError:
        """Return the error for another ETag; two HEADs show whether the server's ETag is steady."""
        name = show(self._location)
        etags = []
        for _ in range(2):
            count_request("head")
            etags.append(self._source.head(self._location).etag)
        # The pinned ETag again: several servers answer, each with an ETag of its own.
        if etags[0] != etags[1] or self._pin.etag in etags:
            return errors.StorageError(
                f"{name}: {status}the server's ETag differs from answer to answer, so it is not "
                f"known whether the archive is still the same; {DOWNLOAD}"
            )
        return errors.SourceChangedError(f"{name}: {status}{CHANGED}")


def _proxy_of(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names: ``HTTPS_PROXY``, ``NO_PROXY`` and the like."""
    proxy = getproxies().get(scheme)
    if not proxy or proxy_bypass(host):
        return None
    if "://" not in proxy:
        return f"http://{proxy}"
    return proxy


def _parse(url: str) -> Url:
    """Return where a URL leads."""
    parsed = parse_url(url)
    if parsed.scheme not in PORTS or not parsed.host:
        raise LocationValueError("not a URL of HTTP")
    if parsed.port is None:
        return parsed._replace(port=PORTS[parsed.scheme])
    return parsed


def _reaches(first: Url, target: Url) -> bool:
    """Return whether `target` is on the host of `first`: same port, or HTTPS instead of HTTP."""
    ports = ((first.scheme, first.port), (target.scheme, target.port))
    is_upgrade = ports == (("http", 80), ("https", 443))
    return first.host == target.host and (is_upgrade or ports[0] == ports[1])


def show(location: Location) -> str:
    """Return a URL as it may be shown."""
    host = location.bucket.rpartition("@")[2]
    return f"{location.scheme}://{host}/{location.key.partition('?')[0]}"


def _why_never(error: BaseException, *, via_proxy: bool) -> str | None:
    """Say why the same request would fail again; None: it may not."""
    if isinstance(error, NameResolutionError) and "Temporary" not in str(error):
        host = str(error).partition("resolve '")[2].partition("'")[0]
        whose = "proxy: check HTTPS_PROXY and HTTP_PROXY" if via_proxy else "URL"
        return f"there is no host named {host}; check the {whose}"
    if isinstance(error, SSLError):
        cause = next(iter(error.args), error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate is not trusted: {cause.verify_message}; "
                f"name the file of a certificate to trust in SSL_CERT_FILE"
            )
        reason = getattr(cause, "reason", None) or str(cause)
        return f"no TLS connection: {reason.replace('_', ' ').lower()[:200]}"
    if isinstance(error, LocationValueError | UnicodeError):
        return "not a URL"
    return None


def _validator(answer: BaseHTTPResponse) -> str | None:
    """Return the ETag, else the date of the last change, else nothing."""
    validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    if not validator or len(validator) > MAX_VALIDATOR:
        return None
    return validator


def _modified(answer: BaseHTTPResponse) -> float | None:
    """Return the date of the last change in Unix seconds, if the server tells it."""
    try:
        return parsedate_to_datetime(answer.headers.get("Last-Modified", "")).timestamp()
    except (ValueError, OverflowError):
        return None


def _answered(answer: BaseHTTPResponse, location: Location) -> tuple[ByteRange, int]:
    """Return the range that the server sent, and the archive's size in bytes."""
    answered = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if answered is None:
        raise errors.RangesUnsupportedError(
            f"{show(location)}: the server's Content-Range makes no sense; {DOWNLOAD}"
        )
    start, last, size = map(int, answered.groups())
    return ByteRange(start, last + 1), size


class Refusal(NamedTuple):
    """What a status means that does not change if the request is repeated."""

    kind: type[errors.StorageError]
    advice: str


WRONG_URL = "; check that the URL is that of the download itself"
EXPIRED_LINK = Refusal(errors.LinkRefusedError, "; the link may have expired: get a new one")
LOGIN = (
    f": the server wants a login: give https://USER:PASSWORD@HOST/..., or, with a token, {DOWNLOAD}"
    " -H 'Authorization: Bearer ...'"
)
REFUSALS = {
    400: EXPIRED_LINK,
    401: Refusal(errors.LinkRefusedError, LOGIN),
    403: EXPIRED_LINK,
    404: Refusal(errors.NotFoundError, "; check the URL"),
    410: EXPIRED_LINK,
}


def _refusal(answer: BaseHTTPResponse, location: Location) -> errors.S3UnzipError:
    """Return the error for an answer that is not the range that was asked for."""
    name = show(location)
    status = answer.status
    if status in WITHOUT_SUFFIX:
        kind = _kind_of_text(answer)
        if kind is None:
            return errors.RangesUnsupportedError(
                f"{name}: the server does not answer range requests; {DOWNLOAD}"
            )
        return errors.LinkRefusedError(
            f"{name}: this is {kind}, not a ZIP: open the URL in a browser, and give the link of "
            f"the download itself"
        )
    text = f"{name}: HTTP {status}{_reason(answer)}"
    if status in {429, 503}:
        return errors.ThrottledError(text)
    if status >= 500 or status == 408:
        return errors.ServiceFaultError(text)
    refusal = REFUSALS.get(status, Refusal(errors.StorageError, WRONG_URL))
    return refusal.kind(f"{text}{refusal.advice}")


def _kind_of_text(answer: BaseHTTPResponse) -> str | None:
    """Return what came in place of an archive; some servers call every file a text."""
    body = _first_bytes(answer)
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if body.lstrip().lower().startswith(PAGES) or (kind == "text/html" and body[:2] != b"PK"):
        return "a web page"
    if kind.startswith(TEXTS) and body[:2] != b"PK":
        return f"a file of type {kind[:50]}"
    return None


def _reason(answer: BaseHTTPResponse) -> str:
    """Return the words for a status; S3 and servers like it give a code and a message in XML."""
    body = _first_bytes(answer)
    code = _XML_CODE.search(body)
    if code is None:
        return f" {responses.get(answer.status, '')}".rstrip()
    text = code[1]
    message = _XML_MESSAGE.search(body)
    if message is not None:
        text += b": " + message[1]
    return f" {unescape(text.decode(errors='replace')).rstrip('.')}"


def _first_bytes(answer: BaseHTTPResponse) -> bytes:
    """Return the beginning of a body that was not asked for; empty if it does not come."""
    with suppress(*BROKEN_ANSWERS):
        return answer.read1(MAX_REFUSAL, decode_content=False)
    return b""
