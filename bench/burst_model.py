"""A simulation of many archives at once: runs compete for the workers and S3's rate.

Discrete events, seeded. Times and rates are those of the forecast (`s3unzip.rates`). An archive is
a direct run (one invocation) or an execution: plan, Map of tasks, report. Invocations need one of
the account's concurrent executions. All small PUTs share the rate of one prefix.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from s3unzip import rates
from s3unzip.platforms import Latency

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.burst_policies import Policy

TASK_SECONDS = 210.0  # of a worker: its time limit of 240 s less the margin for its outcomes
PATIENCE = 50.0  # seconds in which a child finds a worker, or ends
MEAN_POLL = 2.5  # seconds between two tries of a child: at most 5, with full jitter
STEP_SECONDS = rates.REPORT_SECONDS + 3 * rates.S3_LATENCY_P50
PLAN_SECONDS = rates.PLAN_SECONDS + 8 * rates.S3_LATENCY_P50
DIRECT_SECONDS = rates.DIRECT_SECONDS + 5 * rates.S3_LATENCY_P50
COLD = Latency(rates.COLD_START_P50, rates.COLD_START_P99)
POLLERS = 5  # invocations at once with which a queue's event source begins
POLLERS_A_SECOND = 300 / 60  # more, while messages wait: docs.aws.amazon.com/lambda, with-sqs


class End(Enum):
    """How an invocation ended, or that there was none."""

    COMPLETE = auto()
    STOPPED = auto()  # at its time limit; the rest is for another task
    NO_WORKER = auto()


@dataclass(slots=True)
class Job:
    """One invocation that does work; seconds without throttling."""

    seconds: float
    puts: int = 0  # of small members, which share the rate
    done: Callable[[End], None] = lambda _: None
    ends: float = 0.0  # progress of the pool at which it ends
    began: float = 0.0


@dataclass(slots=True)
class Archive:
    """One archive that is put."""

    name: str
    arrives: float
    tasks: int  # 0: a direct run
    task_seconds: float  # of a task, or of the direct run, without throttling
    task_puts: int = 0
    workers: int = 1  # that the plan asks for
    load: float = 0.0  # with these workers: PUTs a second / the rate of the prefix
    tenant: str = ""
    small: bool = False  # its time is looked at
    finished: float = math.nan
    failed: bool = False


@dataclass(slots=True)
class Counts:
    """What a simulation counted."""

    refused: int = 0  # invocations without a free worker
    rounds: int = 0
    map_updates: int = 0
    idle_child_seconds: float = 0.0  # Express seconds of children without a worker


@dataclass(slots=True)
class World:
    """The account: time, concurrent executions, S3's rate, the queue, and the policy at work."""

    concurrency: int
    policy: Policy
    intake: int  # concurrent invocations of the plan function
    fair_queue: bool = False  # SQS serves the tenant with the fewest invocations first
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 0.0
    busy: int = 0
    counts: Counts = field(default_factory=Counts)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _pool: list[tuple[float, int, Job]] = field(default_factory=list)
    _progress: float = 0.0
    _rate: float = 0.0  # PUTs a second that the pool asks for
    _messages: dict[str, deque[Archive]] = field(default_factory=dict)
    _planning: dict[str, int] = field(default_factory=dict)
    _backlog_since: float = math.nan
    _warm: dict[str, int] = field(default_factory=dict)
    freed: Callable[[], None] = lambda: None

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call something later."""
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, call))

    @property
    def _speed(self) -> float:
        if self._rate <= rates.S3_PREFIX_WRITES:
            return 1.0
        return rates.S3_PREFIX_WRITES * rates.S3_THROTTLED_EFFICIENCY / self._rate

    def run(self, archives: list[Archive]) -> None:
        """Simulate until nothing happens any more."""
        for archive in archives:
            self.after(archive.arrives + rates.EVENT_SECONDS, partial(self._queue, archive))
        while True:
            at = self._events[0][0] if self._events else math.inf
            end = math.inf
            if self._pool:
                end = self.now + max(0.0, self._pool[0][0] - self._progress) / self._speed
            if math.isinf(min(at, end)):
                return
            self._progress += (min(at, end) - self.now) * self._speed
            self.now = min(at, end)
            if end <= at:
                self._end_work(heapq.heappop(self._pool)[2])
            else:
                heapq.heappop(self._events)[2]()

    # --- invocations

    def invoke(self, function: str, job: Job) -> bool:
        """Start an invocation; return False if no execution is free."""
        if self.busy >= self.concurrency:
            self.counts.refused += 1
            return False
        self.busy += 1
        cold = 0.0
        if self._warm.get(function, 0) > 0:
            self._warm[function] -= 1
        else:
            cold = COLD.quantile(self.rng.random() * 0.98 + 0.01)

        def free(end: End) -> None:
            self.busy -= 1
            self._warm[function] = self._warm.get(function, 0) + 1
            done(end)
            self.freed()
            self.poll_queue()

        done, job.done = job.done, free
        self.after(cold, lambda: self._begin_work(job))
        return True

    def _begin_work(self, job: Job) -> None:
        job.began = self.now
        if not job.puts:
            self.after(job.seconds, lambda: job.done(End.COMPLETE))
            return
        self._rate += job.puts / job.seconds
        job.ends = self._progress + job.seconds
        self._number += 1
        heapq.heappush(self._pool, (job.ends, self._number, job))
        self.after(TASK_SECONDS, lambda: self._stop_late(job, job.began))

    def _end_work(self, job: Job) -> None:
        self._leave_pool(job)
        job.done(End.COMPLETE)

    def _leave_pool(self, job: Job) -> None:
        self._rate -= job.puts / job.seconds
        job.ends = math.nan
        if not self._pool:
            self._rate = self._progress = 0.0  # no rounding errors

    def _stop_late(self, job: Job, began: float) -> None:
        """End a task at its time limit; what is done is on record."""
        if math.isnan(job.ends) or job.began != began:
            return
        left = (job.ends - self._progress) / job.seconds
        self._pool = [one for one in self._pool if one[2] is not job]
        heapq.heapify(self._pool)
        self._leave_pool(job)
        job.seconds, job.puts = job.seconds * left, max(1, round(job.puts * left))
        job.done(End.STOPPED)

    # --- the queue

    def _queue(self, archive: Archive) -> None:
        tenant = archive.tenant if self.fair_queue else ""
        self._messages.setdefault(tenant, deque()).append(archive)
        if math.isnan(self._backlog_since):
            self._backlog_since = self.now
        self.poll_queue()

    def poll_queue(self) -> None:
        """Plan the next archives while the event source has a free invocation."""
        while any(self._messages.values()):
            grown = POLLERS + POLLERS_A_SECOND * (self.now - self._backlog_since)
            if sum(self._planning.values()) >= min(self.intake, grown):
                return
            if self.busy >= self.concurrency:
                return
            tenant = min(
                (name for name, line in self._messages.items() if line),
                key=lambda name: self._planning.get(name, 0),
            )
            self._plan(self._messages[tenant].popleft(), tenant)
        self._backlog_since = math.nan

    def _plan(self, archive: Archive, tenant: str) -> None:
        self._planning[tenant] = self._planning.get(tenant, 0) + 1
        direct = not archive.tasks
        seconds = DIRECT_SECONDS + archive.task_seconds if direct else PLAN_SECONDS
        puts = archive.task_puts if direct else 0

        def done(_: End) -> None:
            self._planning[tenant] -= 1
            if direct:
                archive.finished = self.now
            else:
                self.policy.start(archive)

        self.invoke("plan", Job(seconds, puts, done))
