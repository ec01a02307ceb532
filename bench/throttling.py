"""How much of a prefix's rate the workers of a run use while S3 refuses the rest.

Simulated time, because S3 takes more PUTs a second than this machine makes. What decides is the
package's own: the limiter of `s3unzip.stores.calls`, its delays, and one new limiter a task.
The store is the `TokenBucket` of `bench.shaped`.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from bench.measure import print_figure
from bench.shaped import REFUSED_SECONDS, TokenBucket
from s3unzip import rates
from s3unzip.forecast.fixtures import FIXTURES, make_tasks
from s3unzip.forecast.simulation import FIRST_READS
from s3unzip.planning.cut import choose_concurrency
from s3unzip.platforms import aws
from s3unzip.settings import Tuning
from s3unzip.stores.calls import AimdLimiter, draw_delay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s3unzip.model import Task

TIMES = 10  # runs with different random numbers
SETTLED_SECONDS = 1.0  # after which all workers write


@dataclass
class Worker:
    """One worker at its task: `threads` of it are free, `waiting` attempts are due again."""

    threads: int
    pace: AimdLimiter
    left: int = 0  # members that no thread has taken
    unwritten: int = 0
    active: int = 0
    waiting: list[int] = field(default_factory=list)
    free_at: float = 0.0  # CPU and network


class Course:
    """One run: `concurrency` workers do `tasks` in order. Call `run` once."""

    def __init__(self, tasks: Sequence[Task], concurrency: int, tuning: Tuning, seed: int) -> None:
        self._tuning = tuning
        self._random = random.Random(seed)
        self._platform = aws()
        self._prefix = TokenBucket(rates.S3_PREFIX_WRITES, 0.0)
        self._tasks = list(reversed(tasks))
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        size = sum(task.size for task in tasks) / sum(task.members for task in tasks)
        self._body = size / self._platform.upload_rate
        self._each = max(tuning.member_seconds, size / tuning.worker_bandwidth)
        self.taken: list[float] = []  # when each PUT was taken
        self.refused = 0
        self.all_busy_until = 0.0  # when the first worker found no task
        self.end = 0.0
        for _ in range(concurrency):
            self._at(0.0, self._next_task)

    def run(self) -> Course:
        """Play all events; return this run, which has ended."""
        while self._events:
            now, _, event = heapq.heappop(self._events)
            event(now)
        return self

    @property
    def share(self) -> float:
        """The share of the rate that was used while all workers had tasks."""
        counted = [at for at in self.taken if SETTLED_SECONDS <= at < self.all_busy_until]
        return len(counted) / (self.all_busy_until - SETTLED_SECONDS) / rates.S3_PREFIX_WRITES

    def _at(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _next_task(self, now: float) -> None:
        self.end = now
        if not self._tasks:
            self.all_busy_until = self.all_busy_until or now
            return
        members = self._tasks.pop().members
        threads = self._tuning.puts_in_flight
        worker = Worker(threads, AimdLimiter(threads), members, members)
        get = self._platform.get.quantile
        begun = now + max(self._draw(get) for _ in range(FIRST_READS)) + self._draw(get)
        self._at(begun, lambda at: self._call(worker, at))

    def _call(self, worker: Worker, now: float) -> None:
        """Begin the calls for which the worker has threads and its limiter places."""
        while worker.active < worker.pace.limit:
            if worker.waiting:
                attempt = worker.waiting.pop()
            elif worker.left and worker.threads:
                worker.left -= 1
                worker.threads -= 1
                attempt = 0
            else:
                return
            worker.active += 1
            entered = worker.pace.enter()
            worker.free_at = max(worker.free_at, now) + self._each
            self._at(worker.free_at, self._sent(worker, attempt, entered))

    def _sent(self, worker: Worker, attempt: int, entered: int) -> Callable[[float], None]:
        def arrive(now: float) -> None:
            if self._prefix.takes(now):
                self.taken.append(now)
                done = now + self._body + self._draw(self._platform.put.quantile)
                self._at(done, lambda at: self._written(worker, entered, at))
            else:
                self.refused += 1
                told = now + REFUSED_SECONDS
                self._at(told, lambda at: self._throttled(worker, attempt, entered, at))

        return arrive

    def _written(self, worker: Worker, entered: int, now: float) -> None:
        worker.active -= 1
        worker.threads += 1
        worker.unwritten -= 1
        worker.pace.leave(entered, throttled=False, succeeded=True)
        if worker.unwritten:
            self._call(worker, now)
        else:
            self._at(now + self._draw(self._platform.put.quantile), self._next_task)

    def _throttled(self, worker: Worker, attempt: int, entered: int, now: float) -> None:
        """Give the place back; the thread sleeps with full jitter and tries again."""
        worker.active -= 1
        worker.pace.leave(entered, throttled=True, succeeded=False)
        delay = draw_delay(attempt, self._random)

        def again(at: float) -> None:
            worker.waiting.append(attempt + 1)
            self._call(worker, at)

        self._at(now + delay, again)
        self._call(worker, now)

    def _draw(self, quantile: Callable[[float], float]) -> float:
        return quantile(self._random.random() * 0.999_998 + 1e-6)


def measure_share() -> None:
    """Print the share of the rate, and what is refused, of 49,152 files and some concurrencies."""
    tuning = Tuning()
    tasks = make_tasks(FIXTURES["49k"], tuning)
    chosen = choose_concurrency(tasks, tuning)
    for concurrency in sorted({chosen, 4, 8, 10, 13, 19}):
        courses = [Course(tasks, concurrency, tuning, seed).run() for seed in range(TIMES)]
        share = sum(one.share for one in courses) / TIMES
        refused = sum(one.refused for one in courses) / TIMES
        seconds = sum(one.end for one in courses) / TIMES
        told = " (the planner's choice)" if concurrency == chosen else ""
        print(
            f"{concurrency} workers{told}: {share:.3f} of the rate, {refused:,.0f} refused, "
            f"{seconds:.1f} s"
        )
        if concurrency == chosen:
            print_figure("forecast.share_of_rate", share, "of the prefix's rate")
