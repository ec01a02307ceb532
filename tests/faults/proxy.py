"""A proxy that breaks and counts requests on their way to a real S3 server.

It runs in a process of its own, one thread a connection, and passes heads and
bodies on as they are: SigV4 signs the Host, so clients sign the proxy's own
address and the server checks against what it is sent. It knows HTTP and the
kinds of S3 requests; it knows nothing of s3unzip.

::

    with FaultProxy(server_port) as proxy:
        proxy.endpoint                         # http://127.0.0.1:...
        proxy.set_rules(Rule(Act.ANSWER, kinds=("put",), chance=0.05))
        proxy.take_records()                   # every request since the last time
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import random
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Self

from tests.faults.rules import Act, Record, Request, Rule, parse_fields, parse_request
from tests.faults.wire import NO_BODY, Wire

HOST = "127.0.0.1"
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"


class FaultProxy:
    """One proxy before the S3 server at a port of 127.0.0.1; a context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._lock = threading.Lock()
        self._on_hold: Callable[[Record], None] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._asking, theirs = context.Pipe()
        self._holding, their_holding = context.Pipe()
        self._process = context.Process(
            target=serve, args=(self._server_port, theirs, their_holding), daemon=True
        )
        self._process.start()
        theirs.close()
        their_holding.close()
        self.port = self._asking.recv()
        threading.Thread(target=self._release, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.join()
        self._asking.close()

    @property
    def endpoint(self) -> str:
        """The URL."""
        return f"http://{HOST}:{self.port}"

    def set_rules(
        self, *rules: Rule, on_hold: Callable[[Record], None] | None = None, seed: int = 1
    ) -> None:
        """Apply `rules` from now on, their counts at zero; `on_hold` is called at each HOLD."""
        self._on_hold = on_hold
        self._ask((rules, seed))

    def take_records(self) -> list[Record]:
        """Return the requests answered since the last time."""
        return self._ask(None)

    def _ask(self, rules: tuple[tuple[Rule, ...], int] | None) -> list[Record]:
        with self._lock:
            self._asking.send(rules)
            answer: list[Record] = self._asking.recv()
            return answer

    def _release(self) -> None:
        while True:
            try:
                record = self._holding.recv()
            except (EOFError, OSError):
                return
            if self._on_hold is not None:
                self._on_hold(record)
            self._holding.send(None)


# In the proxy's process ---------------------------------------------------------------------


class Rules:
    """The rules at work: they choose the fault of a request, and count what each has seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.set((), 1)

    def set(self, rules: tuple[Rule, ...], seed: int) -> None:
        """Take new rules."""
        with self._lock:
            self._random = random.Random(seed)
            self._rules = rules
            self._seen = [0] * len(rules)
            self._hit = [0] * len(rules)

    def choose(self, request: Request) -> Rule | None:
        """Return the rule that hits `request`."""
        with self._lock:
            for number, rule in enumerate(self._rules):
                if rule.kinds and request.kind not in rule.kinds:
                    continue
                if rule.within not in request.path:
                    continue
                self._seen[number] += 1
                if self._seen[number] <= rule.after or self._hit[number] == rule.times:
                    continue
                if rule.chance < 1 and self._random.random() >= rule.chance:
                    continue
                self._hit[number] += 1
                return rule
        return None


class Proxy:
    """Everything the connections share."""

    def __init__(self, server_port: int, holding: Connection) -> None:
        self.server_port = server_port
        self.rules = Rules()
        self.records: list[Record] = []
        self._holding = holding
        self._hold_lock = threading.Lock()

    def hold(self, record: Record) -> None:
        """Tell the owner; come back when it has done what it wants to do."""
        with self._hold_lock:
            self._holding.send(record)
            self._holding.recv()

    def take_records(self) -> list[Record]:
        """Return the records and forget them."""
        taken, self.records = self.records, []
        return taken


def serve(server_port: int, asking: Connection, holding: Connection) -> None:
    """Run a proxy until its owner is gone."""
    proxy = Proxy(server_port, holding)
    listener = socket.create_server((HOST, 0), backlog=1024)
    threading.Thread(target=_accept, args=(listener, proxy), daemon=True).start()
    asking.send(listener.getsockname()[1])
    while True:
        try:
            rules = asking.recv()
        except (EOFError, OSError):
            return
        if rules is not None:
            proxy.rules.set(*rules)
        asking.send(proxy.take_records() if rules is None else [])


def _accept(listener: socket.socket, proxy: Proxy) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_serve_one, args=(sock, proxy), daemon=True).start()


def _serve_one(sock: socket.socket, proxy: Proxy) -> None:
    connection = Passage(sock, proxy)
    with contextlib.suppress(OSError):  # either side went away: so does the passage
        while connection.pass_one():
            pass
    connection.close()


class Passage:
    """One client's connection and its counterpart to the server."""

    def __init__(self, sock: socket.socket, proxy: Proxy) -> None:
        self._proxy = proxy
        self._client = Wire(sock)
        self._server: Wire | None = None

    def close(self) -> None:
        """End both sides."""
        self._client.close()
        self._drop_server()

    def pass_one(self) -> bool:
        """Pass one request and its answer; say whether another may come."""
        raw = self._client.head()
        if raw is None:
            return False
        request = parse_request(raw)
        rule = self._proxy.rules.choose(request)
        if rule is not None and rule.act is Act.HOLD:
            self._proxy.hold(self._record(request, 0, rule))
        elif rule is not None and rule.act not in {Act.TRUNCATE, Act.LOSE, Act.FLIP}:
            return self._refuse(request, rule)
        return self._forward(request, rule)

    def _refuse(self, request: Request, rule: Rule) -> bool:
        """Answer, or do not, without the server."""
        waits = b"expect" in request.fields
        sent = 0 if waits else sum(map(len, self._client.body(request.fields)))
        if rule.act in {Act.RESET, Act.STALL}:
            if rule.act is Act.STALL:
                time.sleep(rule.seconds)
            self._note(request, 0, rule, sent)
            self._client.close(reset=True)
            return False
        status = 200 if rule.act is Act.ERROR_BODY else rule.status
        body = b"" if request.method == "HEAD" else ERROR.format(code=rule.code).encode()
        closing = "Connection: close\r\n" if waits else ""
        head = (
            f"HTTP/1.1 {status} Injected\r\nContent-Type: application/xml\r\n{closing}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._note(request, status, rule, sent, len(body))
        self._client.send(head.encode() + body)
        return not waits

    def _forward(self, request: Request, rule: Rule | None) -> bool:
        sent, head = self._send(request, flip=rule is not None and rule.act is Act.FLIP)
        if head is None:  # the server closed an idle connection, or went away
            return False
        first, fields = parse_fields(head)
        status = int(first.split(b" ", 2)[1])
        server = self._server
        assert server is not None
        none = request.method == "HEAD" or status in NO_BODY
        body = iter(()) if none else server.body(fields, endless=True)
        if rule is not None and rule.act is Act.LOSE:
            received = sum(map(len, body))
            self._note(request, 0, rule, sent, received)
            self._client.close(reset=True)
            return False
        if rule is not None and rule.act is Act.TRUNCATE:
            self._truncate(head, int(fields.get(b"content-length", b"0")) // 2)
            self._note(request, 0, rule, sent)
            return False
        # Noted first: whoever has the answer finds the record.
        self._note(request, status, rule, sent, int(fields.get(b"content-length", b"0")))
        pieces = itertools.chain((head,), body)
        small = next(pieces)
        for piece in pieces:
            self._client.send(small + piece)
            small = b""
        if small:
            self._client.send(small)
        if fields.get(b"connection", b"").lower() == b"close":
            self._drop_server()
            return False
        return True

    def _send(self, request: Request, *, flip: bool) -> tuple[int, bytes | None]:
        """Send the request; return the bytes of its body and the head of the answer."""
        for fresh in (False, True):
            server = self._connect(fresh=fresh)
            if b"expect" in request.fields:
                server.send(request.raw)
                head = server.head()
                if head is not None and not head.startswith(b"HTTP/1.1 100"):
                    return 0, head
                if head is not None:
                    self._client.send(head)
                    return self._send_body(server, request, b"", flip=flip), server.head()
                continue
            try:
                sent = self._send_body(server, request, request.raw, flip=flip)
                head = server.head()
            except OSError:
                sent, head = 0, None
            if head is not None or sent:
                return sent, head
        return 0, None

    def _send_body(self, server: Wire, request: Request, before: bytes, *, flip: bool) -> int:
        sent = 0
        for piece in self._client.body(request.fields):
            data = bytes([piece[0] ^ 1]) + piece[1:] if flip and not sent else piece
            server.send(before + data)
            before = b""
            sent += len(piece)
        if before:
            server.send(before)
        return sent

    def _truncate(self, head: bytes, size: int) -> None:
        server = self._server
        assert server is not None
        if not size:  # no body to cut: the head is cut
            self._client.send(head[: len(head) // 2])
            self._drop_server()
            return
        self._client.send(head)
        _, fields = parse_fields(head)
        for piece in server.body(fields):
            self._client.send(piece[:size])
            size -= len(piece)
            if size <= 0:
                break
        self._drop_server()

    def _connect(self, *, fresh: bool) -> Wire:
        if fresh:
            self._drop_server()
        if self._server is None:
            self._server = Wire(socket.create_connection((HOST, self._proxy.server_port)))
        return self._server

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _record(self, request: Request, status: int, rule: Rule | None) -> Record:
        fault = rule.act.value if rule is not None else ""
        return Record(time.monotonic(), request.kind, request.path, status, fault, 0, 0)

    def _note(
        self, request: Request, status: int, rule: Rule | None, sent: int, received: int = 0
    ) -> None:
        record = self._record(request, status, rule)
        self._proxy.records.append(record._replace(sent=sent, received=received))
