"""Schedules that are written, not drawn: each shows one guard of the protocol at work.

A scene has no random faults. A cue is done at a call of one invocation of a function, before the
call has any effect: the invocation waits, is killed or refused while others go on. What is there in
the end is compared with the promises, and with what the scene says.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from s3unzip.errors import AccessDeniedError
from tests.simulation.archives import KEY, PREFIX, Recipe
from tests.simulation.machine import Execution
from tests.simulation.promises import OVERWRITE, Promises, RunState
from tests.simulation.schedule import check_end, deployed, event_of, put_archive
from tests.simulation.scheduler import Process, ProcessDiedError, Scheduler, current
from tests.simulation.services import Services, run_of
from tests.simulation.substitution import substituted
from tests.simulation.world import FaultPlan, World

PLAIN = 1  # the kind of schedules with nothing special
SMALL = Recipe(0, small=3)
NEWER = Recipe(1, small=3)  # the same names, other bytes
LATER = 10.0  # seconds in which everybody else has done what there is


class Stage:
    """The simulated account in which a scene plays; a context manager.

    Args:
        kind: what is special, as the last digit of a seed says it.
        tuning: settings of the functions.
    """

    def __init__(self, kind: int = PLAIN, **tuning: float) -> None:
        rng = random.Random(7)
        faults = FaultPlan(rng)
        faults.left.clear()
        self.world = World(Scheduler(rng), faults, Promises(OVERWRITE, {}))
        self.services = Services(self.world)
        self._open = ExitStack()
        self._kind = kind
        self._tuning = tuning

    def __enter__(self) -> Self:
        gc.disable()
        self._open.callback(gc.enable)
        self._open.callback(self.world.scheduler.close)
        self._open.enter_context(substituted(self.world.scheduler))
        made = deployed(self.world, self.services, OVERWRITE, self._kind, **self._tuning)
        self._open.enter_context(made)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    @property
    def runs(self) -> dict[str, RunState]:
        return self.world.promises.runs

    def run_of(self, version: int) -> RunState:
        (found,) = (
            state
            for name, state in self.runs.items()
            if "-again" not in name and [one.version for one in state.versions] == [version]
        )
        return found

    def put(self, recipe: Recipe, key: str = KEY, prefix: str = PREFIX) -> None:
        put_archive(self.world, self.services, recipe, key, prefix)

    def replace(self, recipe: Recipe) -> None:
        """Put another archive, and let everybody else go on."""
        self.put(recipe)
        self.wait()

    def send(self, key: str = KEY) -> None:
        self.services.send(event_of(self.world, key))

    def remove(self) -> None:
        del self.world.ingest.objects[KEY]
        self.world.promises.archive_removed(KEY)

    def wait(self, seconds: float = LATER) -> None:
        self.world.scheduler.sleep(seconds)

    def kill(self) -> None:
        self.world.scheduler.kill(current().process)
        raise ProcessDiedError

    def deny(self) -> None:
        raise AccessDeniedError("not allowed")

    def at(
        self, function: str, number: int, call: str, *steps: Callable[[], object], nth: int = 1
    ) -> None:
        """Do something before the n-th such call of one invocation of a function, from 1 each."""

        def play() -> None:
            if nth > 1:
                self.at(function, number, call, *steps, nth=nth - 1)
                return
            for step in steps:
                step()

        self.world.cues[function, number, call] = play

    def play(self, *steps: Callable[[], object]) -> None:
        """Let somebody do something, and wait until all is quiet."""

        def work() -> None:
            for step in steps:
                step()

        self.world.scheduler.spawn(Process("somebody"), work)
        self.world.scheduler.run()

    @property
    def executions(self) -> list[Execution]:
        return [one for one in self.services.executions.values() if "wait" not in one.given]

    def resume(self) -> None:
        last = self.executions[-1]
        self.services.start_next(run_of(last.name), {"run": run_of(last.name)})

    def check(self) -> None:
        """Compare what is there with the promises; nobody resumes anything."""
        self.world.promises.mended = False
        self.world.faults.injected.append("delay of a scene")  # what waits repeats work
        check_end(self.world, self.services)
        assert not self.world.cues, "a cue was never given"
