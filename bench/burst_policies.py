"""How runs share the workers: the candidates that `bench.burst_simulated` compares."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from s3unzip.runs.rounds import Round, next_round
from s3unzip.runs.shares import INLINE_TASKS, Bid, admit, busy_part, share_workers

from bench.burst_model import (
    MEAN_POLL,
    PATIENCE,
    POLLERS,
    POLLERS_A_SECOND,
    STEP_SECONDS,
    End,
    Job,
)
from s3unzip import rates

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.burst_model import Archive, World

UPDATED = 1.12  # a share that differs by this factor is worth an UpdateMapRun
REPORT_POLL = 5.0


@dataclass(slots=True)
class Run:
    """One execution; `limit` is the concurrency of its Map."""

    archive: Archive
    limit: int
    left: deque[Job] = field(default_factory=deque)  # not started in this round
    undone: list[Job] = field(default_factory=list)  # for the next round
    active: int = 0
    earlier: Round | None = None
    round: int = 0

    @property
    def inline(self) -> bool:
        """Whether its Map is inline."""
        return self.archive.tasks <= INLINE_TASKS


class Policy:
    """(a) Rounds: every run asks for all its workers; what finds none comes again in rounds."""

    title = "(a) rounds with back-off (before)"
    parts = "none"

    def __init__(self, workers: int) -> None:
        self.workers = workers  # of all runs, where the policy knows it
        self.world: World
        self.dollars = 0.0  # beyond those of the work

    def start(self, archive: Archive) -> None:
        """Take a planned archive."""
        self.begin(archive, archive.workers)

    def over(self, run: Run, /) -> None:
        """Take the end of a run."""

    def begin(self, archive: Archive, limit: int) -> Run:
        """Start the first Map of a run."""
        run = Run(archive, max(1, limit))
        jobs = [Job(archive.task_seconds, archive.task_puts) for _ in range(archive.tasks)]
        self._open_map(run, jobs)
        return run

    def _open_map(self, run: Run, jobs: list[Job]) -> None:
        run.left, run.undone, run.active = deque(jobs), [], 0
        run.round += 1
        starting = 0.0 if run.inline else rates.MAP_START_SECONDS
        self.world.after(starting + rates.EXECUTION_START_SECONDS, lambda: self.feed(run))

    def feed(self, run: Run) -> None:
        """Start children up to the run's limit."""
        while run.left and run.active < run.limit:
            run.active += 1
            self._try_child(run, run.left.popleft(), self.world.now + PATIENCE)

    def _try_child(self, run: Run, job: Job, until: float) -> None:
        world = self.world
        job.done = partial(self._child_done, run, job)
        if world.invoke("extract", job):
            return
        if world.now > until:
            self._child_done(run, job, End.NO_WORKER)
            return
        wait = world.rng.random() * 2 * MEAN_POLL
        world.counts.idle_child_seconds += wait
        world.after(wait, lambda: self._try_child(run, job, until))

    def _child_done(self, run: Run, job: Job, end: End) -> None:
        """Take the end of a child."""
        run.active -= 1
        if end is not End.COMPLETE:
            run.undone.append(job)
        if end is End.STOPPED and run.round > 1:
            run.archive.failed = True  # Redo tolerates no failure
        if run.left:
            self.feed(run)
        elif not run.active:
            ending = 0.0 if run.inline else rates.MAP_END_SECONDS
            self.world.after(ending, lambda: self._report(run))

    def _report(self, run: Run) -> None:
        job = Job(STEP_SECONDS, done=lambda _: self._reported(run))
        if not self.world.invoke("report", job):
            self.world.after(self.world.rng.random() * REPORT_POLL, lambda: self._report(run))

    def _reported(self, run: Run) -> None:
        if run.undone and not run.archive.failed:
            first = run.round == 1
            run.earlier = None if first else next_round(len(run.undone), run.earlier)
            self.world.counts.rounds += 1
            jobs, wait = run.undone, 0 if run.earlier is None else run.earlier.wait
            self.world.after(wait, lambda: self._open_map(run, jobs))
            return
        run.archive.finished = self.world.now
        self.over(run)


class Leases(Policy):
    """(b) A semaphore: a run waits for leases and keeps them until its report."""

    title = "(b) semaphore with leases"
    parts = "DynamoDB table, function, 3 states"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._free = workers
        self._line: deque[Archive] = deque()

    def start(self, archive: Archive) -> None:
        """Wait for leases."""
        self.dollars += 4 * rates.PRICE_STANDARD_TRANSITION + 2 * rates.PRICE_LAMBDA_REQUEST
        self._line.append(archive)
        self._grant()

    def over(self, run: Run, /) -> None:
        """Give the leases back."""
        self._free += run.limit
        self._grant()

    def _grant(self) -> None:
        while self._line and self._free:
            archive = self._line.popleft()
            share = min(archive.workers, self._free)
            self._free -= share
            self.begin(archive, share)


