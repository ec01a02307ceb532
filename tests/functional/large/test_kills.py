"""A worker that is killed, or whose time is over: done again, the end is the same.

Each kind of task is killed at every call it makes, before the call is out and
before its answer is in. What is left is finished by a worker that lives.
"""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec.structs import replace

from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options
from s3unzip.settings import Tuning
from s3unzip.settling.loop import KnownArchive, Settled, begin, settle
from tests.support import zips
from tests.support.contents import log_lines
from tests.support.memory import ManualClock
from tests.support.runs import KEY, TINY, WHOLE, World

FREE = {
    "keeps_metadata",
    "release",
    "part_limits",
    "copies_from",
    "disposal",
    "sync",
}  # what makes no request
OPENING = {"source", "destination", "run_store", "pinned"}


class KilledError(BaseException):
    """The worker is gone: no handler of the pipeline may take it for a fault."""


class Lifetime:
    """So many calls, and no more.

    `answered` is whether the last call takes effect: a worker can be killed
    before its request is out, or before the answer is in.
    """

    def __init__(self, calls: float = float("inf"), *, answered: bool = False) -> None:
        self.calls = 0
        self._most = calls
        self._answered = answered
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Count one call; say whether the worker dies after it has taken effect."""
        with self._lock:
            self.calls += 1
            if self.calls < self._most:
                return False
            if self.calls == self._most and self._answered:
                return True
        raise KilledError


class Dying:
    """Stores, or an adapter of them, each of whose requests spends a part of a lifetime."""

    def __init__(self, inner: object, life: Lifetime) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in FREE:
            return found
        if name in OPENING:
            return lambda *given: Dying(found(*given), self._life)

        def request(*given: Any, **more: Any) -> Any:
            dies = self._life.spend()
            value = found(*given, **more)
            if dies:
                raise KilledError
            return value

        return request


@dataclass(frozen=True, slots=True)
class Case:
    """An archive whose run is of one kind of task."""

    entry: zips.Entry
    tuning: Tuning
    stride: int = 1  # of the calls at which the worker is killed

    @property
    def archive(self) -> bytes:
        return zips.build(self.entry)


LONG = log_lines(400_000)
STORED = random.Random(5).randbytes(60_000)
CASES = {
    "stream": Case(zips.Entry("m", log_lines(90_000), zips.DEFLATE), WHOLE),
    "copy": Case(zips.Entry("m", STORED), WHOLE),
    "copies": Case(zips.Entry("m", STORED), replace(WHOLE, copy_task_bytes=25_000)),
    "segments": Case(
        zips.Entry("m", LONG, zips.DEFLATE), replace(TINY, read_piece=1 << 20), stride=13
    ),
}


def _planned(case: Case, options: Options) -> tuple[World, Settled]:
    world = World(case.tuning)
    return world, begin(world.request(case.archive, options), world.context)


def lifetimes(case: Case, options: Options) -> Iterator[Lifetime]:
    """Yield the lives that end at each call that a run makes."""
    world, step = _planned(case, options)
    whole = Lifetime()
    world.stores = cast(Any, Dying(world.buckets, whole))
    world.assert_clean(world.finish(step), m=case.entry.content)
    for call in range(1, whole.calls + 1, case.stride):
        yield Lifetime(call)
        yield Lifetime(call, answered=True)


@pytest.mark.parametrize("rule", [OnConflict.OVERWRITE, OnConflict.NEVER])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_killed_run_is_finished_by_the_next(kind: str, rule: OnConflict) -> None:
    """After a kill at any call and a resume, the member is complete and no upload is left."""
    case, options = CASES[kind], Options(on_conflict=rule)
    deaths = 0
    for life in lifetimes(case, options):
        world, step = _planned(case, options)
        world.stores = cast(Any, Dying(world.buckets, life))
        try:
            world.finish(step)
        except KilledError:
            deaths += 1
        world.stores = None
        world.assert_clean(world.resume(step.next.run), m=case.entry.content)
        assert world.contents().keys() == {"m"}
    assert deaths > 10


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_killed_plan_is_made_again(kind: str) -> None:
    """After a kill at any call of the plan, the same request plans anew, or goes on."""
    case = CASES[kind]
    whole = Lifetime()
    world = World(case.tuning)
    request = world.request(case.archive)
    world.stores = cast(Any, Dying(world.buckets, whole))
    run = begin(request, world.context).next.run
    for call in range(1, whole.calls + 1):
        world = World(case.tuning)
        request = world.request(case.archive)
        world.stores = cast(Any, Dying(world.buckets, Lifetime(call, answered=True)))
        with pytest.raises(KilledError):
            begin(request, world.context)
        world.stores = None
        assert world.finish(begin(request, world.context, KnownArchive(run))).verdict == "COMPLETED"
        assert world.contents() == {"m": case.entry.content}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_step_done_twice_changes_nothing(kind: str) -> None:
    """Every task and every settling may be done again after it ended: the object stays."""
    case = CASES[kind]
    world, step = _planned(case, Options())
    first, steps = step, []
    while step.report is None:
        steps.append(step.next)
        run = world.records(step.next.run).read_plan().run
        for task in (*step.next.tasks, *step.next.tasks):
            run_task(run, task, world.context)
        step = settle(step.next, world.context)
    before = world.out.objects[KEY + "m"]
    for done in steps:
        for task in done.tasks:
            run_task(run, task, world.context)
        assert settle(done, world.context).report is not None
    assert world.out.objects[KEY + "m"] is before
    world.assert_clean(world.resume(first.next.run), m=case.entry.content)


class DwindlingClock(ManualClock):
    """Says a few times that there is time; then the worker's time is nearly over."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def remaining(self) -> float:
        self.times -= 1
        return 900.0 if self.times >= 0 else 5.0


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_worker_near_its_limit_ends_and_the_next_round_goes_on(kind: str, times: int) -> None:
    """A task whose time is over drops its upload and ends normally; it is in the next round."""
    case = CASES[kind]
    world, step = _planned(case, Options())
    clock = world.clock = DwindlingClock(times)
    run = world.records(step.next.run).read_plan().run
    left = 0
    for task in step.next.tasks:
        clock.times = times
        report = run_task(run, task, world.context)
        left += report.unfinished
        assert not report.uploaded
    assert left
    world.clock = ManualClock()
    after = settle(step.next, world.context)
    assert after.next.round == 1
    world.assert_clean(world.finish(after), m=case.entry.content)
