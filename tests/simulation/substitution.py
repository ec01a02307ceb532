"""The product's view of threads, time and chance, exchanged for the simulation's.

Modules of the package hold `threading`, `time`, `random` and some of their names. Each name that
is one of those is exchanged while the block lasts, wherever it is, so that the simulation knows no
module of the product by name. All modules are imported before: one that a function imports at its
first use would keep the real threads and the real clock.
"""

import pkgutil
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import s3unzip
from tests.simulation import threads
from tests.simulation.world import Scheduler

PACKAGE = "s3unzip"
# By identity: a name of a module may hold what has no hash, or equals whatever it is asked.
LASTING = {
    id(threading): threads,
    id(threading.Thread): threads.Thread,
    id(SimpleQueue): threads.SimpleQueue,
    id(ThreadPoolExecutor): threads.ThreadPoolExecutor,
}
OF_SCHEDULE = (time, random, uuid4)

for module_info in pkgutil.walk_packages(s3unzip.__path__, f"{PACKAGE}."):
    if not module_info.name.endswith("__main__"):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(module_info.name)


@contextmanager
def substituted(scheduler: Scheduler) -> Iterator[None]:
    """Let the product run on the threads, the clock and the rng of `scheduler`."""
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
    exchanged = LASTING | dict(zip(map(id, OF_SCHEDULE), (clock, chance, make_uuid), strict=True))
    places = _find_places(len(sys.modules))
    try:
        for names, name, real in places:
            names[name] = exchanged[id(real)]
        yield
    finally:
        for names, name, real in places:
            names[name] = real


@lru_cache(maxsize=1)
def _find_places(modules: int) -> list[tuple[dict[str, Any], str, object]]:
    """Return where the package holds what is exchanged; it is the same until `modules` grows."""
    wanted = {*LASTING, *map(id, OF_SCHEDULE)}
    return [
        (vars(module), name, value)
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == PACKAGE and module is not None
        for name, value in vars(module).items()
        if id(value) in wanted
    ]
