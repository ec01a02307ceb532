"""The product's view of threads, time and chance, exchanged for the simulation's.

Modules of the package hold `threading`, `time`, `random` and some of their names. Each name that
is one of those is exchanged while the block lasts, wherever it is, so that the simulation knows no
module of the product by name.
"""

import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from tests.simulation import threads
from tests.simulation.scheduler import Scheduler

PACKAGE = "s3unzip"


# By identity: a name of a module may hold what has no hash, or equals whatever it is asked.
_REAL = {id(one) for one in (threading, time, random, uuid4, SimpleQueue, ThreadPoolExecutor)}


class _Place(NamedTuple):
    """A name of a module of the package that holds what is exchanged."""

    names: dict[str, Any]  # of the module
    name: str
    real: object


@contextmanager
def substituted(scheduler: Scheduler) -> Iterator[None]:
    """Let the product run on the threads, the clock and the rng of `scheduler`."""
    exchanged = _exchanges(scheduler)
    places = _find_places(len(sys.modules))
    try:
        for place in places:
            place.names[place.name] = exchanged[id(place.real)]
        yield
    finally:
        for place in places:
            place.names[place.name] = place.real


@lru_cache(maxsize=1)
def _find_places(modules: int) -> list[_Place]:
    """Return where the package holds what is exchanged; it is the same until `modules` grows."""
    return [
        _Place(vars(module), name, value)
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == PACKAGE and module is not None
        for name, value in vars(module).items()
        if id(value) in _REAL
    ]


def _exchanges(scheduler: Scheduler) -> dict[int, object]:
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
    return {
        id(threading): threading_,
        id(time): clock,
        id(random): chance,
        id(uuid4): make_uuid,
        id(SimpleQueue): threads.SimpleQueueOf(scheduler),
        id(ThreadPoolExecutor): partial(threads.ThreadPoolExecutor, scheduler),
    }
