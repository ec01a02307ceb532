"""moto's applications behind one port of this machine, over HTTP/1.1.

moto comes with werkzeug's server, which closes the connection after each request, and so needs a
new connection and a new thread for the next: half of the processor time of a request.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import unquote

from moto.core.request import (
    PRESERVED_HEADER_NAMES_ENVIRON_KEY,
    environ_key_for_header,
    should_preserve_original_header_name,
)
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tests.support.servers import HOST, Asked, HttpServer, Reply

OWNER = "123456789012"  # the account that owns all buckets of moto


class Moto:
    """Answers one request at a time.

    A conditional PUT of moto is a check and then a write, so two at the same moment would both
    succeed.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []  # method and path of each request
        self._turn = Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        # moto lists its modules on the disk at each request, to find the service of a host.
        vars(self._app)["get_backend_for_host"] = cache(self._app.get_backend_for_host)

    def __call__(self, asked: Asked) -> Reply:
        head: list[tuple[int, dict[str, str]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            # Of an answer to HEAD the length is the object's, and stands in its headers.
            names = {name.title(): value for name, value in headers}
            head.append((int(status.partition(" ")[0]), names))

        with self._turn:
            self.asked.append(f"{asked.method} {asked.path}")
            if asked.headers.get("x-amz-expected-bucket-owner", OWNER) != OWNER:
                return Reply(403, b"<Error><Code>AccessDenied</Code></Error>", {})  # as in S3
            body = b"".join(self._app(_environ(asked), start))
        status, headers = head[-1]
        return Reply(status, body, headers)


def _environ(asked: Asked) -> dict[str, Any]:
    path, _, query = asked.path.partition("?")
    host, _, port = asked.headers.get("host", HOST).partition(":")
    environ: dict[str, Any] = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(asked.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": asked.path,
        "RAW_URI": asked.path,
        "REMOTE_ADDR": HOST,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    kept: dict[str, str] = {}  # names of metadata with underscores, as moto's server has them
    for name, value in asked.headers.items():
        environ[environ_key_for_header(name)] = value
        if should_preserve_original_header_name(name):
            kept[environ_key_for_header(name)] = name
    environ[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = kept
    return environ


@contextmanager
def run_moto() -> Iterator[tuple[str, list[str]]]:
    """Run a server in this process; yield its URL, and method and path of each request."""
    moto = Moto()
    with HttpServer(moto) as server:
        yield server.url, moto.asked
