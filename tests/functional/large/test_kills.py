"""A worker that is killed, or whose time is over: done again, the end is the same.

Each kind of task is killed at every call it makes, before the call is out and
before its answer is in. What is left is finished by a worker that lives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from s3unzip.errors import DeadlineError
from s3unzip.extraction.split.link import await_scans, link_members
from s3unzip.extraction.split.scan import run_scan
from s3unzip.extraction.task import run_task
from s3unzip.local.runner import work_off
from s3unzip.model import (
    OnConflict,
    Options,
    PlanSummary,
    ScanTask,
    Task,
    TaskReport,
    decode,
)
from s3unzip.planning.plan_writer import make_plan
from s3unzip.runs.records import RunRecords
from tests import zips
from tests.functional.large.dying import FailsAfter, KilledError, Lifetime
from tests.functional.large.encoders import log_lines
from tests.functional.large.world import KEY, TUNING, WHOLE, World
from tests.memory import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.settings import Tuning


@dataclass(frozen=True, slots=True)
class Case:
    """An archive whose run is of one kind of task."""

    entry: zips.Entry
    tuning: Tuning
    stride: int = 1  # of the calls at which the worker is killed

    @property
    def archive(self) -> bytes:
        """The archive."""
        return zips.build(self.entry)


LOG = log_lines(90_000)
LONG = log_lines(400_000)
STORED = random.Random(5).randbytes(60_000)
CASES = {
    "stream": Case(zips.Entry("m", LOG, zips.DEFLATE), WHOLE),
    "copy": Case(zips.Entry("m", STORED), WHOLE),
    "copies": Case(zips.Entry("m", STORED), replace(WHOLE, copy_task_bytes=25_000)),
    "segments": Case(
        zips.Entry("m", LONG, zips.DEFLATE), replace(TUNING, read_piece=1 << 20), stride=13
    ),
}


def planned(case: Case, options: Options) -> tuple[World, PlanSummary]:
    """Return a world with a plan and nothing done."""
    world = World(case.tuning)
    summary = make_plan(world.request(case.archive, options), world.context)
    assert isinstance(summary, PlanSummary)
    return world, summary


def lifetimes(case: Case, options: Options) -> Iterator[Lifetime]:
    """Yield the lives that end at each call that a run makes."""
    world, summary = planned(case, options)
    whole = Lifetime()
    world.stores = FailsAfter(world.buckets, whole)
    work_off(summary, world.context, world.pool, fresh=True)
    world.assert_clean_bucket(case.entry)
    for call in range(1, whole.calls + 1, case.stride):
        yield Lifetime(call)
        yield Lifetime(call, answered=True)


@pytest.mark.parametrize("rule", [OnConflict.OVERWRITE, OnConflict.NEVER])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_killed_run_is_finished_by_the_next(kind: str, rule: OnConflict) -> None:
    """After a kill at any call and a redrive, the member is complete and no upload is left."""
    case, options = CASES[kind], Options(on_conflict=rule)
    deaths = 0
    for life in lifetimes(case, options):
        world, summary = planned(case, options)
        world.stores = FailsAfter(world.buckets, life)
        try:
            work_off(summary, world.context, world.pool, fresh=True)
        except KilledError:
            deaths += 1
        world.stores = None
        report = world.redrive(summary.run.id)
        assert report.verdict == "COMPLETED", (life.calls, report)
        world.assert_clean_bucket(case.entry)
    assert deaths > 10


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_task_done_twice_changes_nothing(kind: str) -> None:
    """Every step may be done again after it ended: the object stays, and no upload is left."""
    case = CASES[kind]
    world, summary = planned(case, Options())
    work_off(summary, world.context, world.pool, fresh=True)
    before = world.out.objects[KEY + "m"]
    for step in steps(world, summary):
        step()
    report = world.redrive(summary.run.id)
    assert report.verdict == "COMPLETED"
    assert world.out.objects[KEY + "m"] is before
    world.assert_clean_bucket(case.entry)


def steps(world: World, summary: PlanSummary) -> list[partial[Any]]:
    """Return the scans, the link and the tasks of a run, each to be called."""
    work, run, context = world.buckets.run_store(summary.run.id), summary.run, world.context
    found: list[partial[Any]] = []
    if summary.scans:
        scans = [decode(line, ScanTask) for line in work.read("scan.jsonl").splitlines()]
        found += [partial(run_scan, run, scan, context) for scan in scans]
    if summary.split_members:
        found.append(partial(link_members, run, context))
    tasks = [decode(line, Task) for line in work.read("plan.jsonl").splitlines()]
    return found + [partial(run_task, run, task, context) for task in tasks]


def test_the_forecast_counts_the_requests_of_the_link_step() -> None:
    """Beside the segments, the link step makes as many requests as its forecast has waits for."""
    world, summary = planned(CASES["segments"], Options())
    for step in steps(world, summary):
        if step.func is run_scan:
            step()
    life = Lifetime()
    world.stores = FailsAfter(world.buckets, life)
    records = RunRecords.open(world.stores, summary.run.id)
    assert await_scans(records, world.context.clock) == 0
    link_members(summary.run, world.context)
    work = world.buckets.run_store(summary.run.id)
    written = [name for name in work.names("links/") if name.endswith(".bin")]
    heads = 2  # of the list of scans and of the plan; memory makes none
    around = 6 - heads + 1 + 4 + 4
    assert life.calls == around + summary.scans + len(written)


class DwindlingClock(ManualClock):
    """Has so many looks before the worker's time is nearly over."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def remaining(self) -> float:
        """Return the seconds left."""
        self.looks -= 1
        return 900.0 if self.looks >= 0 else 5.0


