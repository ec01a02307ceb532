"""A proxy that breaks, slows and counts requests on their way to a real S3 server.

It runs in a process of its own, one thread a connection, and passes heads and
bodies on as they are: SigV4 signs the Host, so clients sign the proxy's own
address and the server checks against what it is sent. It knows HTTP and the
kinds of S3 requests; it knows nothing of s3unzip.

::

    with FaultProxy(server_port, listeners=4, shape=Shape(down=75e6, up=75e6)) as proxy:
        proxy.endpoint(2)                      # http://127.0.0.1:..., the third worker's
        proxy.set_rules(Rule(Act.ANSWER, kinds=("put",), chance=0.05))
        proxy.take_records()                   # every request since the last time
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from functools import cache
from typing import TYPE_CHECKING

from tests.faults.serving import Setup, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from typing import Self

    from tests.faults.rules import Record, Rule, Shape

HOST = "127.0.0.1"
_claims: list[socket.socket] = []  # of this process


@cache
def claim_endpoint(endpoints: tuple[str, ...]) -> str:
    """Return an endpoint that no other process has, as long as there are enough.

    A name of Linux's abstract sockets belongs to the process that binds it, to its end.
    """
    for endpoint in endpoints:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0s3unzip-claims-{endpoint}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return endpoint
    return endpoints[os.getpid() % len(endpoints)]


class FaultProxy:
    """One proxy; a context manager.

    Args:
        server_port: of the S3 server on 127.0.0.1.
        listeners: ports to listen on; each has its own bandwidth, so one is one worker.
        shape: how fast each listener is.
        seed: of the dice that `Rule.chance` throws.
    """

    def __init__(
        self, server_port: int, *, listeners: int = 1, shape: Shape | None = None, seed: int = 1
    ) -> None:
        self._setup = Setup(server_port, listeners, shape, seed)
        self._lock = threading.Lock()
        self._on_hold: Callable[[Record], None] | None = None
        self.ports: list[int] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._asking, theirs = context.Pipe()
        self._holding, their_holding = context.Pipe()
        self._process = context.Process(
            target=serve, args=(self._setup, theirs, their_holding), daemon=True
        )
        self._process.start()
        theirs.close()
        their_holding.close()
        self.ports = self._asking.recv()
        threading.Thread(target=self._release, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.join()
        self._asking.close()

    def endpoint(self, worker: int = 0) -> str:
        """Return the URL of a listener; numbers beyond the last begin anew."""
        return f"http://{HOST}:{self.ports[worker % len(self.ports)]}"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The URLs of all listeners, to be pickled to workers: see `claim_endpoint`."""
        return tuple(self.endpoint(n) for n in range(len(self.ports)))

    def set_rules(
        self, *rules: Rule, on_hold: Callable[[Record], None] | None = None, seed: int = 1
    ) -> None:
        """Apply `rules` from now on, their counts at zero; `on_hold` is called at each HOLD."""
        self._on_hold = on_hold
        self._ask("rules", (rules, seed))

    def set_shape(self, shape: Shape | None) -> None:
        """Shape the connections that are made from now on."""
        self._ask("shape", shape)

    def take_records(self) -> list[Record]:
        """Return the requests answered since the last time."""
        records: list[Record] = self._ask("records", None)
        return records

    def _ask(self, verb: str, value: object) -> list[Record]:
        with self._lock:
            self._asking.send((verb, value))
            answer: list[Record] = self._asking.recv()
            return answer

    def _release(self) -> None:
        holding: Connection = self._holding
        while True:
            try:
                record = holding.recv()
            except (EOFError, OSError):
                return
            if self._on_hold is not None:
                self._on_hold(record)
            holding.send(None)
