"""What a test must leave as it found it, because the next test of the process sees it."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, TextIO

# pytest names the test in progress in the first; pytest-timeout sets the handler of SIGALRM.
OURS = {"PYTEST_CURRENT_TEST"}
SIGNALS = sorted(signal.valid_signals() - {signal.SIGALRM, signal.SIGKILL, signal.SIGSTOP})
# What a simulation may exchange, and where it is.
CLOCKS = ((time, "sleep"), (time, "time"), (time, "monotonic"), (threading, "Thread"))


# `signal.getsignal` makes an enumeration of each answer, with an exception where it is a function.
# All signals are asked for twice a test.
_get_handler = vars(sys.modules["_signal"])["getsignal"]


class State(NamedTuple):
    """The state of the process that tests share."""

    variables: dict[str, str]
    folder: str
    path: list[str]
    handlers: dict[int, Any]  # of signals
    clocks: list[Any]


def take_state() -> State:
    """Return the state of this process."""
    variables = {name: value for name, value in os.environ.items() if name not in OURS}
    handlers: dict[int, Any] = {number: _get_handler(number) for number in SIGNALS}
    clocks = [getattr(module, name) for module, name in CLOCKS]
    return State(variables, str(Path.cwd()), list(sys.path), handlers, clocks)


def restore(before: State) -> list[str]:
    """Restore the state; return a sentence for each thing that had changed."""
    now = take_state()
    found = [
        *_restore_variables(before.variables, now.variables),
        *_restore_handlers(before.handlers, now.handlers),
    ]
    if now.folder != before.folder:
        os.chdir(before.folder)
        found.append(f"the working folder is {now.folder}")
    if now.path != before.path:
        sys.path[:] = before.path
        found.append(f"sys.path has changed: {sorted(set(now.path) ^ set(before.path))}")
    for (module, name), real, value in zip(CLOCKS, before.clocks, now.clocks, strict=True):
        if value is not real:
            setattr(module, name, real)
            found.append(f"{module.__name__}.{name} is {value}")
    return found


def _restore_variables(before: dict[str, str], now: dict[str, str]) -> list[str]:
    changed = [name for name in {*before, *now} if before.get(name) != now.get(name)]
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    return [f"the variable {name} has changed" for name in sorted(changed)]


def _restore_handlers(before: dict[int, Any], now: dict[int, Any]) -> list[str]:
    changed = [number for number in before if before[number] is not now[number]]
    for number in changed:
        signal.signal(number, before[number])
    return [f"{signal.Signals(number).name} has another handler" for number in changed]


class Logger:
    """The state of the product's logger, which the import of a handler sets up."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("s3unzip")
        self._level = self._logger.level
        self._handlers = list(self._logger.handlers)
        self._filters = list(self._logger.filters)
        self._flags = self._logger.propagate, self._logger.disabled

    def print_to(self, stream: TextIO) -> None:
        """Let its handlers print to a stream, wherever the first import let them."""
        for handler in self._handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(stream)

    def restore(self) -> None:
        """Set it back: a level that one test sets would hide the lines of others."""
        self._logger.setLevel(self._level)
        self._logger.handlers[:] = self._handlers
        self._logger.filters[:] = self._filters
        self._logger.propagate, self._logger.disabled = self._flags
