"""Archives on the web: all ranges read from a URL must belong to the same version.

Some servers do not support suffix ranges, and some support no ranges at all. Some servers ignore
If-Match, and some refuse their own ETags in this header, so no request contains the header. This
module compares the size and the ETag (or date) of each response, reads no more of a body than was
requested, and bounds the numbers that it parses. A redirect is followed within the same host, and
to another host only with `StoreConfig.other_hosts`. Credentials in the URL are sent only to the
URL's host. Messages show neither the user nor the query of a URL: both may be secret.
"""

import os
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from html import unescape
from http.client import responses
from urllib.parse import unquote, urljoin

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
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.config import PROXY_LOGIN, StoreConfig, find_proxy
from s3unzip.stores.ports import PIECE, Buffer, Tail
from s3unzip.zip import ByteRange

MAX_REDIRECTS = 5
DOWNLOAD = "download the archive first: curl -o archive.zip URL"
CHANGED = "the archive changed since it was planned"
# The statuses that servers without ranges send, and the status for a range of an empty file.
NO_RANGES = frozenset({200, 416, 501})
# The statuses for a suffix range, if other ranges may still work. Nexus sends 404.
NO_SUFFIX_RANGES = NO_RANGES | {400, 404, 405, 500}
# OverflowError and ValueError are raised for a chunk whose length is malformed or too large.
BROKEN_ANSWERS = (HTTPError, OverflowError, ValueError)
PORTS = {"http": 80, "https": 443}
# `\d` would also match non-ASCII digits. 19 digits are enough for any 63-bit size.
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")


