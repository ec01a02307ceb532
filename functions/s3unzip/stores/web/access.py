"""What an HTTP source may do, and the limits on each of its requests."""

from __future__ import annotations

from msgspec import Struct

MAX_REDIRECTS = 5
MAX_HEAD_BYTES = 256 * 1024  # status lines and headers of one answer


class WebAccess(Struct, frozen=True):
    """How URLs are reached; picklable, and without a secret. Times in seconds."""

    other_hosts: bool = False  # follow redirects to other hosts
    private_addresses: bool = False  # connect where a name resolves to a private address
    connect_seconds: float = 5.0
    check_reachable: bool = False  # whether a program that has just begun gives up at once
    stall_seconds: float = 30.0  # for the whole head of an answer; without a byte of its body
    min_rate: int = 1024  # bytes a second of a body: a slower one is given up
