"""A proxy that breaks and counts requests on their way to a real S3 server.

It passes headers and bodies on as they are: SigV4 signs the Host, so clients sign the proxy's own
address and the server checks against what it is sent. It knows the kinds of S3 requests; it knows
nothing of s3unzip.

::

    with FaultProxy(server_port) as proxy:
        proxy.url                              # http://127.0.0.1:...
        proxy.set_rules(Rule(Act.ANSWER, kinds=("put",), chance=0.05))
        proxy.take_records()                   # every request since the last time
"""

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.servers import HOST, RESET, Asked, HttpServer, Reply, s3_error

WRITES = ("put", "create", "part", "copy", "complete")
LISTS = frozenset({"list-type", "uploads", "uploadId", "prefix", "location"})


class Act(StrEnum):
    """What happens to a request."""

    ANSWER = "answer"  # the proxy answers with `status` and `code`; the store sees nothing
    RESET = "reset"  # the connection is reset; the store sees nothing
    STALL = "stall"  # silence for `seconds`, then a reset; the store sees nothing
    TRUNCATE = "truncate"  # half of the body of the answer arrives; of an empty one there is none
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
    fault: str  # of the rule that hit it; empty: none
    sent: int  # bytes of its body


class FaultProxy(HttpServer):
    """One proxy before the S3 server at a port of this machine; a context manager."""

    def __init__(self, server_port: int) -> None:
        super().__init__(self._pass_on)
        self._server_port = server_port
        self._records: list[Record] = []
        self._lock = threading.Lock()
        self.set_rules()

    def set_rules(self, *rules: Rule, on_hold: Callable[[], object] | None = None) -> None:
        """Apply `rules` from now on, their counts at zero; `on_hold` is called at each HOLD."""
        self._on_hold = on_hold or (lambda: None)
        self._random = random.Random(1)
        self._rules = [(rule, {"seen": 0, "hit": 0}) for rule in rules]

    def take_records(self) -> list[Record]:
        self.asked.clear()
        taken, self._records = self._records, []
        return taken

    def _pass_on(self, asked: Asked) -> Reply:
        kind, path = _kind(asked), unquote(urlsplit(asked.path).path)
        with self._lock:
            rule = self._choose(kind, path)
        act = rule.act if rule is not None else None

        def note() -> None:
            self._records.append(Record(kind, path, act or "", len(asked.body)))

        if act is Act.HOLD:
            self._on_hold()
        if rule is not None and act in {Act.RESET, Act.STALL}:
            time.sleep(rule.seconds if act is Act.STALL else 0)
            note()
            raise ConnectionResetError
        if rule is not None and act in {Act.ANSWER, Act.ERROR_BODY}:
            note()
            return s3_error(200 if act is Act.ERROR_BODY else rule.status, rule.code)
        if act is Act.FLIP and asked.body:
            asked = replace(asked, body=bytes([asked.body[0] ^ 1]) + asked.body[1:])
        reply = self._ask(asked)
        if act is Act.LOSE or (act is Act.TRUNCATE and len(reply.body) < 2):
            note()
            raise ConnectionResetError
        # Noted first: whoever has the answer finds the record.
        note()
        return replace(reply, cut=len(reply.body) // 2 if act is Act.TRUNCATE else None)

    def _ask(self, asked: Asked) -> Reply:
        connection = http.client.HTTPConnection(HOST, self._server_port)
        connection.putrequest(asked.method, asked.path, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers.items():
            if name != "expect":  # the server of this proxy has answered it
                connection.putheader(name, value)
        connection.connect()
        # Else the connections that were used up all ports.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        with suppress(ConnectionError):  # it has answered before the body came
            connection.endheaders(asked.body)
        with connection.getresponse() as answer:
            headers = {name.title(): value for name, value in answer.getheaders()}
            body = answer.read()
        connection.close()
        for name in ("Transfer-Encoding", "Connection"):  # of one hop
            headers.pop(name, None)
        return Reply(answer.status, body, headers)

    def _choose(self, kind: str, path: str) -> Rule | None:
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


def _kind(asked: Asked) -> str:
    query = parse_qs(urlsplit(asked.path).query, keep_blank_values=True).keys()
    has_upload = "uploadId" in query
    match asked.method:
        case "POST":
            return "create" if "uploads" in query else "complete" if has_upload else "delete"
        case "PUT" if "x-amz-copy-source" in asked.headers:
            return "copy"
        case "PUT":
            return "part" if has_upload else "put"
        case "DELETE":
            return "abort" if has_upload else "delete"
        case "HEAD":
            return "head"
    return "list" if query & LISTS else "get"