class WebSource(Source):
    """Reads archives from URLs, via proxies set in the environment; threads may share it."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        # Until this monotonic time, an unreachable server probably means a wrong URL.
        self.startup_ends = config.startup_ends()
        # The connection pools, by process and proxy: a fork must not use its parent's connections.
        self._pools: dict[tuple[int, str | None], PoolManager] = {}

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin, using one request if possible."""
        with self._request(location, f"bytes=-{length}") as answer:
            if answer.status == 206:
                span, size = _read_range(answer, location)
                if span == ByteRange(max(0, size - length), size):
                    return _make_tail(answer, size)._replace(
                        data=read_until_fault(self._read_body(answer, span.length, location))
                    )
            elif answer.status not in NO_SUFFIX_RANGES:
                raise _explain_status(answer, location)
        # The server did not send exactly the requested bytes. `super().tail` counts the request for
        # the size, but not the request for the range. The request for the range is counted here,
        # even if the archive is empty and needs no such request.
        count_request("get")
        return super().tail(location, length)

    def stat(self, location: Location) -> Tail:
        """Return the current size and version, using a GET for the first byte.

        A HEAD would fail for presigned URLs, whose signature is valid only for GET.
        """
        with self._request(location, "bytes=0-0") as answer:
            # An empty file has no first byte: servers send the whole file, or refuse the range. A
            # refusal without the header Content-Range is treated as the refusal for an empty file.
            content_range = answer.headers.get("Content-Range", "bytes */0")
            is_range_refused = answer.status == 416 and content_range == "bytes */0"
            is_whole_file = answer.status == 200 and answer.headers.get("Content-Length") == "0"
            if answer.status == 206:
                _, size = _read_range(answer, location)
            elif is_range_refused or is_whole_file:
                size = 0
            else:
                raise _explain_status(answer, location)
            return _make_tail(answer, size)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        if not want.length:
            return
        with self._request(location, f"bytes={want.start}-{want.stop - 1}") as answer:
            span = self._read_pinned_range(answer, location, pin)
            if span != want:
                raise errors.UnsupportedError(
                    f"{location}: asked for bytes {want.start:,} to {want.stop:,}, "
                    f"got {span.start:,} to {span.stop:,}; {DOWNLOAD}"
                )
            yield from self._read_body(answer, want.length, location)

    def _read_pinned_range(
        self, answer: BaseHTTPResponse, location: Location, pin: Pin
    ) -> ByteRange:
        """Return the range that the server sent; raise an error if it is from another version."""
        if answer.status in {404, 416}:
            raise errors.SourceChangedError(f"{location}: HTTP {answer.status}; {CHANGED}")
        if answer.status != 206:
            refusal = _explain_status(answer, location)
            # The server has sent a range before, so a cache may have answered: a retry may help.
            if isinstance(refusal, errors.UnsupportedError):
                refusal = errors.ServiceFaultError(str(refusal))
            raise refusal
        span, size = _read_range(answer, location)
        if size != pin.size:
            raise errors.SourceChangedError(f"{location}: {CHANGED}")
        validator = _read_validator(answer)
        # If the server sends no ETags, both `pin.etag` and `validator` are dates. In the first
        # second after a change, Apache sends the same ETag marked as weak.
        if pin.etag and validator and validator.removeprefix("W/") != pin.etag.removeprefix("W/"):
            raise self._explain_other_etag(location, pin)
        return span

    def _explain_other_etag(self, location: Location, pin: Pin) -> errors.S3UnzipError:
        """Return the error for a different ETag: the archive, or just the ETag, has changed.

        Two more requests show whether the server sends the same ETag each time.
        """
        etags = []
        for _ in range(2):
            count_request("head")
            etags.append(self.stat(location).pin.etag)
        # If there are several servers behind the URL, each may send another ETag, or one of them
        # may send the pinned ETag again.
        if etags[0] != etags[1] or pin.etag in etags:
            return errors.StorageError(
                f"{location}: the server's ETag differs from answer to answer, so it is not known "
                f"whether the archive is still the same; {DOWNLOAD}"
            )
        return errors.SourceChangedError(f"{location}: {CHANGED}")

    @contextmanager
    def _request(self, location: Location, byte_range: str) -> Iterator[BaseHTTPResponse]:
        """Yield the response to a GET with the Range header; the caller reads the body."""
        # Without "identity", the range might refer to a compressed body.
        headers = {"User-Agent": "s3unzip", "Accept-Encoding": "identity", "Range": byte_range}
        try:
            answer = self._follow(location, headers)
            try:
                yield answer
            finally:
                if getattr(answer, "length_remaining", None) == 0:  # the connection can be reused
                    answer.drain_conn()
                else:  # closing the connection is cheaper than reading the remaining bytes
                    answer.close()
                answer.release_conn()
        except BROKEN_ANSWERS as error:
            raise self._explain_failure(error, location) from None

    def _read_body(
        self, answer: BaseHTTPResponse, length: int, location: Location
    ) -> Iterator[bytes]:
        """Yield the first `length` bytes of a body as they arrive, and read no more."""
        size = 0
        try:
            while size < length:
                chunk = answer.read1(min(PIECE, length - size), decode_content=False)
                if not chunk:
                    break
                size += len(chunk)
                yield chunk
        except BROKEN_ANSWERS as error:
            raise self._explain_failure(error, location) from None
        if size < length:
            raise errors.ServiceFaultError(f"{location}: only {size:,} of {length:,} bytes arrived")

    def _follow(self, location: Location, headers: dict[str, str]) -> BaseHTTPResponse:
        """Return the response after redirects; send the password only to the host of the URL."""
        first = target = _parse(f"{location.scheme}://{location.bucket}/{location.key}")
        # If the URL has no user, `make_headers` returns no header. Latin-1 keeps the bytes of the
        # decoded URL, as in curl.
        credentials = make_headers(basic_auth=unquote(first.auth or "", "latin-1"))
        timeout = Timeout(connect=self._config.connect_seconds, read=self._config.stall_seconds)
        for _ in range(MAX_REDIRECTS + 1):
            target_headers = headers
            if _is_same_host(first, target):
                target_headers = {**headers, **credentials}
            answer = self._pool(target).request(
                "GET",
                target._replace(auth=None).url,
                headers=target_headers,
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=timeout,
            )
            redirect = answer.get_redirect_location()
            if not redirect:
                return answer
            answer.close()
            target = self._check_redirect(location, first, target, redirect)
        raise errors.StorageError(f"{location}: more than {MAX_REDIRECTS} redirects")

    def _check_redirect(self, location: Location, start: Url, current: Url, redirect: str) -> Url:
        """Return the URL to which `current` redirects; `redirect` is the Location header.

        `start` is the URL of the first request. Other hosts are allowed only with `other_hosts`.
        """
        with suppress(UnicodeError):  # servers send UTF-8, which http.client decodes as Latin-1
            redirect = redirect.encode("latin-1").decode()
        try:
            new = _parse(urljoin(current.url, redirect))
        except (HTTPError, ValueError):
            raise errors.StorageError(f"{location}: redirects to an invalid URL") from None
        if current.scheme == "https" and new.scheme != "https":
            raise errors.StorageError(f"{location}: redirects from https to http; not followed")
        if not (_is_same_host(start, new) or self._config.other_hosts):
            # A host name has at most 253 characters.
            raise errors.StorageError(
                f"{location}: redirects to another host, {str(new.host)[:253]}: give the "
                f"URL there, or add --allow other-hosts"
            )
        return new

    def _pool(self, target: Url) -> PoolManager:
        """Return this process's pool for the proxy of `target`, or for direct connections."""
        proxy = find_proxy(target.url)
        key = (os.getpid(), proxy)
        if key not in self._pools:
            pool = PoolManager(maxsize=self._config.connections)
            if proxy is not None:
                pool = ProxyManager(proxy, maxsize=self._config.connections)
            self._pools.setdefault(key, pool)  # another thread may have added a pool
        return self._pools[key]

    def _explain_failure(self, error: Exception, location: Location) -> errors.S3UnzipError:
        """Return the error for a request without a complete response.

        The error is a `ServiceFaultError` if a retry may succeed.
        """
        proxy = find_proxy(str(location))
        through = ""
        if proxy is not None:
            through = f" through the proxy {parse_url(proxy)._replace(auth=None).url}"
        cause = getattr(error, "original_error", error)  # the original error of a `ProxyError`
        # `str(location)` hides the user and the password, except if a slash in the password makes
        # the digits before the slash look like a port, as in //user:12/34@host.
        url = re.sub("//[^/:]*:[0-9]*/.*@", "//...@", str(location))
        refusal = _explain_permanent(cause, via_proxy=proxy is not None)
        if refusal is not None:
            return errors.StorageError(f"{url}: {refusal}")
        reason = self._give_reason(error, cause)
        is_unreachable = isinstance(cause, NewConnectionError | ConnectTimeoutError)
        message = f"{url}: {reason}"
        if is_unreachable or isinstance(error, ProxyError):
            message = f"{url}: cannot connect{through}: {reason}"
        if is_unreachable and time.monotonic() < self.startup_ends:  # the URL is probably wrong
            return errors.StorageError(f"{message}; check the URL, the port and the network")
        fault = errors.ServiceFaultError(message)
        fault.trouble = f"no answer from {url}{through} ({reason.lower()})"
        return fault

    def _give_reason(self, error: Exception, cause: BaseException) -> str:
        """Return, in a few words, why the response is missing or incomplete.

        If `error` is a `ProxyError`, `cause` is the original error. If not, `cause` is `error`.
        """
        if isinstance(error, ReadTimeoutError):
            return f"the server sent nothing for {self._config.stall_seconds:g} s"
        # `NewConnectionError` is a subclass of `ConnectTimeoutError`, but is raised for other
        # reasons, for example if the connection was refused.
        if isinstance(cause, ConnectTimeoutError) and not isinstance(cause, NewConnectionError):
            return f"no answer within {self._config.connect_seconds:g} s"
        # The last argument is the message or, for a ProtocolError, an exception with the message.
        # Messages of urllib3 end in ": [Errno 111] Connection refused".
        message = str(next(reversed(cause.args), cause))
        return re.sub(r"\[Errno -?[0-9]+\] ", "", message.rpartition(": ")[2])[:200]


