"""The operator of an environment: redrives, retries and aborts runs by the product's code."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError
from s3unzip.objects.upload_registry import abort_run

from s3unzip.context import Context
from s3unzip.errors import S3UnzipError
from s3unzip.model import Location
from s3unzip.operate.runs import DeployedRuns
from s3unzip.settings import Tuning
from tests.model.facts import WITH_ERRORS
from tests.simulation.archives import TUNING
from tests.simulation.scheduler import Process
from tests.simulation.stores import SimulatedStores
from tests.simulation.threads import ClockOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.services import Services
    from tests.simulation.world import World

NOTICE_SECONDS = 600.0  # until an operator does anything
SOON = (0.01, 1.0, 20.0, 120.0)  # seconds after an abort, while its functions may go on
STOPPED = frozenset({"FAILED", "ABORTED"})


class Operator:
    """What somebody does about the runs of a world."""

    def __init__(self, world: World, services: Services, machine: str) -> None:
        self._world = world
        self._services = services
        self._stores = SimulatedStores(world)
        runs = self._runs = DeployedRuns.__new__(DeployedRuns)  # without AWS's clients
        runs.environment = "simulated"
        runs.work_location = Location("s3", "work", "")
        runs._machine, runs._prefix = machine, ""
        runs.stores = self._stores  # type: ignore[assignment]  # a store of the same ports
        runs._states = services.client("stepfunctions")

    def abort(self) -> None:
        """Abort a run that is active, as `s3unzip abort RUN --env` does."""
        executions = self._services.machine.executions
        active = [name for name, one in executions.items() if one.status == "RUNNING"]
        if active:
            name = self._world.faults.rng.choice(active)
            self._do(f"abort {name}", lambda: self._abort(name))

    def _abort(self, name: str) -> None:
        if not self._runs.stop(name):
            return
        self._drop_uploads(name)
        faults = self._world.faults
        if faults.overlaps and faults.rng.random() < 0.5:
            self._world.scheduler.sleep(faults.rng.choice(SOON))
            self._world.note(f"redrive {name} soon")
            self._redrive(name)

    def _drop_uploads(self, name: str) -> None:
        summary = self._runs.records(name).find_summary()
        if summary is not None:
            clock = ClockOf(self._world.scheduler)
            tuning = Tuning(**TUNING)  # type: ignore[arg-type]  # int and float fields
            abort_run(summary.run, Context(self._stores, clock, tuning=tuning))

    def redrive(self) -> bool:
        """Continue what ended early; return whether there was anything to do."""
        world, services = self._world, self._services
        executions = services.machine.executions
        failed = [name for name, one in executions.items() if one.status in STOPPED]
        letters, services.dead_letters = services.dead_letters, []
        failures, services.undelivered = services.undelivered, []

        def work() -> None:
            world.scheduler.sleep(NOTICE_SECONDS)
            for body in letters:
                services.send(body)
            for event in failures:
                services.tell_failure(event)
            for name in failed:  # last: an outage may end this
                self._redrive(name)

        self._do("redrive", work)
        return bool(failed or letters or failures)

    def _redrive(self, name: str) -> None:
        """Redrive by the console's button or by the command."""
        if self._world.faults.rng.random() >= 0.5:
            self._runs.redrive(name)
        elif self._services.machine.executions[name].status in STOPPED:
            self._services.redrive(name)

    def retry(self) -> bool:
        """Remove what is in the way of members, and try failed members again.

        Returns:
            Whether there was a run with failed members.
        """
        model = self._world.model
        current = model.versions[str(model.current)]  # the others would find it changed
        names = [
            run
            for run, one in model.runs.items()
            if one.announced[-1:] == [WITH_ERRORS] and one.facts is current
        ]
        for name in names:
            self._do(f"retry {name}", partial(self._retry, name))
        return bool(names)

    def _retry(self, name: str) -> None:
        self._world.scheduler.sleep(NOTICE_SECONDS)
        model, members = self._world.model, self._world.members
        for one in model.runs[name].facts.members:
            found = model.objects.get(one.key)
            if one.right and found and found.run is None and found.body != one.body:
                members.delete([one.key])
                model.object_removed(one.key)
        if self._runs.retry(name):
            model.retried(name)

    def _do(self, what: str, work: Callable[[], object]) -> None:
        def run() -> None:
            self._world.note(what)
            try:
                work()
            except (S3UnzipError, BotoCoreError) as error:
                self._world.note(f"{what}: {error}")

        self._world.scheduler.spawn(Process("operator"), run)
