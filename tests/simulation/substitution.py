"""The product's view of threads, time and chance, exchanged for the simulation's.

Modules of the package hold `threading`, `time`, `random` and some of their names. Each name that
is one of those is exchanged while the block lasts, wherever it is, so that the simulation knows no
module of the product by name.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from tests.simulation import threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.scheduler import Scheduler

PACKAGE = "s3unzip"
_MISSING = object()


class _Real:
    """A thing that may have no hash and no sane equality: compared by identity."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Real) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@contextmanager
def substituted(scheduler: Scheduler) -> Iterator[None]:
    """Let the product run on the threads, the clock and the rng of `scheduler`."""
    exchanged = _exchanges(scheduler)
    undo: list[tuple[dict[str, Any], str, object]] = []
    try:
        for module in _modules():
            names = vars(module)
            for name in list(names):
                new = exchanged.get(_Real(names[name]), _MISSING)
                if new is not _MISSING:
                    undo.append((names, name, names[name]))
                    names[name] = new
        yield
    finally:
        for names, name, value in undo:
            names[name] = value


def _modules() -> list[Any]:
    return [
        module
        for name, module in list(sys.modules.items())
        if (name == PACKAGE or name.startswith(PACKAGE + ".")) and module is not None
    ]


def _exchanges(scheduler: Scheduler) -> dict[_Real, object]:
    rng = scheduler.rng

    def make_rng(seed: object = None) -> random.Random:
        return random.Random(rng.random() if seed is None else seed)  # type: ignore[arg-type]  # what the product gives

    def make_uuid() -> UUID:
        return UUID(int=rng.getrandbits(128))

    def now() -> float:
        return scheduler.now

    clock = SimpleNamespace(
        time=now, monotonic=now, perf_counter=now, sleep=scheduler.sleep, strftime=time.strftime
    )
    chance = SimpleNamespace(Random=make_rng, uniform=rng.uniform, random=rng.random)
    threading_ = SimpleNamespace(
        Thread=partial(threads.Thread, scheduler),
        Lock=partial(threads.Lock, scheduler),
        Condition=partial(threads.Condition, scheduler),
        Event=partial(threads.Event, scheduler),
    )
    pairs: list[tuple[object, object]] = [
        (threading, threading_),
        (time, clock),
        (random, chance),
        (uuid4, make_uuid),
        (SimpleQueue, threads.SimpleQueueOf(scheduler)),
        (ThreadPoolExecutor, partial(threads.ThreadPoolExecutor, scheduler)),
    ]
    return {_Real(old): new for old, new in pairs}