@pytest.mark.parametrize("looks", [0, 1])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_worker_near_its_limit_stops_and_says_so(kind: str, looks: int) -> None:
    """A task whose time is over drops its upload, and another worker does it."""
    case = CASES[kind]
    world, summary = planned(case, Options())
    clock = world.clock = DwindlingClock(looks)
    said = []
    for step in steps(world, summary):
        clock.looks = looks
        try:
            step()
        except DeadlineError as error:
            said.append(str(error))
    assert said
    assert all("time limit" in words for words in said)
    world.clock = ManualClock()
    report = world.redrive(summary.run.id)
    assert report.verdict == "COMPLETED"
    world.assert_clean_bucket(case.entry)


def test_the_slices_that_are_done_are_not_done_again() -> None:
    """After one slice ran out of time, the next worker uploads that slice alone."""
    case = CASES["segments"]
    world, summary = planned(case, Options())
    scans_and_link = [step for step in steps(world, summary) if step.func is not run_task]
    for step in scans_and_link:
        step()
    tasks = [step for step in steps(world, summary) if step.func is run_task]
    for step in tasks[1:]:
        step()
    parts = {number for upload in world.out.pending.values() for number in upload.parts}
    first = run_task(*tasks[0].args)
    assert isinstance(first, TaskReport)
    assert not parts & {part.number for part in first.uploaded}
    again = run_task(*tasks[1].args)
    assert again.started < first.started  # what was on record came back
    report = world.redrive(summary.run.id)
    assert report.verdict == "COMPLETED"
    world.assert_clean_bucket(case.entry)


def test_every_segment_stops_at_its_deadline() -> None:
    """A slice that begins when its worker's time is nearly over reads and uploads nothing."""
    case = CASES["segments"]
    world, summary = planned(case, Options())
    clock = world.clock = DwindlingClock(1 << 30)
    found = steps(world, summary)
    for step in found:
        if step.func is not run_task:
            step()
    tasks = [step for step in found if step.func is run_task]
    stopped = 0
    for step in tasks:
        clock.looks = 0
        try:
            said = step()
        except DeadlineError:
            stopped += 1
        else:
            assert said.uploaded == ()  # its segment was joined to the one before
    assert stopped > 1
    assert not any(upload.parts for upload in world.out.pending.values())
    clock.looks = 1 << 30
    report = world.redrive(summary.run.id)
    assert report.verdict == "COMPLETED"
    world.assert_clean_bucket(case.entry)
