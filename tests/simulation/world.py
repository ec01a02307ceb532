"""One simulated account: its buckets and records, the faults of its calls, and who watches them.

One thread does the work of many, in an order that a seed decides. A *fiber* is a greenlet. It runs
until it calls `pause`, `park` or `sleep`, and the generator then picks the fiber that runs next.
Time is a number: it moves when no fiber is ready. A *process* is a set of fibers that die together,
as the threads of a function that is killed do. The stores are the ports of `s3unzip.stores.ports`
over memory, with the schedule's faults at each call.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, Clock, Kind, PinnedArchive, Upload
from s3unzip.stores.run_store import MemoryRunStore
from s3unzip.zip.values import ByteRange
from tests.simulation.promises import Promises
from tests.support.memory import MemoryBucket, MemorySource

READ, WRITE, DROP = "GetObject", "PutObject", "AbortMultipartUpload"
# The right that each request needs; a method that is not here makes none.
SOURCE = {"tail": READ, "stat": READ, "read": READ, "delete": WRITE, "tag": WRITE}
DESTINATION = {
    **dict.fromkeys(("head", "list_page", "read"), READ),
    **dict.fromkeys(("put", "delete", "create_upload", "upload_part", "copy_part"), WRITE),
    "complete_upload": WRITE,
    **dict.fromkeys(("abort_upload", "uploads"), DROP),
}
RECORDS: dict[str, Kind] = {  # what a request is counted as
    "write": "put",
    "create": "put",
    "replace": "put",
    "read": "get",
    "stream": "get",
    "names": "list",
    "delete": "delete",
}


@dataclass(eq=False)
class Simulated:
    """An adapter over memory whose requests meet the faults of the schedule."""

    _world: World
    _inner: Any
    _rights: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._rights:
            return method

        def request(*given: Any, **more: Any) -> Any:
            again = tuple(list(one) if isinstance(one, Iterator) else one for one in given)

            def effect() -> Any:
                value = method(*again, **more)
                value = list(value) if isinstance(value, Iterator) else value
                self.tell(name, again, value)
                return value

            shown = " ".join(str(one) for one in again if isinstance(one, str | int | Upload))
            return self.ask(name, f"{name} {shown}".rstrip(), effect)

        return request

    def ask(self, name: str, shown: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(shown, self._rights[name], effect)

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        """Tell the promises what a request did."""


class SimulatedSource(Simulated):
    """Archives in the ingest bucket, or at the destination where they are nested."""

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> PinnedArchive:
        return PinnedArchive([partial(self._stream, location, pin)], [pin.size], end)

    def _stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        """Yield a range in two pieces, between which the body may break."""
        data = self.read(location, pin, want)
        half = len(data) // 2
        yield memoryview(data)[:half]
        if self._world.faults.injects(Fault.REFUSE, "body"):
            raise ServiceFaultError("the body broke")
        yield memoryview(data)[half:]

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        if name == "delete":
            self._world.promises.archive_deleted(str(given[1].etag))


class SimulatedDestination(Simulated):
    """The bucket that members are written to."""

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        world = self._world
        if name == "create_upload":
            world.promises.uploads[value] = world.scheduler.steps
        if name in {"put", "complete_upload"}:
            key = given[0] if name == "put" else given[0].key
            stored = world.members.objects[key]
            world.promises.object_visible(
                *(key, stored.body, stored.etag),
                run=stored.facts.metadata["s3unzip-run"],
                attempt=current().process.attempt,
            )


class SimulatedWork(Simulated):
    """The records of one run; each request is retried by the calls of its step."""

    def __init__(self, world: World, run: str, calls: Calls | None) -> None:
        day = f"{run}/"  # or all runs of a day are looked through
        memory = MemoryRunStore(
            world.records.setdefault(run, {})
            if "/" in run
            else {
                f"{one.removeprefix(day)}/{name}": data
                for one, objects in world.records.items()
                for name, data in objects.items()
                if one.startswith(day)
            }
        )
        super().__init__(world, memory, dict.fromkeys(RECORDS, "work"))
        self._run = run
        self._calls = calls or Calls(Clock(), 60.0, 8)

    def ask(self, name: str, shown: str, effect: Callable[[], Any]) -> Any:
        return self._calls.run(RECORDS[name], partial(super().ask, name, shown, effect))

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        world = self._world
        if name in {"write", "create", "replace"}:
            world.promises.recorded(
                self._run, given[0], world.records[self._run][given[0]], current().process.began
            )
        for deleted in given[0] if name == "delete" else ():
            world.promises.record_deleted(self._run, deleted)


@dataclass(frozen=True)
class SimulatedStores:
    """Opens the stores of one account."""

    world: World

    def end_startup(self) -> None:
        """Do nothing: no program begins here."""

    def source(self, location: Location) -> Any:
        world = self.world
        bucket = world.members if location.bucket == "members" else world.ingest
        return SimulatedSource(world, MemorySource(bucket), SOURCE)

    def destination(self, location: Location) -> Any:
        return SimulatedDestination(self.world, self.world.members, DESTINATION)

    def run_store(self, run: str, calls: Calls | None = None) -> SimulatedWork:
        return SimulatedWork(self.world, run, calls)


START = 1_800_000_000.0  # Unix seconds at which each schedule begins
MAX_STEPS = 200_000  # of one schedule; more is a loop without end


class ProcessDiedError(BaseException):
    """Raised in each fiber of a killed process: what it does from then on has no effect."""


class StuckError(Exception):
    """The schedule never ends, or its fibers wait for each other."""


@dataclass(eq=False)
class Process:
    """Fibers that live and die together."""

    name: str
    attempt: object = None  # what it is an attempt at
    alive: bool = True
    began: int = 0  # at which step
    number: int = 0  # of the invocations of its function
    fibers: list[Fiber] = field(default_factory=list)


class Fiber(greenlet):
    """A thread of one process."""

    def __init__(
        self, scheduler: Scheduler, process: Process, target: Callable[[], Any], hub: greenlet
    ) -> None:
        super().__init__(target, hub)
        self.scheduler = scheduler
        self.process = process
        self.parked = 0  # number of its wait; 0: it is ready
        self.woken = False  # by somebody, not by its timer


@dataclass(eq=False)
class Scheduler:
    """Runs fibers, one at a time."""

    rng: random.Random
    now: float = START
    steps: int = 0
    ended: bool = False  # set by whoever has seen enough
    preemptive: bool = False  # whether threads also take turns at each lock, queue and event
    _hub: greenlet = field(default_factory=getcurrent)
    _ready: list[Fiber] = field(default_factory=list)
    _timers: list[tuple[float, int, Fiber]] = field(default_factory=list)
    _processes: list[Process] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))

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
REFUSALS = (1, 1, 3, 10, 1 << 30)  # calls that a missing right refuses
RATES = (0.005, 0.02, 0.1, 0.3)  # of the calls


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
        for fault, (likely, most) in AMOUNTS.items() if (rng.random() >= 0.1) else ():
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
        return self.rng.choice((0.1, 5.0, 40.0, 130.0, 400.0))


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
        if self._is_denied(right):
            self.note(f"{name}: denied")
            self.promises.blind |= name == "stat"  # of the archive
            raise AccessDeniedError(f"{name}: not allowed, s3:{right} is missing")
        if faults.injects(Fault.THROTTLE, name):
            self.note(f"{name}: slow down")
            raise ThrottledError(f"{name}: slow down")
        if faults.injects(Fault.OUTAGE, name):  # of all calls or of one kind: only reads work
            kind = faults.rng.choice(("", right))
            # Longer than calls, tasks and rounds are.
            seconds = faults.rng.choice((75.0, 75.0, 400.0, 1_000.0, 5_000.0))
            self.outages[kind] = scheduler.now + seconds
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
        for function, number, call in list(self.cues):
            if (function, number) == (process.name, process.number) and name.startswith(call):
                self.note(f"{name}: its cue")
                self.cues.pop((function, number, call))()

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
        half = data[: len(data) // 2]
        lines = half.rpartition(b"\n")[0] + b"\n"
        flipped = half + b"\xff" + data[len(half) + 1 :]
        left = rng.choice((None, b"", half, lines, flipped))
        if left is not None:
            self.records[run][name] = left
        self.note(f"damage {run}/{name}: {'lost' if left is None else len(left)}")
        self.promises.record_damaged(run, name)

    def _is_denied(self, right: str) -> bool:
        left = self.denied.get(right, 0)
        self.denied[right] = max(0, left - 1)
        return left > 0
