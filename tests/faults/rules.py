"""What a proxy may do to a request, and which requests: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

WRITES = ("put", "create", "part", "copy", "complete")


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

    at: float  # monotonic seconds, the same clock in all processes of a machine
    kind: str
    path: str
    status: int  # as the client saw it; 0: it saw none
    fault: str  # of the rule that hit it; empty: none
    sent: int  # bytes of its body
    received: int  # bytes of the answer's body


class Request(NamedTuple):
    """The head of a request, as far as the proxy looks at it."""

    raw: bytes
    method: str
    path: str  # decoded, with its leading slash: /bucket/key
    kind: str
    fields: dict[bytes, bytes]  # lower-case names


def parse_request(raw: bytes) -> Request:
    """Return what `raw`, up to and with its empty line, asks for."""
    first, fields = parse_fields(raw)
    method, target, _ = first.decode("latin-1").split(" ", 2)
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    kind = _kind(method, query.keys(), copies=b"x-amz-copy-source" in fields)
    return Request(raw, method, unquote(parts.path), kind, fields)


def parse_fields(raw: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the first line and the header fields of a head."""
    first, *lines = raw[:-4].split(b"\r\n")
    fields = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    return first, fields


def _kind(method: str, query: object, *, copies: bool) -> str:
    assert hasattr(query, "__contains__")
    has_upload = "uploadId" in query
    if method == "POST":
        return "create" if "uploads" in query else "complete" if has_upload else "delete"
    if method == "PUT":
        if copies:
            return "copy"
        return "part" if has_upload else "put"
    if method == "DELETE":
        return "abort" if has_upload else "delete"
    if method == "HEAD":
        return "head"
    listing = {"list-type", "uploads", "uploadId", "prefix", "location"}
    return "list" if any(name in query for name in listing) else "get"
