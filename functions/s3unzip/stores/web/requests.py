"""One request for a URL: credentials, redirects, and what its faults mean.

A redirect is followed within its host; to another host only where that was
asked for, and then to a public address only. Credentials of the URL go to its
own host and nowhere else. URLs are named without user and query: both may be
secrets.
"""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urljoin

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import make_headers, parse_url

from s3unzip.errors import S3UnzipError, ServiceFaultError, StorageError
from s3unzip.stores.web.access import MAX_REDIRECTS, WebAccess
from s3unzip.stores.web.addresses import (
    PrivateAddressError,
    UnknownHostError,
    names_an_address,
)
from s3unzip.stores.web.connections import make_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from urllib3.connectionpool import HTTPConnectionPool
    from urllib3.response import BaseHTTPResponse

    from s3unzip.model import Location

BEGINNING = 30.0  # seconds: a server that is unreachable then is likely a wrong one
PORTS = {"http": 80, "https": 443}
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# A compressed body would have other ranges.
HEADERS = {"User-Agent": "s3unzip", "Accept-Encoding": "identity"}


class Target(NamedTuple):
    """Where one request goes."""

    scheme: str
    host: str
    port: int
    path: str  # with query
    user: str | None = None  # "name:password", as written

    @property
    def url(self) -> str:
        """The URL without its user."""
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"

    def reaches(self, other: Target) -> bool:
        """Return whether `other` is the same host: same port, or HTTPS instead of HTTP."""
        if self.host.lower() != other.host.lower():
            return False
        upgraded = (self.scheme, self.port, other.scheme, other.port) == ("http", 80, "https", 443)
        return upgraded or (self.scheme, self.port) == (other.scheme, other.port)


class WebRequests:
    """Sends requests; threads may share it."""

    def __init__(self, access: WebAccess) -> None:
        self._access = access
        self._began = time.monotonic()
        self._pools: dict[tuple[str, str, int, bool], HTTPConnectionPool] = {}
        self._lock = threading.Lock()

    @contextmanager
    def send(
        self, method: str, location: Location, headers: Mapping[str, str]
    ) -> Iterator[BaseHTTPResponse]:
        """Yield the answer to one request, its body not yet read.

        Raises:
            StorageError: the URL or a redirect may not be followed, TLS failed.
            ServiceFaultError: no answer, or one that is too slow.
        """
        try:
            answer = self._follow(method, location, {**HEADERS, **headers})
            try:
                yield answer
            finally:
                _release(answer)
        except (HTTPError, UnicodeError) as error:
            if self._cannot_be_reached(error):
                raise StorageError(
                    f"{show(location)}: cannot connect: {_last_words(error)}; "
                    f"check the URL, the port and the network"
                ) from None
            raise _fault(error, location, self._access) from None

    def _cannot_be_reached(self, error: Exception) -> bool:
        """Return whether a program that has just begun should give up: its URL is likely wrong."""
        if not isinstance(error, NewConnectionError | ConnectTimeoutError):
            return False
        beginning = time.monotonic() - self._began < BEGINNING
        return self._access.check_reachable and beginning and _refusal(error) is None

    def _follow(
        self, method: str, location: Location, headers: Mapping[str, str]
    ) -> BaseHTTPResponse:
        first = target = parse_target(f"{location.scheme}://{location.bucket}/{location.key}")
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._ask(method, target, first, headers)
            where = answer.headers.get("Location")
            if answer.status not in REDIRECTS or not where:
                return answer
            _release(answer)
            target = self._redirected(location, first, target, where)
        raise StorageError(f"{show(location)}: more than {MAX_REDIRECTS} redirects")

    def _ask(
        self, method: str, target: Target, first: Target, headers: Mapping[str, str]
    ) -> BaseHTTPResponse:
        at_home = first.reaches(target)
        if at_home and first.user is not None:
            user = make_headers(basic_auth=unquote(first.user))
            headers = {**headers, **user}
        named = names_an_address(first.host) or self._access.private_addresses
        return self._pool(target, private=at_home and named).urlopen(
            method,
            target.path,
            headers=headers,
            preload_content=False,
            redirect=False,
            retries=False,
        )

    def _redirected(self, location: Location, first: Target, target: Target, where: str) -> Target:
        try:
            found = parse_target(urljoin(target.url, where))
        except (HTTPError, ValueError):
            raise StorageError(f"{show(location)}: redirects to what is not a URL") from None
        if target.scheme == "https" and found.scheme != "https":
            raise StorageError(f"{show(location)}: redirects from https to http; not followed")
        if not (first.reaches(found) or self._access.other_hosts):
            raise StorageError(
                f"{show(location)}: redirects to another host, {found.host[:253]}: give the URL "
                f"there, or add --allow other-hosts"
            )
        return found

    def _pool(self, target: Target, *, private: bool) -> HTTPConnectionPool:
        key = (target.scheme, target.host, target.port, private)
        with self._lock:
            if key not in self._pools:
                self._pools[key] = make_pool(*key[:3], self._access, private=private)
            return self._pools[key]


def parse_target(url: str) -> Target:
    """Return where a URL leads.

    Raises:
        LocationValueError: it is not a URL of HTTP.
    """
    found = parse_url(url)
    if found.scheme not in PORTS or not found.host:
        raise LocationValueError("not a URL of HTTP")
    port = PORTS[found.scheme] if found.port is None else found.port
    return Target(found.scheme, found.host, port, found.request_uri, found.auth)


def show(location: Location) -> str:
    """Return a URL as it may be shown."""
    host = location.bucket.rpartition("@")[2]
    return f"{location.scheme}://{host}/{location.key.partition('?')[0]}"


def _release(answer: BaseHTTPResponse) -> None:
    # A body that was not read is not needed: close the connection.
    if getattr(answer, "length_remaining", None) == 0:
        answer.drain_conn()
    else:
        answer.close()
    answer.release_conn()


def _fault(error: Exception, location: Location, access: WebAccess) -> S3UnzipError:
    name = show(location)
    refusal = _refusal(error)
    if refusal is not None:
        return StorageError(f"{name}: {refusal}")
    if isinstance(error, ReadTimeoutError):
        limits = f"{access.stall_seconds:g} s, or fewer than {access.min_rate:,} bytes a second"
        return ServiceFaultError(f"{name}: the server sent nothing for {limits}")
    if isinstance(error, NewConnectionError | ConnectTimeoutError):
        return ServiceFaultError(f"{name}: cannot connect: {_last_words(error)}")
    return ServiceFaultError(f"{name}: {type(error).__name__}: {_last_words(error)}")


def _refusal(error: Exception) -> str | None:
    """Say why the same request would fail again; None: it may not."""
    if isinstance(error, PrivateAddressError):
        return (
            f"the host is at {error}, which is not a public address; if that is meant, "
            f"add --allow private-addresses (a redirect to such an address is never followed)"
        )
    if isinstance(error, UnknownHostError):
        return f"there is no host named {error}; check the URL"
    if isinstance(error, SSLError):
        return tls_cause(error.args[0] if error.args else error)
    if isinstance(error, LocationValueError | UnicodeError):
        return "not a URL"
    return None


def tls_cause(error: object) -> str:
    """Say in plain words why TLS failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted: {error.verify_message}; "
            f"name the file of a certificate to trust in SSL_CERT_FILE"
        )
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else str(error)
    return f"no TLS connection: {reason.replace('_', ' ').lower()[:200]}"


def _last_words(error: Exception) -> str:
    return str(error).rpartition(": ")[2][:200]
