"""One simulated account: its stores, queue, state machine and functions, and what watches them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from tests.memory import MemoryBucket
from tests.simulation.faults import Fault
from tests.simulation.scheduler import Process, ProcessDiedError, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.facts import Attempt
    from tests.model.run import Model
    from tests.simulation.faults import FaultPlan

T = TypeVar("T")


class Function(Process):
    """One invocation of a function; what it works on is known to the model."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.attempt: Attempt | None = None
        self.etag = ""  # of the archive whose end it read last


@dataclass(slots=True)
class World:
    """What all simulated services share."""

    scheduler: Scheduler
    faults: FaultPlan
    model: Model
    ingest: MemoryBucket = field(default_factory=MemoryBucket)
    members: MemoryBucket = field(default_factory=lambda: MemoryBucket(part_checksums=True))
    records: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by run, by name
    modified: float | None = None  # when the archive was put; None: the store does not say
    outages: dict[str, float] = field(default_factory=dict)  # until when, by right; "": each call
    denied: dict[str, int] = field(default_factory=dict)  # calls that a missing right still refuses
    overwrite: Callable[[], None] | None = None  # puts another archive, where one is left
    abort: Callable[[], None] | None = None  # aborts a run that is active
    trace: list[str] = field(default_factory=list)

    def call(self, name: str, right: str, effect: Callable[[], T]) -> T:
        """Do one request of a store, with the faults of the schedule."""
        scheduler, faults = self.scheduler, self.faults
        scheduler.pause()
        self.inject_others()
        if faults.injects(Fault.DELAY, name):
            scheduler.sleep(faults.delay())
        self._crash(Fault.CRASH, name)
        if self.denied and self._is_denied(right):
            self.note(f"{name}: denied")
            raise AccessDeniedError(f"{name}: not allowed, s3:{right} is missing")
        if faults.injects(Fault.THROTTLE, name):
            self.note(f"{name}: slow down")
            raise ThrottledError(f"{name}: slow down")
        if faults.injects(Fault.OUTAGE, name):
            kind, seconds = faults.outage(right)
            self.outages[kind] = scheduler.now + seconds
        if self._is_out(right) or faults.injects(Fault.REFUSE, name):
            self.note(f"{name}: refused")
            raise ServiceFaultError(f"{name}: internal error")
        try:
            value = effect()
        except S3UnzipError as error:
            self.note(f"{name}: {error}")
            raise
        self.note(name)
        self._crash(Fault.CRASH_AFTER, name)
        if faults.injects(Fault.LOSE, name):
            self.note(f"{name}: its answer is lost")
            raise ServiceFaultError(f"{name}: the answer was lost")
        scheduler.pause()
        return value

    def inject_others(self) -> None:
        """Let happen what does not happen to the call itself."""
        if self.overwrite is not None and self.faults.injects(Fault.OVERWRITE, "the archive"):
            self.overwrite()
        if self.abort is not None and self.faults.injects(Fault.ABORT, "a run"):
            self.abort()
        if self.faults.injects(Fault.DENY, "a right"):
            right = self.faults.rng.choice(("GetObject", "PutObject"))
            self.denied[right] = self.faults.refusals()

    def note(self, what: str) -> None:
        """Write down what happened, for whoever reads a failure."""
        self.trace.append(f"{self.scheduler.current().process.name}: {what}")

    def function(self) -> Function | None:
        """Return the invocation that calls, None where a service does."""
        process = self.scheduler.current().process
        return process if isinstance(process, Function) else None

    def attempt(self) -> Attempt | None:
        """Return what the invocation that calls works on, where it is a task."""
        function = self.function()
        return None if function is None else function.attempt

    def _is_out(self, right: str) -> bool:
        now = self.scheduler.now
        return any(now < self.outages.get(kind, 0.0) for kind in ("", right))

    def _is_denied(self, right: str) -> bool:
        left = self.denied.get(right, 0)
        if left:
            self.denied[right] = left - 1
        return left > 0

    def _crash(self, fault: Fault, name: str) -> None:
        if self.faults.injects(fault, name):
            self.note(f"{name}: {fault}")
            self.scheduler.kill(self.scheduler.current().process)
            raise ProcessDiedError
