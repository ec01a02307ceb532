"""Memory and traffic of a read from a web server that sends an endless body.

    uv run python -m bench.hostile_web

The server answers each range request with a 206 of 4 GB, or with chunks that
never end. 64 KiB are asked for. Prints the peak resident set of the process
that reads (aim: at most 64), and how much of a body the server could send.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measure import print_figure, run_command
from s3unzip.settings import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = 64 * KIB
HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-65535/4000000000\r\n"
WAYS = {
    "length": b"Content-Length: 4000000000\r\n\r\n",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\nEE6B2800\r\n",
    "header": b"X-Endless: ",
}
READ = """
import sys
from s3unzip.errors import S3UnzipError
from s3unzip.model import Location, Pin
from s3unzip.stores.web import WebSource
from s3unzip.zip import ByteRange
archive = WebSource().pinned(Location("http", sys.argv[1], "a.zip"), Pin(4_000_000_000))
try:
    print(len(archive.read(ByteRange(0, int(sys.argv[2])))))
except S3UnzipError as error:
    print(type(error).__name__)
"""


@dataclass(slots=True)
class EndlessServer:
    """The server's address, and how many bytes it sent."""

    host: str
    sent: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def serve_endless(way: str) -> Iterator[EndlessServer]:
    """Serve one kind of endless response."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = EndlessServer(f"127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            with contextlib.suppress(OSError):
                while not server.ended.is_set():
                    opened, _ = listener.accept()
                    with opened, contextlib.suppress(OSError):
                        opened.recv(64 * KIB)
                        opened.sendall(HEAD + WAYS[way])
                        while not server.ended.is_set():
                            server.sent += opened.send(bytes(64 * KIB))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server
        server.ended.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def measure_endless_body() -> float:
    """Read from each kind of server in a separate process; return the highest peak in MB."""
    peaks = []
    for way in WAYS:
        with serve_endless(way) as server:
            cost = run_command([sys.executable, "-c", READ, server.host, str(ASKED)])
        print(
            f"{way}: {cost.output.strip()}; {cost.rss_mb:.0f} MB, {server.sent / MIB:.1f} MiB sent"
        )
        peaks.append(cost.rss_mb)
    return max(peaks)


def main() -> None:
    """Measure and print."""
    print_figure("hostile.web.peak_mb", measure_endless_body(), "MB")


if __name__ == "__main__":
    main()