def _parse(url: str) -> Url:
    """Return the parts of a URL, always including a port.

    Raises `LocationValueError` if the text is not an HTTP or HTTPS URL.
    """
    parsed = parse_url(url)
    if parsed.scheme not in PORTS or not parsed.host:
        raise LocationValueError("not an HTTP or HTTPS URL")
    if parsed.port is None:
        return parsed._replace(port=PORTS[parsed.scheme])
    return parsed


def _is_same_host(first: Url, target: Url) -> bool:
    """Return whether host and port are the same; a change from HTTP to HTTPS is allowed."""
    origins = ((first.scheme, first.port), (target.scheme, target.port))
    is_upgrade = origins == (("http", 80), ("https", 443))
    return first.host == target.host and (is_upgrade or origins[0] == origins[1])


def _explain_permanent(error: BaseException, *, via_proxy: bool) -> str | None:
    """Return why the same request would always fail, or None if it may succeed later."""
    # After "Temporary failure in name resolution", a later request may succeed.
    if isinstance(error, NameResolutionError) and "Temporary" not in str(error):
        # The message contains: Failed to resolve 'example.com'
        host = str(error).partition("resolve '")[2].partition("'")[0]
        advice = "check the URL"
        if via_proxy:
            advice = "it may be the name of the proxy: check HTTPS_PROXY and HTTP_PROXY"
        return f"there is no host named {host}; {advice}"
    if isinstance(error, SSLError):
        cause = next(iter(error.args), error)  # urllib3 wraps the error of `ssl`
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate is not trusted: {cause.verify_message}; "
                "set SSL_CERT_FILE to a file with the certificate to trust"
            )
        reason = getattr(cause, "reason", None) or str(cause)
        return f"no TLS connection: {reason.replace('_', ' ').lower()[:200]}"
    if isinstance(error, LocationValueError | UnicodeError):
        return "not a URL"
    if "failed: 407" in str(error):  # the proxy's response to CONNECT
        return f"HTTP 407 Proxy Authentication Required; {PROXY_LOGIN}"
    return None


