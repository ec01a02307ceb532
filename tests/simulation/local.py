"""One schedule of runs on one machine: programs and workers that are killed, and redriven.

The runner and its pool are the product's own. A program extracts the archive, or redrives a run of
it; it and its workers may die at any call. The user then does what the documents say.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from s3unzip.local.nesting import run_nested
from s3unzip.local.pool import WorkerPool
from s3unzip.local.runner import redrive, run_archive

from s3unzip.context import Context
from s3unzip.errors import InterruptedRunError, S3UnzipError
from s3unzip.model import Location, OnConflict, Options, Request, encode
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.ports import ObjectFacts
from tests.model.facts import OVERWRITE, SKIP_UNCHANGED, TITLES, ViolationError
from tests.model.nested import right_nested
from tests.simulation.archives import KEY, TUNING, make_archive
from tests.simulation.schedule import Ended, drawn, quiet
from tests.simulation.stores import SimulatedStores
from tests.simulation.substitution import substituted
from tests.simulation.workers import MAX_ORPHAN_SECONDS, Forks, simulated_pipes
from tests.simulation.world import Function, World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.model import Report, Run
    from tests.simulation.archives import Recipe

PROGRAMS = 5  # with faults; then one without for each run
LAST_PROGRAMS = 3  # without faults, for one run
AGAIN = 0.3  # of the programs after another: they begin anew and redrive nothing


class Machine:
    """One machine, and what its user does."""

    def __init__(self, world: World, rule: str, depth: int) -> None:
        self._world = world
        self._stores = SimulatedStores(world)
        options = Options(on_conflict=OnConflict(rule), nested_depth=depth)
        self._request = Request(
            Location("s3", "ingest", KEY), Location("s3", "members", "out/"), options
        )
        self._workers = world.scheduler.rng.randint(1, 3)

    def work(self) -> None:
        """Start programs until each run has ended, as the user does."""
        world, rng = self._world, self._world.scheduler.rng
        for _ in range(rng.randint(1, PROGRAMS)):
            self._start(self._choose())
            if self._has_ended() and not self._open_runs():
                break
        world.faults.clear()
        world.denied.clear()
        world.outages.clear()
        for _ in range(LAST_PROGRAMS):
            runs: list[str | None] = [*self._open_runs()]
            if not runs and self._has_ended():
                return
            for run in runs or [None]:
                self._start(run)

    def _choose(self) -> str | None:
        """Return a run that the next program redrives; None: it extracts the archive."""
        rng, runs = self._world.scheduler.rng, self._open_runs()
        return rng.choice(runs) if runs and rng.random() > AGAIN else None

    def _open_runs(self) -> list[str]:
        """Return the runs with a plan that have not ended."""
        found = []
        for name, state in self._world.model.runs.items():
            records = self._world.records.get(name, {})
            # A run that had ended may be started again, and then be stopped or killed.
            last = state.reports[-1]["verdict"] if "report.json" in records else "FAILED"
            ended = state.announced[-1:] not in ([], ["FAILED"]) and last != "FAILED"
            if "summary.json" in records and not ended:
                found.append(name)
        return found

    def _has_ended(self) -> bool:
        """Say whether the archive that is there now, and those inside, have runs that ended."""
        model = self._world.model
        wanted = [model.versions[str(model.current)], *right_nested(model)]
        told = [
            one.facts for one in model.runs.values() if one.announced[-1:] not in ([], ["FAILED"])
        ]
        return all(any(facts is one for one in told) for facts in wanted)

    def _start(self, run: str | None) -> None:
        """Run one program to its end, or until it is killed."""
        scheduler = self._world.scheduler
        process = Function("program" if run is None else f"redrive {run}")
        scheduler.spawn(process, partial(self._program, run))
        scheduler.run()
        scheduler.now += 2 * MAX_ORPHAN_SECONDS

    def _program(self, run: str | None) -> None:
        world = self._world
        forks = Forks(world)
        context = Context(
            self._stores,
            LocalClock(),
            tuning=Tuning(**TUNING),  # type: ignore[arg-type]  # int and float fields
        )

        def make_context(clock: LocalClock, _: object) -> Context:
            return Context(self._stores, clock, tuning=context.tuning)

        def make_pool(run: Run) -> WorkerPool:
            return WorkerPool(run, self._workers, make_context, None, forks)  # type: ignore[arg-type]  # of the same form

        try:
            report = self._extract(run, context, make_pool)
            self._told(report.run, json.loads(encode(report)))
            if run is None and report.options.nested_depth:
                for nested in run_nested(report, context, make_pool, lambda _: None):
                    if nested.run is not None:
                        self._told(nested.run, world.model.runs[nested.run].reports[-1])
        except (S3UnzipError, InterruptedRunError) as error:
            world.note(f"ends with {error!r}")
        except ViolationError:
            world.scheduler.ended = True
        finally:
            forks.close()

    def _extract(self, run: str | None, context: Context, make_pool: object) -> Report:
        if run is None:
            return run_archive(self._request, context, make_pool, lambda _: None)  # type: ignore[arg-type]  # of the form
        summary = RunRecords.open(self._stores, run, context.calls()).find_summary()
        assert summary is not None
        return redrive(summary, context, make_pool)  # type: ignore[arg-type]  # likewise

    def _told(self, run: str, report: dict[str, Any]) -> None:
        """Tell the model what the program prints: it is the event of a run on one machine."""
        model = self._world.model
        if report["verdict"] == "FAILED":
            model.execution_failed(run)
        counts = {name: report.get(name, 0) for name in ("extracted", "unchanged", "failed")}
        detail = {"run": run, "verdict": report["verdict"], **counts}
        model.announced(TITLES[report["verdict"]], detail)


def run_local(seed: int, skipped: frozenset[int] = frozenset()) -> Ended:
    """Run the schedule of `seed` on one machine, without the faults of these numbers.

    Raises:
        FailedScheduleError: the model was violated, or the schedule never ended.
    """
    depth = seed // 10 % 2
    with drawn(seed, skipped, (OVERWRITE, OVERWRITE, SKIP_UNCHANGED), depth) as schedule:
        world = schedule.world
        _put_versions(world, schedule.versions)
        with substituted(schedule.scheduler), simulated_pipes(world), quiet():
            Machine(world, schedule.rule, depth).work()
    return schedule.end()


def _put_versions(world: World, versions: Iterable[Recipe]) -> None:
    """Put the first version of the archive; the others come when a fault overwrites it."""
    coming = list(versions)

    def put() -> None:
        data, facts = make_archive(coming.pop(0))
        world.ingest.put(KEY, data, ObjectFacts("application/zip", {}), if_absent=False)
        world.model.archive_put(world.ingest.objects[KEY].etag, facts)
        world.overwrite = put if coming else None

    world.ingest.neighbours = world.members.neighbours = {
        "ingest": world.ingest,
        "members": world.members,
    }
    put()
