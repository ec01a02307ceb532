"""One simulated account: its buckets and records, the faults of its calls, and who watches them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from tests.simulation.faults import OUTAGES, REFUSALS, Fault, FaultPlan
from tests.simulation.promises import Promises
from tests.simulation.scheduler import ProcessDiedError, Scheduler, current
from tests.support.memory import MemoryBucket

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
            self.promises.blind |= name == "head"  # of the archive
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
