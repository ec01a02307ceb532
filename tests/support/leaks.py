"""What a test must leave as it found it, because the next test of the process sees it."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

OURS = "PYTEST_CURRENT_TEST"  # pytest names the test in progress in it
# `signal.getsignal` makes an enumeration of each answer, with an exception where it is a function.
# All signals are asked for twice a test.
_get_handler = vars(sys.modules["_signal"])["getsignal"]


def take_state() -> dict[str, Any]:
    """Return the state of this process that tests share, by the name of each thing."""
    state = {f"variable {name}": value for name, value in os.environ.items() if name != OURS}
    # pytest-timeout sets the handler of SIGALRM.
    signals = signal.valid_signals() - {signal.SIGALRM, signal.SIGKILL, signal.SIGSTOP}
    return {
        **state,
        **{f"handler of signal {number:d}": _get_handler(number) for number in signals},
        # What a simulation may exchange.
        "time.sleep": time.sleep,
        "time.time": time.time,
        "time.monotonic": time.monotonic,
        "threading.Thread": threading.Thread,
        "working folder": Path.cwd(),
        "sys.path": list(sys.path),
    }


def find_left(before: dict[str, Any]) -> list[str]:
    """Return the names of what has changed."""
    now = take_state()
    return sorted(name for name in before.keys() | now if before.get(name) != now.get(name))


@contextmanager
def product_logger_kept() -> Iterator[None]:
    """Set the product's logger back: a level that one test sets would hide the lines of others."""
    logger = logging.getLogger("s3unzip")
    kept = vars(logger) | {"handlers": [*logger.handlers], "filters": [*logger.filters]}
    yield
    vars(logger).update(kept)
    logger.setLevel(kept["level"])  # which forgets what was decided by the other


def print_log_to(stream: TextIO) -> None:
    """Let the product's log go to a stream, wherever the first import of a handler let it."""
    for handler in logging.getLogger("s3unzip").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(stream)
