"""Workers killed at random moments: what is left after one redrive."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from s3unzip.model import Verdict
from tests.faults.archives import make_archive
from tests.faults.figures import Figure
from tests.faults.world import expected_listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.local.pool import WorkerPool
    from tests.faults.world import World

WORKERS = 3
KILLS_A_RUN = 25
MEAN_SECONDS = 0.15  # between two kills


class Killer:
    """Kills random workers of a pool with SIGKILL, whatever they are doing."""

    def __init__(self, seed: int, most: int) -> None:
        self._random = random.Random(seed)
        self._most = most
        self._pools: list[WorkerPool] = []
        self._over = threading.Event()
        self.kills = 0
        self.by_kind: Counter[str] = Counter()  # by the kind of task that was at hand

    def watch(self, pool: WorkerPool) -> None:
        """Begin to kill workers of `pool`."""
        self._pools.append(pool)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Kill until the end of the block, or until enough are dead."""
        thread = threading.Thread(target=self._kill)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _kill(self) -> None:
        while self.kills < self._most:
            if self._over.wait(self._random.expovariate(1 / MEAN_SECONDS)):
                return
            jobs = [entry for pool in self._pools for entry in pool.jobs.items()]
            if jobs:
                pid, job = self._random.choice(jobs)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills += 1
                    self.by_kind[job.partition("-")[0] or "idle"] += 1


def measure_kills(world: World, kills: int) -> Iterator[Figure]:
    """Yield what `kills` random kills over as many runs as they take come to."""
    archive = make_archive(small=200)
    want = expected_listing(archive)
    done = runs = equal = redriven = left = 0
    kinds: Counter[str] = Counter()
    started = time.monotonic()
    while done < kills:
        world.clear()
        world.put_archive(archive)
        killer = Killer(runs, min(KILLS_A_RUN, kills - done))
        with killer.at_work():
            report = world.run(processes=WORKERS, seen=killer.watch)
        if report.verdict is not Verdict.COMPLETED:
            redriven += 1
            report = world.redrive(report.run, WORKERS)
        done += killer.kills
        kinds += killer.by_kind
        runs += 1
        equal += report.verdict is Verdict.COMPLETED and world.listing() == want
        left += world.uploads()
    yield Figure("kills", done, "kills")
    for kind, count in sorted(kinds.items()):
        yield Figure(f"kills.of_{kind}", count, "kills")
    yield Figure("kills.runs", runs, "runs")
    yield Figure("kills.equal_runs", equal, "runs")
    yield Figure("kills.redriven_runs", redriven, "runs")
    yield Figure("kills.uploads_left", left, "uploads")
    yield Figure("kills.seconds", time.monotonic() - started, "s")
