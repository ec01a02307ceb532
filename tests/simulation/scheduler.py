"""One thread that does the work of many, in an order that a seed decides.

A *fiber* is a greenlet. It runs until it calls `pause`, `park` or `sleep`, and the generator then
picks the fiber that runs next. Time is a number: it moves when no fiber is ready. A *process* is a
set of fibers that die together, as the threads of a function that is killed do.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from greenlet import getcurrent, greenlet

START = 1_800_000_000.0  # Unix seconds at which each schedule begins
MAX_STEPS = 200_000  # of one schedule; more is a loop without end


class ProcessDiedError(BaseException):
    """Raised in each fiber of a killed process: what it does from then on has no effect."""


class StuckError(Exception):
    """The schedule never ends, or its fibers wait for each other."""


class Process:
    """Fibers that live and die together."""

    def __init__(self, name: str, attempt: object = None) -> None:
        self.name = name
        self.attempt = attempt  # what it is an attempt at
        self.alive = True
        self.began = 0  # at which step
        self.number = 0  # of the invocations of its function
        self.fibers: list[Fiber] = []


class Fiber(greenlet):
    """A thread of one process."""

    def __init__(
        self, scheduler: "Scheduler", process: Process, target: Callable[[], Any], hub: greenlet
    ) -> None:
        super().__init__(target, hub)
        self.scheduler = scheduler
        self.process = process
        self.parked = 0  # number of its wait; 0: it is ready
        self.woken = False  # by somebody, not by its timer


class Scheduler:
    """Runs fibers, one at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = START
        self.steps = 0
        self.ended = False  # set by whoever has seen enough
        self.preemptive = False  # whether threads also take turns at each lock, queue and event
        self._hub = getcurrent()
        self._ready: list[Fiber] = []
        self._timers: list[tuple[float, int, Fiber]] = []
        self._processes: list[Process] = []
        self._numbers = itertools.count(1)

    def spawn(self, process: Process, target: Callable[[], Any]) -> Fiber:
        fiber = Fiber(self, process, partial(_run_until_killed, target), self._hub)
        if not process.fibers:
            process.began = self.steps
            self._processes.append(process)
        process.fibers.append(fiber)
        self._ready.append(fiber)
        return fiber

    def run(self) -> None:
        """Run until no fiber is ready and no timer is set."""
        while True:
            while self._ready and not self.ended:
                self.steps += 1
                if self.steps > MAX_STEPS:
                    raise StuckError(f"{MAX_STEPS} steps, and no end")
                ready = self._ready
                fiber = ready.pop(self.rng.randrange(len(ready)) if len(ready) > 1 else 0)
                if fiber.process.alive:
                    fiber.switch()
            if self.ended or not self._timers:
                return
            when, number, fiber = heapq.heappop(self._timers)
            if fiber.parked == number:
                self.now = max(self.now, when)
                self.unpark(fiber, woken=False)

    def pause(self) -> None:
        """Let another fiber run, or go on: the generator says which."""
        if self._ready:
            self._ready.append(current())
            self._leave()

    def sleep(self, seconds: float) -> None:
        self.park(max(0.0, seconds))

    def park(self, seconds: float | None = None) -> bool:
        """Wait to be woken, at most `seconds`; return whether somebody did."""
        fiber = current()
        fiber.parked = next(self._numbers)
        if seconds is not None:
            heapq.heappush(self._timers, (self.now + seconds, fiber.parked, fiber))
        self._leave()
        return fiber.woken

    def unpark(self, fiber: Fiber, *, woken: bool = True) -> None:
        if fiber.parked:
            fiber.parked, fiber.woken = 0, woken
            self._ready.append(fiber)

    def kill(self, process: Process) -> None:
        """Kill a process: no fiber of it does anything any more, and it does not clean up."""
        if not process.alive:
            return
        process.alive = False
        mine = process.fibers
        self._ready = [fiber for fiber in self._ready if fiber.process is not process]
        for fiber in mine:
            fiber.parked = 0
            if fiber.gr_frame is not None:  # it has begun, and waits
                fiber.parent = getcurrent()
                fiber.throw(ProcessDiedError())
        mine.clear()

    def close(self) -> None:
        """Kill what still waits, so that nothing of this schedule runs in a later one."""
        for process in self._processes:
            self.kill(process)
        self._processes.clear()

    def _leave(self) -> None:
        self._hub.switch()
        current()  # it may be dead


def is_over() -> bool:
    """Say whether the caller is cleaned up: its process is dead, or the schedule has ended."""
    fiber = getcurrent()
    return not isinstance(fiber, Fiber) or not fiber.process.alive


def current() -> Fiber:
    """Return the fiber that runs."""
    fiber = getcurrent()
    assert isinstance(fiber, Fiber), "called outside of the simulation"
    if not fiber.process.alive:
        raise ProcessDiedError
    return fiber


def _run_until_killed(target: Callable[[], Any]) -> None:
    with suppress(ProcessDiedError):
        target()
