"""A proxy that breaks and counts requests on their way to a real S3 server.

It runs in a thread of its own, and passes heads and bodies on as they are: SigV4 signs the Host, so
clients sign the proxy's own address and the server checks against what it is sent. It knows HTTP
and the kinds of S3 requests; it knows nothing of s3unzip.

::

    with FaultProxy(server_port) as proxy:
        proxy.endpoint                         # http://127.0.0.1:...
        proxy.set_rules(Rule(Act.ANSWER, kinds=("put",), chance=0.05))
        proxy.take_records()                   # every request since the last time
"""

import asyncio
import random
import re
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

HOST = "127.0.0.1"
HEAD = 64 * 1024  # bytes of a head, at most
END = b"\r\n\r\n"
NO_BODY = frozenset({204, 304})
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
WRITES = ("put", "create", "part", "copy", "complete")
LISTS = frozenset({"list-type", "uploads", "uploadId", "prefix", "location"})


class Act(StrEnum):
    """What happens to a request."""

    ANSWER = "answer"  # the proxy answers with `status` and `code`; the store sees nothing
    RESET = "reset"  # the connection is reset; the store sees nothing
    STALL = "stall"  # silence for `seconds`, then a reset; the store sees nothing
    TRUNCATE = "truncate"  # half of the answer's body arrives, then the connection ends
    LOSE = "lose"  # the store does it, the answer is lost
    ERROR_BODY = "error-body"  # the store sees nothing; the answer is 200 with an <Error> in it
    FLIP = "flip"  # one byte of the request's body is changed on its way
    HOLD = "hold"  # the request waits until the proxy's owner has been told and has returned


@dataclass(frozen=True, slots=True)
class Rule:
    """Do `act` to requests of `kinds`; the first rule that fits a request is applied."""

    act: Act
    kinds: tuple[str, ...] = ()  # none: all
    within: str = ""  # only where the path holds this
    chance: float = 1.0  # of a request that fits, to be hit
    after: int = 0  # so many fitting requests are let through first
    times: int | None = None  # at most so many are hit; None: all
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 5.0


class Record(NamedTuple):
    """One request that came through."""

    kind: str
    path: str  # decoded, with its leading slash: /bucket/key
    status: int  # as the client saw it; 0: it saw none
    fault: str  # of the rule that hit it; empty: none
    sent: int  # bytes of its body
    received: int  # bytes of the answer's body


