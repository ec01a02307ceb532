"""Schedules of direct runs: one archive, and faults at chosen calls instead of random ones."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3unzip.run_files import CLAIMS, REPORT

from s3unzip.stores.ports import ObjectFacts
from tests.model.facts import OVERWRITE
from tests.model.run import Model
from tests.simulation.archives import KEY, TUNING, Recipe, make_archive
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.schedule import deployed, object_created
from tests.simulation.scheduler import START, Process, Scheduler
from tests.simulation.services import Services
from tests.simulation.substitution import substituted
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL_BYTES = 66_000  # that are read first; the least that hold any directory


def make_recipe(version: int, *, larger: bool = False) -> Recipe:
    """Return the recipe of a version of the archive, of 1 KB or of 74 KB."""
    return Recipe(version, small=2, streams=14) if larger else Recipe(version, small=8)


@dataclass(slots=True)
class FaultAt(FaultPlan):
    """One fault, at the call of this number; 0: none."""

    fault: Fault = Fault.CRASH
    at: int = 0
    calls: int = 0  # so far

    def injects(self, fault: Fault, call: str) -> bool:
        """Say whether it happens at `call`."""
        if fault is not self.fault:
            return False
        self.calls += 1
        if self.calls != self.at:
            return False
        self.injected.append(f"{fault} {call}")
        return True


@dataclass(slots=True)
class OvertakenAt(FaultPlan):
    """The archive is replaced before the call of this number, which then takes 40 s."""

    at: int = 0
    calls: Counter[Fault] = field(default_factory=Counter)

    def injects(self, fault: Fault, call: str) -> bool:
        """Say whether it happens at `call`."""
        self.calls[fault] += 1
        if fault not in {Fault.OVERWRITE, Fault.DELAY} or self.calls[fault] != self.at:
            return False
        self.injected.append(f"{fault} {call}")
        return True

    def delay(self) -> float:
        """Return how long the slow call takes, in seconds."""
        return 40.0


@dataclass(slots=True)
class Account:
    """A simulated account with direct runs, which are watched by the model."""

    seed: int
    faults: FaultAt | OvertakenAt = field(default_factory=lambda: FaultAt(random.Random(0)))
    larger: bool = False  # whether the archive is larger than the bytes that are read first
    world: World = field(init=False)
    services: Services = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(Scheduler(random.Random(self.seed)), self.faults, Model(OVERWRITE, {}))
        self.services = Services(self.world)

    def run(self, *, events: int = 1, late: Sequence[float] = (), versions: int = 1) -> None:
        """Put the archive, send its events, and let the account work until all is quiet.

        Args:
            events: at once.
            late: seconds after the put at which the event comes again.
            versions: the second one replaces the first where the fault says so.

        Raises:
            ViolationError: something happened that the documents forbid.
            StuckError: it never ends.
        """
        world, coming = self.world, [make_recipe(n, larger=self.larger) for n in range(versions)]
        tuning = {**TUNING, "tail_bytes": TAIL_BYTES}

        def put() -> None:
            data, facts = make_archive(coming.pop(0))
            world.ingest.put(KEY, data, ObjectFacts("application/zip", {}), if_absent=False)
            world.modified = float(int(world.scheduler.now))
            world.model.archive_put(world.ingest.objects[KEY].etag, facts)
            world.overwrite = put if coming else None
            for _ in range(events):
                self.services.send(json.dumps(object_created()))

        def repeat() -> None:
            for moment in late:
                world.scheduler.sleep(START + moment - world.scheduler.now)
                self.services.send(json.dumps(object_created()))

        gc.disable()  # a generator that is closed at a random moment would take a step
        try:
            with substituted(world.scheduler), deployed(world, self.services, OVERWRITE, tuning):
                world.scheduler.spawn(Process("somebody"), put)
                world.scheduler.spawn(Process("queue"), repeat)
                world.scheduler.run()
            self._check()
        finally:
            world.scheduler.close()
            gc.enable()

    def _check(self) -> None:
        """Compare what is there with the model; no upload and no run without a report is left."""
        world = self.world
        if world.model.violations:
            raise world.model.violations[0]
        uploads = {
            upload: pending.facts.metadata["s3unzip-run"]
            for upload, pending in world.members.pending.items()
        }
        assert not uploads
        world.model.all_quiet(self.objects, uploads, calm=False)
        runs = {run: records for run, records in world.records.items() if run != CLAIMS}
        assert not [run for run, records in runs.items() if records and REPORT not in records]
        assert not self.services.dead_letters

    @property
    def objects(self) -> dict[str, bytes]:
        """The members at the destination."""
        return {key: one.body for key, one in self.world.members.objects.items()}

    @property
    def announced(self) -> list[list[str]]:
        """The verdicts in the events of each run."""
        return [state.announced for state in self.world.model.runs.values()]

    @property
    def executions(self) -> int:
        """How many executions were started."""
        return len(self.services.machine.executions)