def _read_validator(answer: BaseHTTPResponse) -> str | None:
    """Return the ETag or, if there is no ETag, the date of the last change.

    Returns None if the server sends neither, or if the value is too long.
    """
    validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
    if not validator or len(validator) > 1024:  # a long value would fill the records of a run
        return None
    return validator


def _make_tail(answer: BaseHTTPResponse, size: int) -> Tail:
    """Return a tail without bytes; its pin has `size` and the version in the response."""
    modified: float | None = None
    with suppress(ValueError, OverflowError):  # the server may send no date or a malformed one
        modified = parsedate_to_datetime(answer.headers.get("Last-Modified", "")).timestamp()
    return Tail(b"", Pin(size, _read_validator(answer)), modified)


def _read_range(answer: BaseHTTPResponse, location: Location) -> tuple[ByteRange, int]:
    """Return the range that the server sent, and the size of the archive in bytes."""
    content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    if content_range is None:
        raise errors.UnsupportedError(
            f"{location}: the server's Content-Range is malformed; {DOWNLOAD}"
        )
    start, last, size = map(int, content_range.groups())
    return ByteRange(start, last + 1), size


EXPIRED_LINK = (errors.LinkRefusedError, "; the link may have expired: get a new one")
# The error and the advice for statuses that a retry would not change.
REFUSALS: dict[int, tuple[type[errors.StorageError], str]] = {
    400: EXPIRED_LINK,
    401: (
        errors.LinkRefusedError,
        (
            ": the server requires a login: give https://USER:PASSWORD@HOST/..., or, with a token, "
            f"{DOWNLOAD} -H 'Authorization: Bearer ...'"
        ),
    ),
    403: EXPIRED_LINK,
    404: (errors.NotFoundError, "; check the URL"),
    407: (errors.AccessDeniedError, f"; {PROXY_LOGIN}"),
    410: EXPIRED_LINK,
}


def _explain_status(answer: BaseHTTPResponse, location: Location) -> errors.S3UnzipError:
    """Return the error for a response that is not the requested range."""
    status = answer.status
    if status in NO_RANGES:  # the server sent the whole body or none of it
        kind = _classify_text(answer)
        if kind is None:
            return errors.UnsupportedError(
                f"{location}: the server does not answer range requests; {DOWNLOAD}"
            )
        return errors.LinkRefusedError(
            f"{location}: this is {kind}, not a ZIP: open the URL in a browser, and give the link "
            f"of the download itself"
        )
    text = f"{location}: HTTP {status}{_describe_status(answer)}"
    if status in {429, 503}:
        fault = errors.ThrottledError(text)
        # The header begins with a number of seconds, or it is a date. A date is ignored, because
        # the clocks of the server and of this machine may differ.
        digits = re.split("[^0-9]", answer.headers.get("Retry-After", ""))[0]
        fault.wait_seconds = float(digits or 0)
        return fault
    if status >= 500 or status == 408:  # 408: Request Timeout
        return errors.ServiceFaultError(text)
    if status == 401 and "@" in location.bucket:
        return errors.LinkRefusedError(f"{text}: the server refuses the user name or the password")
    error, advice = REFUSALS.get(
        status, (errors.StorageError, "; check that the URL is that of the download itself")
    )
    return error(text + advice)


def _classify_text(answer: BaseHTTPResponse) -> str | None:
    """Return the kind of text received instead of an archive, or None if it is not text."""
    body = _first_bytes(answer)
    if body.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a web page"
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_text = media_type.startswith(("text/", "application/json", "application/xml"))
    # Some servers send a ZIP file with a text content type.
    if not is_text or body.startswith(b"PK"):
        return None
    return f"a file of type {media_type[:50]}"


def _describe_status(answer: BaseHTTPResponse) -> str:
    """Return a space and the meaning of a status: S3's code and message, or HTTP's reason."""
    body = _first_bytes(answer)
    # Only these two fields are shown, because tokens and ids in errors from S3 may be secret.
    code = re.search(rb"<Code>([^<]{1,100})</Code>", body)
    if code is None:
        return f" {responses.get(answer.status, '')}".rstrip()
    text = code[1]
    message = re.search(rb"<Message>([^<]{1,300})</Message>", body)
    if message is not None:
        text += b": " + message[1]
    return f" {unescape(text.decode(errors='replace')).rstrip('.')}"


def _first_bytes(answer: BaseHTTPResponse) -> bytes:
    """Return up to 4 KiB of the body of an unexpected response, or nothing if none arrived."""
    with suppress(*BROKEN_ANSWERS):
        return answer.read1(4096, decode_content=False)
    return b""