class FaultProxy:
    """One proxy before the S3 server at a port of 127.0.0.1; a context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._ready = threading.Event()
        self.port = 0
        self._records: list[Record] = []
        self.set_rules()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=asyncio.run, args=(self._listen(),), daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def set_rules(
        self, *rules: Rule, on_hold: Callable[[], object] | None = None, seed: int = 1
    ) -> None:
        """Apply `rules` from now on, their counts at zero; `on_hold` is called at each HOLD."""
        self._on_hold = on_hold or (lambda: None)
        self._random = random.Random(seed)
        self._rules = [(rule, {"seen": 0, "hit": 0}) for rule in rules]

    def take_records(self) -> list[Record]:
        """Return the requests answered since the last time."""
        taken, self._records = self._records, []
        return taken

    async def _listen(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, HOST, 0, backlog=1024, limit=HEAD)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass the requests of one connection on, until either side goes away."""
        try:
            while await self._pass_one(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _pass_one(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Pass one request and its answer; say whether another may come."""
        head = await reader.readuntil(END)
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        kind, path = _kind(method, target, head), unquote(urlsplit(target).path)
        if _field(head, b"expect"):
            writer.write(b"HTTP/1.1 100 Continue" + END)
            head = re.sub(rb"\r\nexpect:[^\r]*", b"", head, flags=re.IGNORECASE)
        body = await _read_body(reader, head)
        rule = self._choose(kind, path)
        act = rule.act if rule is not None else None

        def note(status: int, received: int = 0) -> None:
            self._records.append(Record(kind, path, status, act or "", len(body), received))

        if act is Act.HOLD:
            await asyncio.to_thread(self._on_hold)
        if rule is not None and act in {Act.RESET, Act.STALL}:
            await asyncio.sleep(rule.seconds if act is Act.STALL else 0)
            note(0)
            return _reset(writer)
        if rule is not None and act in {Act.ANSWER, Act.ERROR_BODY}:
            status = 200 if act is Act.ERROR_BODY else rule.status
            error = b"" if method == "HEAD" else ERROR.format(code=rule.code).encode()
            note(status, len(error))
            kept = f"Content-Type: application/xml\r\nContent-Length: {len(error)}"
            writer.write(f"HTTP/1.1 {status} Injected\r\n{kept}\r\n\r\n".encode() + error)
            return True
        sent = bytes([body[0] ^ 1]) + body[1:] if act is Act.FLIP and body else body
        answer, content = await self._ask(head + sent, has_body=method != "HEAD")
        if act is Act.LOSE:
            note(0, len(content))
            return _reset(writer)
        if act is Act.TRUNCATE:  # without a body the head is cut
            note(0)
            half = answer + content[: len(content) // 2]
            writer.write(half if len(content) > 1 else answer[: len(answer) // 2])
            return False
        # Noted first: whoever has the answer finds the record.
        note(int(answer.split(b" ", 2)[1]), int(_field(answer, b"content-length") or 0))
        writer.write(answer + content)
        return _field(answer, b"connection").lower() != b"close"

    async def _ask(self, request: bytes, *, has_body: bool) -> tuple[bytes, bytes]:
        """Return the server's answer to a request: its head and its body."""
        reader, writer = await asyncio.open_connection(HOST, self._server_port, limit=HEAD)
        try:
            writer.write(request)
            head = await reader.readuntil(END)
            has_body = has_body and int(head.split(b" ", 2)[1]) not in NO_BODY
            return head, await _read_body(reader, head, endless=True) if has_body else b""
        finally:
            _reset(writer)  # else the connections that were used up all ports

    def _choose(self, kind: str, path: str) -> Rule | None:
        """Return the rule that hits a request."""
        for rule, counts in self._rules:
            if (rule.kinds and kind not in rule.kinds) or rule.within not in path:
                continue
            counts["seen"] += 1
            if counts["seen"] <= rule.after or counts["hit"] == rule.times:
                continue
            if rule.chance < 1 and self._random.random() >= rule.chance:
                continue
            counts["hit"] += 1
            return rule
        return None


async def _read_body(reader: StreamReader, head: bytes, *, endless: bool = False) -> bytes:
    """Return a body as it is on the wire, chunk lines included."""
    if _field(head, b"transfer-encoding").lower() == b"chunked":
        pieces, size = [], 1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            pieces += [line, await reader.readexactly(size + 2)]
        return b"".join(pieces)
    if length := _field(head, b"content-length"):
        return await reader.readexactly(int(length))
    return await reader.read() if endless else b""


def _field(head: bytes, name: bytes) -> bytes:
    """Return the value of a header field; empty where there is none."""
    found = re.search(rb"\r\n" + name + rb":[ \t]*([^\r]*)", head, re.IGNORECASE)
    return found[1].strip() if found else b""


def _reset(writer: StreamWriter) -> bool:
    """End a connection with a RST; say that no request follows."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


def _kind(method: str, target: str, head: bytes) -> str:
    query = parse_qs(urlsplit(target).query, keep_blank_values=True).keys()
    has_upload = "uploadId" in query
    if method == "POST":
        return "create" if "uploads" in query else "complete" if has_upload else "delete"
    if method == "PUT":
        copies = bool(_field(head, b"x-amz-copy-source"))
        return "copy" if copies else "part" if has_upload else "put"
    if method == "DELETE":
        return "abort" if has_upload else "delete"
    if method == "HEAD":
        return "head"
    return "list" if query & LISTS else "get"
