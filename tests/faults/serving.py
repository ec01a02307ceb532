"""The proxy's own process: listeners, one thread a connection, and the rules at work."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.rules import Act, Record, Request, Rule, Shape, parse_fields, parse_request
from tests.faults.wire import NO_BODY, Link, Wire

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HOST = "127.0.0.1"
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a proxy is started with."""

    server_port: int
    listeners: int
    shape: Shape | None
    seed: int


class Judge:
    """Chooses the fault of a request; counts what each rule has seen."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self.set((), seed)

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

    def __init__(self, setup: Setup, holding: Connection) -> None:
        self.setup = setup
        self.judge = Judge(setup.seed)
        self.records: list[Record] = []
        self._holding = holding
        self._hold_lock = threading.Lock()
        self.shape(setup.shape)

    def shape(self, shape: Shape | None) -> None:
        """Give each listener its links."""
        self.form = shape or Shape()
        self.links = [
            (_link(self.form.down), _link(self.form.up)) for _ in range(self.setup.listeners)
        ]

    def hold(self, record: Record) -> None:
        """Tell the owner; come back when it has done what it wants to do."""
        with self._hold_lock:
            self._holding.send(record)
            self._holding.recv()

    def take_records(self) -> list[Record]:
        """Return the records and forget them."""
        taken, self.records = self.records, []
        return taken


def serve(setup: Setup, asking: Connection, holding: Connection) -> None:
    """Run a proxy until its owner is gone."""
    proxy = Proxy(setup, holding)
    listeners = [socket.create_server((HOST, 0), backlog=1024) for _ in range(setup.listeners)]
    for number, listener in enumerate(listeners):
        threading.Thread(target=_accept, args=(listener, proxy, number), daemon=True).start()
    asking.send([listener.getsockname()[1] for listener in listeners])
    while True:
        try:
            verb, value = asking.recv()
        except (EOFError, OSError):
            return
        answer: list[Record] = []
        if verb == "rules":
            proxy.judge.set(*value)
        elif verb == "shape":
            proxy.shape(value)
        else:
            answer = proxy.take_records()
        asking.send(answer)


def _link(rate: float | None) -> Link | None:
    return None if rate is None else Link(rate)


def _accept(listener: socket.socket, proxy: Proxy, number: int) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_serve_one, args=(sock, proxy, number), daemon=True).start()


def _serve_one(sock: socket.socket, proxy: Proxy, number: int) -> None:
    connection = Passage(sock, proxy, number)
    with contextlib.suppress(OSError):  # either side went away: so does the passage
        while connection.pass_one():
            pass
    connection.close()


class Passage:
    """One client's connection and its counterpart to the server."""

    def __init__(self, sock: socket.socket, proxy: Proxy, number: int) -> None:
        down, up = proxy.links[number]
        rate = proxy.form.connection
        self._proxy = proxy
        self._number = number
        self._client = Wire(sock, down, _link(rate))
        self._up = (up, _link(rate))
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
        rule = self._proxy.judge.choose(request)
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
        if self._proxy.form.latency:
            time.sleep(self._proxy.form.latency)
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
            sock = socket.create_connection((HOST, self._proxy.setup.server_port))
            self._server = Wire(sock, *self._up)
        return self._server

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _record(self, request: Request, status: int, rule: Rule | None) -> Record:
        fault = rule.act.value if rule is not None else ""
        return Record(
            time.monotonic(), request.kind, request.path, status, fault, 0, 0, self._number
        )

    def _note(
        self, request: Request, status: int, rule: Rule | None, sent: int, received: int = 0
    ) -> None:
        record = self._record(request, status, rule)
        self._proxy.records.append(record._replace(sent=sent, received=received))
