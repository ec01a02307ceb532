"""The same event many times, and the same task twice at once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from s3unzip.context import Context
from s3unzip.errors import ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options, Run, Task, Verdict, run_id
from s3unzip.planning.read import read_tail
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Tuning
from s3unzip.settling.loop import begin, settle
from s3unzip.stores.clock import LocalClock
from tests.faults.archives import make_archive
from tests.faults.figures import Figure
from tests.faults.stores import DESTINATION
from tests.faults.world import World, expected_listing


class Executions:
    """Starts an execution of a name once, as Step Functions does with StartExecution."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._numbers = itertools.count()

    def start(self, name: str) -> bool:
        """Say whether this call was the first of `name`; setdefault is atomic."""
        mine = next(self._numbers)
        return self._names.setdefault(name, mine) == mine

    def __len__(self) -> int:
        return len(self._names)


def measure_events(world: World, copies: tuple[int, ...], small: int) -> Iterator[Figure]:
    """Yield runs and PUTs for an event that comes so many times, one by one and at once."""
    archive = make_archive(small=small)
    want = expected_listing(archive)
    for count in copies:
        for at_once in (False, True):
            world.clear()
            world.put_archive(archive)
            executions = Executions()
            take = partial(_take_event, world, executions)
            with ThreadPoolExecutor(count if at_once else 1) as pool:
                list(pool.map(take, range(count)))
            label = f"events.{count}_copies.{'at_once' if at_once else 'in_turn'}"
            yield Figure(f"{label}.runs", len(executions), "runs")
            yield from _writes(world, label, len(want))
            yield Figure(f"{label}.whole", float(world.listing() == want), "of 1")


def measure_reruns(world: World, members: int) -> Iterator[Figure]:
    """Yield what a run costs that finds all its members there, by the rule on conflicts."""
    archive = make_archive(small=members, large=False, size=200)
    want = expected_listing(archive)
    world.clear()
    world.put_archive(archive)
    world.run(tuning=Tuning())
    world.proxy.take_records()
    for rule in (OnConflict.SKIP_UNCHANGED, OnConflict.NEVER):
        report = world.run(options=Options(on_conflict=rule), tuning=Tuning())
        kinds = Counter(
            record.kind
            for record in world.proxy.take_records()
            if record.path.startswith(f"/{DESTINATION}")
        )
        label = f"rerun.{rule.value}"
        yield Figure(f"{label}.unchanged", report.unchanged, "members")
        for kind in ("list", "head", "put"):
            yield Figure(f"{label}.{kind}", kinds[kind], "requests")
        yield Figure(f"{label}.whole", float(world.listing() == want), "of 1")


def measure_twins(world: World, times: int) -> Iterator[Figure]:
    """Yield what is left when every task is done twice at once, `times` tasks in all."""
    archive = make_archive(small=300)
    want = expected_listing(archive)
    done = runs = equal = left = 0
    while done < times:
        world.clear()
        world.put_archive(archive)
        maker = world.maker()
        one, other = maker(LocalClock()), maker(LocalClock())
        step = begin(world.request(), one)
        while step.report is None:
            done += _do_twice(step.next.run, step.next.tasks, one, other)
            step = settle(step.next, one)
        report = step.report
        runs += 1
        equal += report.verdict is Verdict.COMPLETED and world.listing() == want
        left += world.uploads()
    yield Figure("twins", done, "tasks")
    yield Figure("twins.runs", runs, "runs")
    yield Figure("twins.equal_runs", equal, "runs")
    yield Figure("twins.uploads_left", left, "uploads")


def _do_twice(name: str, tasks: tuple[Task, ...], one: Context, other: Context) -> int:
    """Do each task of a round in two threads at once; return how many there were."""
    records = RunRecords.open(one.stores, name)
    run, done = records.read_plan().run, 0
    with ThreadPoolExecutor(2) as pool:
        for task in tasks or records.read_round(records.list_rounds()[-1]):
            list(pool.map(partial(_try, run, task), (one, other)))
            done += 1
    return done


def _try(run: Run, task: Task, context: Context) -> None:
    """Do one task, up to four times, as a state machine does."""
    for attempt in range(4):
        try:
            run_task(run, task, context)
        except ServiceFaultError:
            if attempt == 3:
                raise
        else:
            return


def _take_event(world: World, executions: Executions, _: int) -> None:
    """Do what the intake does with one event: it starts the execution of a name once."""
    context, request = world.maker()(LocalClock()), world.request()
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, context.calls())
    if executions.start(run_id(request, tail.pin, tail.modified)):
        world.run(processes=0)


def _writes(world: World, label: str, members: int) -> Iterator[Figure]:
    records = world.proxy.take_records()
    kinds = Counter(record.kind for record in records if record.path.startswith(f"/{DESTINATION}/"))
    objects = kinds["put"] + kinds["complete"]
    yield Figure(f"{label}.puts_a_member", objects / members, "x")
