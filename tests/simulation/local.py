"""One schedule of runs on one machine: programs and workers that are killed, and resumed.

The loop over the rounds is `s3unzip.local.machine`'s own. Its workers are processes of the
schedule. A program extracts the archive, or resumes a run of it; it and its workers may die at any
call. The user then does what the documents say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from s3unzip.context import Context
from s3unzip.errors import InterruptedRunError, S3UnzipError, ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.local.machine import resume_run, run_archive
from s3unzip.model import Location, OnConflict, Options, Request, Run, Task, encode
from s3unzip.settings import Tuning
from tests.simulation.archives import KEY, TUNING
from tests.simulation.faults import Fault
from tests.simulation.promises import OVERWRITE, RUN_FAILED, SKIP_UNCHANGED, TITLES, ViolationError
from tests.simulation.schedule import Ended, drawn, end_of, put_versions, quiet
from tests.simulation.scheduler import Process
from tests.simulation.stores import SimulatedStores
from tests.simulation.substitution import substituted
from tests.simulation.threads import ClockOf, Event
from tests.simulation.world import Function, World

PROGRAMS = 5  # with faults; then some without
MAX_LOST = 3  # workers in a row that die
ANEW = 0.3  # of the programs after another: they begin anew and resume nothing


class Workers:
    """Worker processes of one program, as `s3unzip.local.workers` has them; they die with it."""

    def __init__(self, world: World, context: Context, count: int) -> None:
        self._world = world
        self._context = context
        self._count = count
        self._processes: list[Process] = []

    def do_all(self, run: Run, tasks: Iterable[Task]) -> ServiceFaultError | None:
        """Do each task once; one whose worker dies is begun again."""
        scheduler = self._world.scheduler
        waiting, fault, lost = list(tasks), None, 0
        while waiting and lost <= MAX_LOST:
            if self._world.faults.injects(Fault.ABORT, "the program: Ctrl-C"):
                raise KeyboardInterrupt
            now, waiting = waiting[: self._count], waiting[self._count :]
            ended = [self._start(run, task) for task in now]
            for task, (over, errors) in zip(now, ended, strict=True):
                while not over.is_set() and any(one.alive for one in self._of(task)):
                    over.wait(1.0)
                if not over.is_set():
                    waiting.append(task)
                    lost += 1
                elif errors and not isinstance(errors[0], ServiceFaultError):
                    waiting.clear()
                elif errors:
                    fault = errors[0]
            scheduler.pause()
        return fault if lost > MAX_LOST else None

    def _of(self, task: Task) -> list[Process]:
        return [one for one in self._processes if one.name == task.id]

    def _start(self, run: Run, task: Task) -> tuple[Event, list[S3UnzipError]]:
        world, promises = self._world, self._world.promises
        process = Function(task.id, promises.task_begun(run.id, task.id))
        over, errors = Event(world.scheduler), list[S3UnzipError]()

        def work() -> None:
            try:
                run_task(run, task, self._context)
            except S3UnzipError as error:
                assert process.attempt is not None
                promises.task_failed(process.attempt, type(error).__name__)
                errors.append(error)
            except ViolationError:
                world.scheduler.ended = True
            over.set()

        self._processes = [one for one in self._processes if one.alive and one.name != task.id]
        self._processes.append(process)
        world.scheduler.spawn(process, work)
        return over, errors

    def end(self) -> None:
        """Kill what is left, as the system does with the children of a killed program."""
        for process in self._processes:
            self._world.scheduler.kill(process)


class User:
    """What the user of one machine does."""

    def __init__(self, world: World, rule: str) -> None:
        self._world = world
        self._request = Request(
            Location("s3", "ingest", KEY),
            Location("s3", "members", "out/"),
            Options(on_conflict=OnConflict(rule)),
        )
        self._workers = world.scheduler.rng.randint(1, 3)

    def work(self) -> None:
        """Start programs until the run of the newest archive has ended, as the user does."""
        world, rng = self._world, self._world.scheduler.rng
        world.scheduler.run()  # the archive is put
        for number in range(rng.randint(1, PROGRAMS) + 3):
            runs = self._open_runs()
            if number >= PROGRAMS or (number and not runs and self._has_ended()):
                world.faults.clear()
                world.denied.clear()
                world.outages.clear()
            if number and not runs and self._has_ended():
                return
            self._start(rng.choice(runs) if runs and rng.random() > ANEW else None)
        world.faults.clear()
        world.denied.clear()
        world.outages.clear()
        for run in [*self._open_runs(), *([] if self._has_ended() else [None])]:
            self._start(run)

    def _open_runs(self) -> list[str]:
        """Return the runs with a plan that have not ended."""
        runs = self._world.promises.runs.items()
        records = self._world.records
        planned = [(run, one) for run, one in runs if "run.json" in records.get(run, {})]
        return [
            run
            for run, one in planned
            if "report.json" not in records[run] or one.verdict == RUN_FAILED
        ]

    def _has_ended(self) -> bool:
        """Say whether the archive that is there now has a run that ended."""
        promises = self._world.promises
        newest = promises.versions[str(promises.current)]
        ends = [one.verdict for one in promises.runs.values() if one.versions == [newest]]
        return any(verdict not in {None, RUN_FAILED} for verdict in ends)

    def _start(self, run: str | None) -> None:
        """Run one program to its end, or until it is killed."""
        process = Function("program" if run is None else f"resume {run}")
        tuning = Tuning(**TUNING)  # type: ignore[arg-type]  # int and float fields
        clock = ClockOf(self._world.scheduler)
        context = Context(SimulatedStores(self._world), clock, tuning=tuning)
        workers = Workers(self._world, context, self._workers)
        self._world.scheduler.spawn(process, partial(self._program, run, context, workers))
        self._world.scheduler.run()
        workers.end()

    def _program(self, run: str | None, context: Context, workers: Any) -> None:
        try:
            if run is None:
                report = run_archive(self._request, context, workers)
            else:
                report = resume_run(run, context, workers)
            detail = {"extracted": 0, "unchanged": 0, "failed": 0, **json.loads(encode(report))}
            self._world.promises.announced(TITLES[report.verdict], detail)  # what is printed
        except (S3UnzipError, InterruptedRunError) as error:
            self._world.note(f"ends with {error!r}")
        except ViolationError:
            self._world.scheduler.ended = True
        finally:
            workers.end()


def run_local(seed: int, skipped: frozenset[int] = frozenset()) -> Ended:
    """Run the schedule of `seed` on one machine, without the faults of these numbers.

    Raises:
        FailedScheduleError: a promise was broken, or the schedule never ended.
    """
    with drawn(seed, skipped, (OVERWRITE, OVERWRITE, SKIP_UNCHANGED), 0) as schedule:
        world = schedule.world
        put_versions(world, schedule.versions)
        with substituted(world.scheduler), quiet():
            User(world, schedule.rule).work()
        return end_of(schedule)