class TaskQueue(Policy):
    """(c) A queue of tasks in place of the Map; its event source starts the workers."""

    title = "(c) queue of tasks"
    parts = "queue, counter of tasks, another redo and redrive"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._runs: list[Run] = []
        self._at_work = 0
        self._since = 0.0

    def start(self, archive: Archive) -> None:
        """Queue the tasks of a run."""
        requests = rates.SQS_REQUESTS * rates.PRICE_SQS_REQUEST - rates.PRICE_EXPRESS_REQUEST
        self.dollars += archive.tasks * requests
        if not self._runs:
            self._since = self.world.now
            self.world.freed = self._pump
        run = Run(archive, archive.workers)
        jobs = [Job(archive.task_seconds, archive.task_puts) for _ in range(archive.tasks)]
        run.left = deque(jobs)
        self._runs.append(run)
        self._pump()

    def _pump(self) -> None:
        """Start workers for the runs with the fewest, as a fair queue does."""
        grown = POLLERS + POLLERS_A_SECOND * (self.world.now - self._since)
        while self._at_work < min(self.workers, grown) and self.world.busy < self.world.concurrency:
            ready = [run for run in self._runs if run.left]
            if not ready:
                return
            run = min(ready, key=lambda one: one.active)
            job = run.left.popleft()
            job.done = partial(self._task_done, run, job)
            run.active += 1
            self._at_work += 1
            self.world.invoke("extract", job)

    def _task_done(self, run: Run, job: Job, end: End) -> None:
        run.active -= 1
        self._at_work -= 1
        if end is not End.COMPLETE:
            run.left.append(job)
        if not run.left and not run.active:
            self._runs.remove(run)
            self.world.after(1.0, lambda: self._report(run))


class StaticShares(Policy):
    """(d) Rounds, but a run asks for its part of the workers by the executions that run then."""

    title = "(d) share fixed at the start"
    parts = "ListExecutions by the plan function"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._running = 0

    def start(self, archive: Archive) -> None:
        """Start with a part of the workers."""
        self._running += 1
        self.begin(archive, min(archive.workers, self.workers // self._running))

    def over(self, _run: Run, /) -> None:
        """Count one run less."""
        self._running -= 1


class Shares(Policy):
    """(e) Shares that follow the runs: `s3unzip.runs.shares`, and UpdateMapRun."""

    title = "(e) admission and moving shares"
    parts = "objects in the work bucket"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._held: dict[str, tuple[Bid, Callable[[int], Run]]] = {}
        self._runs: dict[str, Run] = {}
        self._waiting: dict[str, tuple[Bid, Archive]] = {}

    def start(self, archive: Archive) -> None:
        """Let a run wait until it is admitted."""
        busy = busy_part(archive.tasks, archive.tasks * archive.task_seconds, archive.workers)
        workers, load, order = archive.workers, archive.load, archive.arrives
        bid = Bid(archive.name, archive.tenant, workers, load, busy, order)
        self._waiting[bid.run] = (bid, archive)
        # Its object is put once and moved once; both ends of a run list.
        self.dollars += 6 * rates.PRICE_S3_WRITE
        self._balance()

    def over(self, run: Run, /) -> None:
        """Give its share to others."""
        del self._runs[run.archive.name]
        del self._held[run.archive.name]
        self._balance()

    def _balance(self) -> None:
        admitted = admit(
            self.workers,
            (bid for bid, _ in self._held.values()),
            (bid for bid, _ in self._waiting.values()),
        )
        for bid in admitted:
            _, archive = self._waiting.pop(bid.run)
            self._held[bid.run] = (bid, partial(self.begin, archive))
        shares = share_workers(self.workers, [bid for bid, _ in self._held.values()])
        for name, (_, begin) in self._held.items():
            share = shares[name]
            run = self._runs.get(name)
            if run is None:
                self._runs[name] = begin(share)
            elif not run.inline and not 1 / UPDATED <= share / run.limit <= UPDATED:
                run.limit = share
                self.world.counts.map_updates += 1
                self.feed(run)


POLICIES: tuple[type[Policy], ...] = (Policy, Leases, TaskQueue, StaticShares, Shares)
