"""Ports of servers that are told which one to take."""

import contextlib
import random
import socket

# Below those that systems give to whoever asks for any (Linux: 32768 and up), so that no such
# socket takes it before the server does.
PORTS = range(10_240, 32_768)
HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port of this machine that was free a moment ago."""
    while True:
        port = random.choice(PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
