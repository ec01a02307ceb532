"""One simulated account: its buckets and records, the faults of its calls, and who watches them."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from tests.simulation.promises import Promises
from tests.support.memory import MemoryBucket

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


class Fault(StrEnum):
    """One thing that goes wrong at a call."""

    THROTTLE = "throttle"  # "slow down", nothing done
    REFUSE = "refuse"  # a service fault, nothing done
    LOSE = "lose"  # done, but the answer never comes
    DELAY = "delay"  # it takes long
    CRASH = "crash"  # the process dies before the call does anything
    CRASH_AFTER = "crash-after"  # it is done, then the process dies
    OUTAGE = "outage"  # every call, or every call of one kind, is refused for a while
    OVERWRITE = "overwrite"  # somebody puts another archive under the key
    REMOVE = "remove"  # somebody deletes the archive
    EXPIRE = "expire"  # somebody aborts an upload, or the bucket's lifecycle rule does
    DAMAGE = "damage"  # a record of a run is lost, emptied, cut or flipped
    DENY = "deny"  # a right is missing, for some calls or until an operator gives it back
    ABORT = "abort"  # somebody aborts a run
    BUSY = "busy"  # no worker is free for an invocation
    TWICE = "twice"  # a message or an event is delivered twice


# How likely a schedule has the fault at all, and at most how often.
AMOUNTS = {
    Fault.THROTTLE: (0.3, 6),
    Fault.REFUSE: (0.4, 6),
    Fault.LOSE: (0.5, 6),
    Fault.DELAY: (0.4, 6),
    Fault.CRASH: (0.4, 4),
    Fault.CRASH_AFTER: (0.4, 4),
    Fault.OUTAGE: (0.3, 2),
    Fault.OVERWRITE: (0.2, 2),
    Fault.REMOVE: (0.1, 1),
    Fault.EXPIRE: (0.1, 2),
    Fault.DAMAGE: (0.0, 0),  # in schedules of one kind
    Fault.DENY: (0.25, 2),
    Fault.ABORT: (0.2, 2),
    Fault.BUSY: (0.2, 5),
    Fault.TWICE: (0.4, 3),
}
OUTAGES = (75.0, 75.0, 400.0, 1_000.0, 5_000.0)  # seconds: longer than calls, tasks and rounds are
REFUSALS = (1, 1, 3, 10, 1 << 30)  # calls that a missing right refuses
RATES = (0.005, 0.02, 0.1, 0.3)  # of the calls
DELAYS = (0.1, 5.0, 40.0, 130.0, 400.0)  # seconds


class FaultPlan:
    """The faults of one schedule; one in ten has none.

    Args:
        skipped: numbers of the faults that are left out.
    """

    def __init__(self, rng: random.Random, skipped: frozenset[int] = frozenset()) -> None:
        self.rng = rng
        self.skipped = skipped
        self.left: dict[Fault, int] = {}
        self.rates: dict[Fault, float] = {}
        self.injected: list[str] = []  # what went wrong so far
        self.number = 0  # of the faults so far, with those left out
        faulty = rng.random() >= 0.1
        for fault, (likely, most) in AMOUNTS.items() if faulty else ():
            if rng.random() < likely:
                self.left[fault] = rng.randint(1, most)
                self.rates[fault] = rng.choice(RATES)

    def injects(self, fault: Fault, call: str) -> bool:
        """Say whether `fault` happens at `call`; note it if so."""
        left = self.left.get(fault, 0)
        if not left or self.rng.random() >= self.rates[fault]:
            return False
        self.left[fault] = left - 1
        self.number += 1
        if self.number in self.skipped:
            return False
        self.injected.append(f"{fault} {call}")
        return True

    def delay(self) -> float:
        return self.rng.choice(DELAYS)


T = TypeVar("T")


@dataclass(slots=True)
class World:
    """What all simulated services share."""

    scheduler: Scheduler
    faults: FaultPlan
    promises: Promises
    ingest: MemoryBucket = field(default_factory=MemoryBucket)
    members: MemoryBucket = field(default_factory=lambda: MemoryBucket(part_checksums=True))
    records: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by run, by name
    outages: dict[str, float] = field(default_factory=dict)  # until when, by right; "": each call
    denied: dict[str, int] = field(default_factory=dict)  # calls that a missing right still refuses
    overwrite: Callable[[], None] | None = None  # puts another archive, where one is left
    remove: Callable[[], None] | None = None  # deletes the archive
    abort: Callable[[], None] | None = None  # aborts a run that is active
    trace: list[str] = field(default_factory=list)
    invocations: Counter[str] = field(default_factory=Counter)  # by function
    cues: dict[tuple[str, int, str], Callable[[], None]] = field(default_factory=dict)

    def call(self, name: str, right: str, effect: Callable[[], T]) -> T:
        """Do one request of a store, with the faults of the schedule."""
        scheduler, faults = self.scheduler, self.faults
        self._inject_others()
        if faults.injects(Fault.DELAY, name):
            scheduler.sleep(faults.delay())
        if self.denied and self._is_denied(right):
            self.note(f"{name}: denied")
            self.promises.blind |= name == "stat"  # of the archive
            raise AccessDeniedError(f"{name}: not allowed, s3:{right} is missing")
        if faults.injects(Fault.THROTTLE, name):
            self.note(f"{name}: slow down")
            raise ThrottledError(f"{name}: slow down")
        if faults.injects(Fault.OUTAGE, name):  # of all calls or of one kind: only reads work
            kind = faults.rng.choice(("", right))
            self.outages[kind] = scheduler.now + faults.rng.choice(OUTAGES)
        out = any(scheduler.now < self.outages.get(kind, 0.0) for kind in ("", right))
        if out or faults.injects(Fault.REFUSE, name):
            self.note(f"{name}: refused")
            raise ServiceFaultError(f"{name}: internal error")
        return self.act(name, effect, partial(ServiceFaultError, f"{name}: the answer was lost"))

    def act(self, name: str, effect: Callable[[], T], lost: Callable[[], Exception]) -> T:
        """Do one request of a service; its process may die around it, or its answer be lost."""
        self.scheduler.pause()
        self._play(name)
        self._crash(Fault.CRASH, name)
        try:
            value = effect()
        except S3UnzipError as error:
            self.note(f"{name}: {error}")
            raise
        self.note(name)
        self._crash(Fault.CRASH_AFTER, name)
        if self.faults.injects(Fault.LOSE, name):
            self.note(f"{name}: its answer is lost")
            raise lost()
        self.scheduler.pause()
        return value

    def _play(self, name: str) -> None:
        """Do what a scene has for the first such call of one invocation."""
        process = current().process
        for cue in list(self.cues):
            function, number, call = cue
            if (function, number) == (process.name, process.number) and name.startswith(call):
                self.note(f"{name}: its cue")
                self.cues.pop(cue)()

    def _crash(self, fault: Fault, name: str) -> None:
        if self.faults.injects(fault, name):
            self.note(f"{name}: {fault}")
            self.scheduler.kill(current().process)
            raise ProcessDiedError

    def note(self, what: str) -> None:
        self.trace.append(f"{current().process.name}: {what}")

    def _inject_others(self) -> None:
        """Let happen what does not happen to the call itself."""
        faults = self.faults
        if self.overwrite is not None and faults.injects(Fault.OVERWRITE, "the archive"):
            self.overwrite()
        if self.remove is not None and faults.injects(Fault.REMOVE, "the archive"):
            self.remove()
        if self.members.pending and faults.injects(Fault.EXPIRE, "an upload"):
            self.members.pending.pop(faults.rng.choice(sorted(self.members.pending)))
        if any(self.records.values()) and faults.injects(Fault.DAMAGE, "a record"):
            self._damage()
        if self.abort is not None and faults.injects(Fault.ABORT, "a run"):
            self.abort()
        if faults.injects(Fault.DENY, "a right"):
            # A few only, where a change of rights has not reached all servers of a store yet.
            self.denied[faults.rng.choice(("GetObject", "PutObject"))] = faults.rng.choice(REFUSALS)

    def _damage(self) -> None:
        rng = self.faults.rng
        run = rng.choice(sorted(run for run, objects in self.records.items() if objects))
        name = rng.choice(sorted(self.records[run]))
        data = self.records[run].pop(name)
        half = len(data) // 2
        lines = data[:half].rpartition(b"\n")[0] + b"\n"
        flipped = data[:half] + b"\xff" + data[half + 1 :]
        left = rng.choice((None, b"", data[:half], lines, flipped))
        if left is not None:
            self.records[run][name] = left
        self.note(f"damage {run}/{name}: {'lost' if left is None else len(left)}")
        self.promises.record_damaged(run, name)

    def _is_denied(self, right: str) -> bool:
        left = self.denied.get(right, 0)
        if left:
            self.denied[right] = left - 1
        return left > 0
