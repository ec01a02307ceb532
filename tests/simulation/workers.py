"""Worker processes of one machine: what the product's pool finds for its fork server and pipes.

The pool is the product's own. A worker does what `s3unzip.local.worker.serve` does, on the clock of
the schedule, until its pipe ends or somebody kills it.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from s3unzip.local.worker import Done, Failed, do_job

from s3unzip.errors import S3UnzipError
from s3unzip.local import pool
from s3unzip.model import Task
from s3unzip.stores.clock import LocalClock
from tests.model.facts import ViolationError
from tests.simulation.faults import Fault
from tests.simulation.threads import Waiters
from tests.simulation.world import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.model import Run
    from tests.simulation.world import World

MAX_ORPHAN_SECONDS = 1.0  # that a worker may go on after its program was killed


class End:
    """One end of a pipe: messages that came, until the other end is closed."""

    def __init__(self, world: World) -> None:
        self._scheduler = world.scheduler
        self.arrived: deque[Any] = deque()
        self.closed = False  # nothing arrives any more
        self.waiters = Waiters(world.scheduler)
        self.other: End

    def send(self, message: object) -> None:
        """Give a message to the other end."""
        if self.closed:
            raise BrokenPipeError
        self.other.arrived.append(message)
        self.other.waiters.wake()

    def recv(self) -> Any:
        """Wait for a message.

        Raises:
            EOFError: the other end was closed.
        """
        while not self.arrived and not self.closed:
            self.waiters.wait()
        if not self.arrived:
            raise EOFError
        return self.arrived.popleft()

    def close(self) -> None:
        """Close both ends, as the end of a process does."""
        for end in (self, self.other):
            end.closed = True
            end.waiters.wake()


class Child:
    """A worker as the pool knows it."""

    def __init__(self, pid: int, connection: End, process: Function, clock: LocalClock) -> None:
        self.pid = pid
        self.connection = connection
        self.process = process
        self._clock = clock

    def ask_to_stop(self) -> None:
        """End the worker's time, as SIGTERM does."""
        self._clock.stop()
        self.connection.other.closed = True
        self.connection.other.waiters.wake()

    def ends_by(self, deadline: float) -> bool:
        """Wait until it has ended; its messages are dropped."""
        scheduler = self.connection._scheduler
        while not self.connection.closed and scheduler.now < deadline:
            self.connection.waiters.wait(deadline - scheduler.now)
        return self.connection.closed

    def kill(self) -> None:
        """Kill it."""
        self.connection._scheduler.kill(self.process)


class Forks:
    """The fork server of one program: starts workers, and ends with the program."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pids = itertools.count(1)
        self._children: list[Child] = []

    def start(self, target: Callable[..., None]) -> Child:
        """Start a worker; `target` is the partial of the product's `serve`."""
        world = self._world
        ours, theirs = End(world), End(world)
        ours.other, theirs.other = theirs, ours
        told = target.keywords  # type: ignore[attr-defined]  # a partial
        pid, clock = next(self._pids), LocalClock()
        process = Function(f"worker {pid}")
        child = Child(pid, ours, process, clock)
        self._children.append(child)
        context = told["make_context"](clock, None)
        world.scheduler.spawn(process, lambda: _serve(world, theirs, told["run"], context))
        return child

    def reap(self, child: Child) -> None:
        """Let a worker end that has nothing to do."""
        child.connection.close()
        self._children.remove(child)

    def close(self) -> None:
        """Kill what is left, at some moment within a second, as the system does."""
        world, children = self._world, self._children

        def kill() -> None:
            for child in children:
                world.scheduler.sleep(world.scheduler.rng.uniform(0, MAX_ORPHAN_SECONDS / 4))
                world.scheduler.kill(child.process)

        world.scheduler.spawn(Function("kernel"), kill)


def _serve(world: World, connection: End, run: Run, context: Context) -> None:
    """Do jobs until the program closes the pipe, as the product's worker does."""
    function = world.function()
    assert function is not None
    try:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            attempt = world.model.task_begun(run.id, job.id) if isinstance(job, Task) else None
            function.attempt = attempt
            message: Done | Failed
            try:
                message = Done(job.id, do_job(run, job, context))
            except S3UnzipError as error:
                world.note(f"{job.id} ends with {error!r}")
                if attempt is not None:
                    world.model.task_failed(attempt, type(error).__name__)
                message = Failed(job.id, error)
            if not connection.closed:
                connection.send(message)
    except ViolationError:
        world.scheduler.ended = True
    finally:
        connection.close()


@contextmanager
def simulated_pipes(world: World) -> Iterator[None]:
    """Let the pool wait for the pipes of simulated workers."""

    def wait(ends: Sequence[End], timeout: float | None = None) -> list[End]:
        scheduler = world.scheduler
        if world.faults.injects(Fault.ABORT, "the program: Ctrl-C"):
            raise KeyboardInterrupt
        until = None if timeout is None else scheduler.now + timeout
        while not (ready := [end for end in ends if end.arrived or end.closed]):
            if until is not None and scheduler.now >= until:
                return []
            _wait_any(world, ends, None if until is None else until - scheduler.now)
        return ready

    names = vars(pool)
    kept = names["connections"]
    names["connections"] = SimpleNamespace(wait=wait)
    try:
        yield
    finally:
        names["connections"] = kept


def _wait_any(world: World, ends: Sequence[End], seconds: float | None) -> None:
    """Wait until one of the pipes has something."""
    any_of = Waiters(world.scheduler)
    kept = [end.waiters for end in ends]
    for end in ends:
        end.waiters = any_of
    try:
        any_of.wait(seconds)
    finally:
        for end, waiters in zip(ends, kept, strict=True):
            end.waiters = waiters
