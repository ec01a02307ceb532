"""moto's applications behind one port of this machine, over HTTP/1.1.

moto comes with werkzeug's server, which closes the connection after each request, and so needs a
new connection and a new thread for the next: half of the processor time of a request.
"""

import io
import socketserver
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import unquote

from moto.core.request import (
    PRESERVED_HEADER_NAMES_ENVIRON_KEY,
    environ_key_for_header,
    should_preserve_original_header_name,
)
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app


class Request(NamedTuple):
    """A request as it came, its body read."""

    method: str
    target: str  # path and query, as they were sent
    headers: list[tuple[str, str]]
    body: bytes


class MotoServer(socketserver.ThreadingTCPServer):
    """Answers one request at a time.

    A conditional PUT of moto is a check and then a write, so two at the same moment would both
    succeed.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.asked: list[str] = []  # method and path of each request
        self._turn = Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        # moto lists its modules on the disk at each request, to find the service of a host.
        vars(self._app)["get_backend_for_host"] = cache(self._app.get_backend_for_host)

    @property
    def url(self) -> str:
        """The URL of every service."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Request) -> bytes:
        """Return the whole answer to a request, as it goes to the client."""
        head: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            # Of an answer to HEAD the length is the object's, and stands in its headers.
            lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
            head[:] = ["\r\n".join(lines).encode("latin-1")]

        with self._turn:
            self.asked.append(f"{request.method} {request.target}")
            body = b"".join(self._app(self._environ(request), start))
        if b"\r\ncontent-length:" not in head[0].lower():
            head.append(b"\r\nContent-Length: %d" % len(body))
        sent = b"" if request.method == "HEAD" else body
        return b"%b\r\n\r\n%b" % (b"".join(head), sent)

    def _environ(self, request: Request) -> dict[str, Any]:
        path, _, query = request.target.partition("?")
        host, port = "127.0.0.1", str(self.server_address[1])
        environ: dict[str, Any] = {
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": request.target,
            "RAW_URI": request.target,
            "REMOTE_ADDR": host,
            "SERVER_NAME": host,
            "SERVER_PORT": port,
            "SERVER_PROTOCOL": "HTTP/1.1",
        }
        kept: dict[str, str] = {}  # names of metadata with underscores, as moto's server has them
        for name, value in request.headers:
            key = environ_key_for_header(name)
            environ[key] = f"{environ[key]},{value}" if key in environ else value
            if should_preserve_original_header_name(name):
                kept[key] = name
        environ[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = kept
        return environ


class _Connection(socketserver.StreamRequestHandler):
    """Reads requests and answers them until the client hangs up."""

    disable_nagle_algorithm = True
    server: MotoServer

    def handle(self) -> None:
        while (request := self._read()) is not None:
            self.wfile.write(self.server.answer(request))

    def _read(self) -> Request | None:
        try:
            first = self.rfile.readline()
        except ConnectionResetError:
            return None
        if not first:
            return None
        method, target, _ = first.decode("latin-1").split()
        headers = list(self._read_headers())
        known = {name.lower(): value for name, value in headers}
        if known.get("expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self.rfile.read(int(known.get("content-length", 0)))
        return Request(method, target, headers, body)

    def _read_headers(self) -> Iterator[tuple[str, str]]:
        while line := self.rfile.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            yield name, value.strip()


@contextmanager
def run_moto() -> Iterator[MotoServer]:
    """Run a server in this process."""
    with MotoServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
