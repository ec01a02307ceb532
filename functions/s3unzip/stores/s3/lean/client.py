"""HEAD and LIST over kept connections, with little CPU: a verify consists of them.

botocore takes 2 ms of CPU for a HEAD and 50 ms for a page of LIST. obstore takes a tenth of
that, but changes keys (it drops slashes at their ends), and cannot ask for S3's checksum.
Both requests are safe to repeat, so a kept connection that the server has closed is replaced
silently.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from base64 import b64decode
from collections import deque
from contextlib import closing
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Literal, NamedTuple, cast
from urllib.parse import urlsplit
from weakref import finalize

from s3unzip.errors import ServiceFaultError
from s3unzip.stores.answer_file import AnswerSocket
from s3unzip.stores.calls import count_request
from s3unzip.stores.ports import StoredObject
from s3unzip.stores.s3.answers import UNTRUSTED, Answer, RefusedError, read_body
from s3unzip.stores.s3.lean.list_page import read_page
from s3unzip.stores.s3.lean.signing import Target, encode_path, encode_query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from s3unzip.stores.ports import ListedObject
    from s3unzip.stores.s3.lean.list_page import Page
    from s3unzip.stores.s3.lean.signing import AnySigner

HEAD_BYTES = 64 * 1024  # of an answer's head
PAGE_BYTES = 16 * 1024**2  # of a page of LIST: 1,000 keys of 1,024 bytes, each byte as "%xx"
IDLE_SECONDS = 50.0  # S3 hangs up a little later
REGION = "x-amz-bucket-region"
CRC_HEADER = "x-amz-meta-zip-crc32"
_LENGTH = re.compile(r"[0-9]{1,19}")  # int() refuses thousands of digits
_CRC = re.compile(r"[0-9a-fA-F]{1,8}")
_CHECKSUM = re.compile(r"[A-Za-z0-9+/]{6}==")  # four bytes in base64
CHECKSUM_MODE = {"x-amz-checksum-mode": "ENABLED"}


class Wait(NamedTuple):
    """Timeouts in seconds."""

    connect: float
    stall: float  # without a byte


class LeanClient:
    """Asks one bucket; threads may share it.

    Args:
        url: where the bucket is, without the key: ``https://bucket.s3.eu-west-1.amazonaws.com``
            or ``http://127.0.0.1:7070/bucket``.
        signer: of the bucket's region.
        wait: for connections and bytes.
        ca_bundle: file of certificates that are trusted.
        headers: more headers of each request; names in lower case.
    """

    def __init__(
        self, url: str, signer: AnySigner, wait: Wait, ca_bundle: str, headers: Mapping[str, str]
    ) -> None:
        parts = urlsplit(url)
        self._idle: deque[tuple[socket.socket, float]] = deque()  # append and pop are atomic
        finalize(self, _close_all, self._idle)
        self._host = parts.netloc
        self._path = parts.path
        self._address = (
            parts.hostname or "",
            parts.port or (443 if parts.scheme == "https" else 80),
        )
        self._tls = (
            ssl.create_default_context(cafile=ca_bundle) if parts.scheme == "https" else None
        )
        self._signer = signer
        self._wait = wait
        self.stall_seconds = wait.stall  # a server may send nothing so long
        self._headers = headers

    def head(self, key: str) -> Mapping[str, str]:
        """Return the headers of an object, names in lower case; S3's checksum is among them.

        Raises:
            RefusedError: there is no such object, or S3 did not answer with it.
        """
        status, headers, _ = self._ask("head", self.head_request(key))
        if status != 200:
            raise RefusedError(self._misplaced(headers) or Answer(status, "", ""))
        return headers

    def head_request(self, key: str) -> bytes:
        """Return the request for the headers of an object."""
        target = Target("HEAD", self._host, encode_path(f"{self._path}/{key}"))
        return self._request(target, CHECKSUM_MODE)

    def pages(self, prefix: str, start_after: str) -> Iterator[list[ListedObject]]:
        """Yield the objects below `prefix` after a key, a page of at most 1,000 at a time.

        Raises:
            RefusedError: S3 did not answer with it.
        """
        token = None
        while True:
            page = self._page(prefix, start_after, token)
            yield page.objects
            if page.next_token is None:
                return
            count_request("list")
            token = page.next_token

    def _page(self, prefix: str, start_after: str, token: str | None) -> Page:
        """Return one page of the objects below `prefix`, after a key or after another page."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        if token is not None:
            query["continuation-token"] = token
        elif start_after:
            query["start-after"] = start_after
        path = encode_path(self._path) or "/"
        target = Target("GET", self._host, path, encode_query(query))
        status, headers, body = self._ask("list", self._request(target, {}))
        if status != 200:
            raise RefusedError(self._misplaced(headers) or read_body(status, body))
        return read_page(body)

    def _misplaced(self, headers: Mapping[str, str]) -> Answer | None:
        """Return what a bucket in another region answers; a HEAD has no body that says so."""
        region = headers.get(REGION)
        if region is None or region == self._signer.region:
            return None
        return Answer(301, "PermanentRedirect", f"the bucket is in {region}")

    def _request(self, target: Target, more: Mapping[str, str]) -> bytes:
        headers = self._signer.sign(target, {**self._headers, **more})
        where = f"{target.path}?{target.query}" if target.query else target.path
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{target.method} {where} HTTP/1.1\r\n{lines}\r\n".encode()

    def _ask(
        self, kind: Literal["head", "list"], request: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of the answer to one request."""
        try:
            while True:
                sock, kept = self.take()
                try:
                    sock.sendall(request)
                    answer, keeps = read_head(sock) if kind == "head" else _read(sock)
                except BaseException as error:
                    sock.close()
                    if kept and isinstance(error, ConnectionError):
                        # The server closed it just now, or the answer was lost: count it.
                        count_request(kind)
                        continue
                    raise
                if keeps:
                    self.keep(sock)
                else:
                    sock.close()
                return answer
        except (OSError, HTTPException) as error:
            raise RefusedError(_unanswered(error, self._wait)) from error

    def keep(self, sock: socket.socket) -> None:
        """Keep a connection for a later request."""
        self._idle.append((sock, time.monotonic()))

    def take(self) -> tuple[socket.socket, bool]:
        """Return a connection, and whether it was kept from an earlier request."""
        while self._idle:
            try:
                sock, since = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if time.monotonic() - since < IDLE_SECONDS and not _is_closed(sock):
                return sock, True
            sock.close()
        opened = socket.create_connection(self._address, self._wait.connect)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            opened = self._tls.wrap_socket(opened, server_hostname=self._address[0])
        opened.settimeout(self._wait.stall)
        return opened, False


def _is_closed(sock: socket.socket) -> bool:
    """Return whether the other side has closed an idle connection."""
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(0))  # nothing but its end is to be read


def _close_all(idle: deque[tuple[socket.socket, float]]) -> None:
    while idle:
        idle.pop()[0].close()


def read_head(sock: socket.socket) -> tuple[tuple[int, Mapping[str, str], bytes], bool]:
    """Return the answer to a HEAD, which ends with its head, and whether the connection lasts."""
    data = sock.recv(HEAD_BYTES)
    while (end := data.find(b"\r\n\r\n")) < 0:
        more = sock.recv(HEAD_BYTES) if data else b""
        if not more:
            raise ConnectionResetError("the connection was closed before the answer's end")
        data += more
        if len(data) > HEAD_BYTES:
            raise HTTPException(f"the head of the answer is longer than {HEAD_BYTES} bytes")
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise HTTPException(f"not an answer of HTTP: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    keeps = (
        version == "HTTP/1.1"
        and headers.get("connection", "").lower() != "close"
        and end + 4 == len(data)  # a body after a HEAD would be read as the next answer
    )
    return (int(status), headers, b""), keeps


def _read(sock: socket.socket) -> tuple[tuple[int, Mapping[str, str], bytes], bool]:
    """Return a whole answer, and whether the connection lasts."""
    with closing(HTTPResponse(cast("socket.socket", AnswerSocket(sock)))) as answer:
        answer.begin()
        body = answer.read(PAGE_BYTES + 1)
        if len(body) > PAGE_BYTES:
            raise HTTPException(f"the answer is longer than {PAGE_BYTES} bytes")
        if answer.length:  # still to come
            raise IncompleteRead(body, answer.length)
        keeps = answer.isclosed() and not answer.will_close
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return (answer.status, headers, body), keeps


def _unanswered(error: OSError | HTTPException, wait: Wait) -> Answer:
    """Return why no answer came."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Answer(None, UNTRUSTED, error.verify_message)
    if isinstance(error, TimeoutError):
        return Answer(None, "", f"no byte came within {wait.stall:g} s")
    if isinstance(error, OSError) and error.strerror:
        return Answer(None, "", error.strerror)
    return Answer(None, "", f"{type(error).__name__}: {error}"[:200])


def read_headers(key: str, headers: Mapping[str, str]) -> StoredObject:
    """Return what the headers of a HEAD say of an object.

    Raises:
        ServiceFaultError: they do not say its length.
    """
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise ServiceFaultError(f"{key}: the answer to HEAD came without its Content-Length")
    crc = headers.get(CRC_HEADER, "")
    checksum = headers.get("x-amz-checksum-crc32", "")
    return StoredObject(
        key,
        int(length),
        int(crc, 16) if _CRC.fullmatch(crc) else None,
        headers.get("etag", "").strip('"') or None,
        # Of parts it is "...-3", a checksum of checksums.
        int.from_bytes(b64decode(checksum), "big") if _CHECKSUM.fullmatch(checksum) else None,
    )
