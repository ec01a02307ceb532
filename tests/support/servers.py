"""Real servers on 127.0.0.1 for the tests: S3 gateways as processes, scripted HTTP as threads.

Tests wait for them until they hang, not until they are slow: machines are shared and busy, so no
test says how long something takes.
"""

import contextlib
import http.client
import re
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from embedded.ministack import PYTHON, EmbeddedAws, free_port

HANG_SECONDS = 600.0  # pytest's own limit of a test (`timeout` in pyproject.toml) is above it
# Seconds between two looks: each look takes CPU time from what it waits for.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.05, 0.4, 1.25


def looks(seconds: float = HANG_SECONDS) -> Iterator[None]:
    """Yield now, and again after pauses that grow, until so many seconds are over."""
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST_PAUSE)


HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: a connection ends with a RST
VERSITY = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testtest"}


def set_variables(patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Set variables of the environment until the patch ends."""
    for name, value in variables.items():
        patch.setenv(name, value)


def require_embedded_aws() -> None:
    """Skip the test where MiniStack is not installed."""
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")


def make_embedded_aws(
    *, auth: bool = False, variables: Mapping[str, str] | None = None
) -> EmbeddedAws:
    """Return an AWS to be started; skip the test where MiniStack is not installed."""
    require_embedded_aws()
    return EmbeddedAws(auth=auth, variables=variables)


def find_versitygw() -> str | None:
    """Return the path of VersityGW, an S3 gateway to a folder, None where it is not installed."""
    return shutil.which("versitygw") or shutil.which(str(Path.home() / "go/bin/versitygw"))


@contextlib.contextmanager
def run_versitygw() -> Iterator[tuple[str, Path]]:
    """Run VersityGW; yield its URL and the folder of its buckets. Its credentials are `VERSITY`."""
    binary = find_versitygw()
    assert binary is not None
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="s3unzip-versity-", dir=memory) as home:
        objects, versions = Path(home, "objects"), Path(home, "versions")
        for folder in (objects, versions):
            folder.mkdir()
        port = free_port()
        arguments = [
            *(binary, "--access", "test", "--secret", "testtest"),
            *("--port", f"{HOST}:{port}", "--keep-alive", "--quiet"),
            *("posix", "--versioning-dir", str(versions), str(objects)),
        ]
        with Path(home, "log").open("wb") as log:
            process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        try:
            await_http(port)
            yield f"http://{HOST}:{port}", objects
        finally:
            process.kill()  # its own way out waits for every idle connection
            process.wait()


def make_tls(folder: Path, *hosts: str) -> ssl.SSLContext:
    """Return the TLS of a server at 127.0.0.1 and `hosts` with a certificate of its own."""
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    names = ",".join([f"IP:{HOST}", *(f"DNS:{host}" for host in hosts)])
    made = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
        *("-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"),
    ]
    subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Yield a URL at which nobody listens: its port is taken all the time, so no server gets it."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield f"http://{HOST}:{taken.getsockname()[1]}"


@contextlib.contextmanager
def raw_server(
    answer: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve each connection with a function that writes what it likes; yield host and port."""
    listener = socket.create_server((HOST, 0))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                opened, _ = listener.accept()
                with context.wrap_socket(opened, server_side=True) if context else opened as one:
                    one.settimeout(10)
                    one.recv(65536)
                    answer(one)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{HOST}:{listener.getsockname()[1]}"
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def await_http(port: int, seconds: float = HANG_SECONDS) -> None:
    """Wait until something answers HTTP on `port`."""
    for _ in looks(seconds):
        with (
            contextlib.suppress(OSError),
            contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=2)) as client,
        ):
            client.request("GET", "/")
            client.getresponse()
            return
    raise TimeoutError(f"nothing answers on port {port}")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def bucket(self) -> str:
        return urlsplit(self.path).path.lstrip("/").partition("/")[0]

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path.lstrip("/").partition("/")[2])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; what it promises and what it does may differ."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None  # hang up after so many bytes of the body
    stall: float = 0.0  # seconds of silence before the rest of the body


def s3_error(status: int, code: str, message: str = "said so", **headers: str) -> Reply:
    """Return an error as S3 words it."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, body.encode(), {"Content-Type": "application/xml", **named})


DENIED = s3_error(403, "AccessDenied")


def serve_range(data: bytes, text: str, headers: Mapping[str, str]) -> Reply:
    """Answer with the bytes that a Range header asks for; with all where it asks for none."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
    if found is None:
        return Reply(HTTPStatus.OK, data, {**headers})
    start, stop = found.groups()
    piece = slice(int(start), int(stop or len(data)) + 1) if start else slice(-int(stop), None)
    span = range(len(data))[piece]
    if not span:
        return Reply(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
    place = {"Content-Range": f"bytes {span.start}-{span.stop - 1}/{len(data)}"}
    return Reply(HTTPStatus.PARTIAL_CONTENT, data[piece], {**headers, **place})


class HttpServer:
    """A server whose answers a function makes; `asked` has every request."""

    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.asked: list[Asked] = []
        self.make_reply = answer
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # of the server behind a proxy
        self._server = ThreadingHTTPServer((HOST, 0), type("Handler", (_Handler,), {"owner": self}))
        self._server.daemon_threads = True
        self._server.socket.listen(1024)  # clients that come at once
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = 30.0
    # One segment an answer: else a small one waits for the client's delayed ACK.
    wbufsize = 64 * 1024
    owner: ClassVar[HttpServer]

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def do_CONNECT(self) -> None:
        """Be the server to which this proxy would connect."""
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        self.wfile.flush()
        with self.owner.tls.wrap_socket(self.connection, server_side=True) as self.request:
            self.setup()
            self.handle()
        self.close_connection = True

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        names = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, names, self.rfile.read(length))
        self.owner.asked.append(asked)
        try:
            reply = self.owner.make_reply(asked)
        except ConnectionError as end:  # a server that hangs up, with a RST or without
            self.close_connection = True
            if isinstance(end, ConnectionResetError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.headers.keys().isdisjoint({"Content-Length", "Transfer-Encoding"}):
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(ConnectionError):
            self.wfile.write(reply.body[: reply.cut])
            self.wfile.flush()
            if reply.stall:
                time.sleep(reply.stall)
        if reply.cut is not None:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - so called

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """Say nothing."""


@dataclass(slots=True)
class WebFiles:
    """Files on the web, and which parts of HTTP their server knows."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    suffixes: bool = True
    etags: bool = True
    weak: bool = False

    def __call__(self, asked: Asked) -> Reply:
        data = self.files.get(asked.path.lstrip("/").partition("?")[0])
        if data is None:
            return Reply(HTTPStatus.NOT_FOUND)
        etag = f'{"W/" * self.weak}"{hash(data):x}"'
        headers = {"ETag": etag} if self.etags else {}
        text = asked.headers.get("range", "")
        is_known = self.ranges and (self.suffixes or not text.startswith("bytes=-"))
        return serve_range(data, text * is_known, headers)
