"""Doing a run's work again: retries of members, redrives, and the uploads that attempts leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from s3unzip.context import Context
from s3unzip.errors import DeadlineError, StorageError
from s3unzip.extraction.split.link import link_members
from s3unzip.extraction.split.scan import run_scan
from s3unzip.extraction.task import run_task
from s3unzip.local.runner import redrive, retry_failed, work_off
from s3unzip.model import (
    Location,
    OnConflict,
    Options,
    PlanSummary,
    Report,
    Request,
    ScanTask,
    Task,
    TaskKind,
    Verdict,
    decode,
)
from s3unzip.objects.upload_registry import abort_run, begin_upload
from s3unzip.planning.plan_writer import make_plan
from s3unzip.runs.records import RunRecords
from s3unzip.runs.step import Step
from s3unzip.settling.settle import settle
from s3unzip.stores.ports import ObjectFacts
from tests.faults.archives import TUNING, make_archive
from tests.memory import ManualClock, MemoryBucket, MemoryStores, put_archive
from tests.serial_pool import SerialPool

if TYPE_CHECKING:
    from s3unzip.local.runner import Pool
    from s3unzip.model import Run
    from s3unzip.stores.ports import Buffer

FACTS = ObjectFacts("text/plain", {})


@pytest.fixture
def stores() -> MemoryStores:
    """Return stores with an archive of every kind of task."""
    stores = MemoryStores()
    put_archive(stores, make_archive(small=30))
    return stores


@pytest.fixture
def context(stores: MemoryStores) -> Context:
    """Return a context that never waits."""
    return Context(stores, ManualClock(), tuning=TUNING)


def plan(context: Context, options: Options | None = None) -> PlanSummary:
    """Plan the run of the archive."""
    source, destination = Location("s3", "ingest", "in/archive.zip"), Location("s3", "out", "")
    found = make_plan(Request(source, destination, options or Options()), context)
    assert isinstance(found, PlanSummary)
    return found


def work(summary: PlanSummary, context: Context) -> Report:
    """Do all of a planned run in this process."""

    def make_pool(run: Run) -> Pool:
        return SerialPool(run, context)

    return work_off(summary, context, make_pool, fresh=True)


def test_retry_touches_only_what_failed(stores: MemoryStores, context: Context) -> None:
    """Members that were in the way of `never` are written once they are gone; no other is."""
    bucket = stores.bucket("out")
    taken = ["archive/json/0/000007.json", "archive/json/1/000008.json", "archive/stream.txt",
             "archive/split.log", "archive/stored.bin"]  # fmt: skip
    for key in taken:
        bucket.put(key, b"other", FACTS, if_absent=False)
    summary = plan(context, Options(on_conflict=OnConflict.NEVER))
    first = work(summary, context)
    assert first.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert (first.failed, first.reasons) == (len(taken), {"exists": len(taken)})
    bucket.delete(taken)
    before = dict(bucket.objects)
    again = retry_failed(summary, context, lambda run: SerialPool(run, context))
    assert again.verdict is Verdict.COMPLETED, again
    assert (again.extracted, again.failed) == (summary.selected, 0)
    assert sorted(bucket.objects.keys() - before.keys()) == sorted(taken)
    assert all(bucket.objects[key] is stored for key, stored in before.items())
    assert not bucket.pending


def test_a_retry_may_fail_again(stores: MemoryStores, context: Context) -> None:
    """A member counts once, by its last outcome, however often it was tried."""
    key = "archive/json/0/000007.json"
    stores.bucket("out").put(key, b"other", FACTS, if_absent=False)
    summary = plan(context, Options(on_conflict=OnConflict.NEVER))
    work(summary, context)
    for _ in range(2):
        again = retry_failed(summary, context, lambda run: SerialPool(run, context))
        assert (again.extracted, again.failed) == (summary.selected - 1, 1)
    stores.bucket("out").delete([key])
    again = retry_failed(summary, context, lambda run: SerialPool(run, context))
    assert (again.extracted, again.failed) == (summary.selected, 0)
    nothing = retry_failed(summary, context, lambda run: SerialPool(run, context))
    assert nothing.extracted == summary.selected


def test_abort_drops_only_this_runs_uploads(stores: MemoryStores, context: Context) -> None:
    """By its id where it is on record, by its key where only the intent is."""
    summary = plan(context)
    bucket, log = stores.bucket("out"), stores.run_store(summary.run.id)
    step = Step(summary.run, "stream-1", context, context.calls())
    begin_upload(step, "stream-1", "archive/a", FACTS)
    theirs = bucket.create_upload("archive/a", FACTS)
    bucket.create_upload("archive/b", FACTS)
    log.write("uploads/stream-2/x.json", [b'["archive/b",null]'])
    assert abort_run(summary.run, context) == 2
    assert list(bucket.pending) == [theirs]
    assert abort_run(summary.run, context) == 0


def test_a_redrive_after_an_abort(stores: MemoryStores, context: Context) -> None:
    """Slices whose shared upload was dropped are given up, and the member is streamed."""
    summary = plan(context)
    log = stores.run_store(summary.run.id)
    for line in log.read("scan.jsonl").splitlines():
        run_scan(summary.run, decode(line, ScanTask), context)
    link_members(summary.run, context)
    assert len(stores.bucket("out").pending) == 1
    assert abort_run(summary.run, context) == 1
    report = redrive(summary, context, lambda run: SerialPool(run, context))
    assert report.verdict is Verdict.COMPLETED
    assert report.extracted == summary.selected
    assert not stores.bucket("out").pending


def test_a_second_run_drops_what_the_first_left(stores: MemoryStores, context: Context) -> None:
    """A run that begins anew forgets the records of the earlier one, but not its uploads."""
    summary = plan(context)
    step = Step(summary.run, "stream-1", context, context.calls())
    begin_upload(step, "stream-1", "archive/x", FACTS)
    assert work(summary, context).verdict is Verdict.COMPLETED
    assert not stores.bucket("out").pending


def test_a_change_met_by_a_scan_ends_the_run(stores: MemoryStores, context: Context) -> None:
    """The verdict is SOURCE_CHANGED whichever kind of task meets the change first."""
    summary = plan(context)
    put_archive(stores, make_archive(small=30, seed=2))
    report = work(summary, context)
    assert (report.verdict, report.reason) == (Verdict.SOURCE_CHANGED, "source-changed")
    assert not [key for key in stores.bucket("out").objects if key.startswith("archive/")]
    assert settle(summary.run, context).report.verdict is Verdict.SOURCE_CHANGED


def test_a_change_that_is_undone_before_a_redrive(stores: MemoryStores, context: Context) -> None:
    """An execution that goes on after the link step needs no scan: the member is streamed."""
    summary = plan(context)
    records = RunRecords.open(stores, summary.run.id)
    put_archive(stores, make_archive(small=30, seed=2))
    scan = next(records.scans())
    assert not run_scan(summary.run, scan, context).found
    assert link_members(summary.run, context).streamed == 1
    put_archive(stores, make_archive(small=30))
    records.delete_stop()  # the report of the failed execution does so
    for task in records.tasks():
        run_task(summary.run, task, context)
    assert settle(summary.run, context).left == 1
    (stream,) = records.redo()
    assert stream.kind is TaskKind.STREAM
    run_task(summary.run, stream, context)
    report = settle(summary.run, context).report
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, summary.selected)


class RefusingBucket(MemoryBucket):
    """A bucket that takes nothing, and says so in a way that is nobody's right."""

    asked = 0

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Refuse."""
        self.asked += 1
        raise StorageError(f"{key}: InvalidRequest: Content-MD5 is required")


def test_a_store_that_refuses_everything_ends_the_run() -> None:
    """Twenty refusals and not one success are the store's, not the members'."""
    refusing = RefusingBucket()
    stores = MemoryStores(out=refusing)
    put_archive(stores, make_archive(small=2_000, large=False, size=40))
    context = Context(stores, ManualClock())
    summary = plan(context)
    report = work(summary, context)
    assert (report.verdict, report.reason, report.failed) == (Verdict.FAILED, "storage", 0)
    assert "Content-MD5" in (report.message or "")
    assert refusing.asked < 100


def test_an_attempt_that_resumes_counts_what_the_earlier_cost(
    stores: MemoryStores, context: Context
) -> None:
    """Requests, bytes and seconds of a task are those of all its attempts on record."""
    summary = plan(context)
    log = stores.run_store(summary.run.id)
    task = next(
        task
        for task in (decode(line, Task) for line in log.read("plan.jsonl").splitlines())
        if task.kind is TaskKind.BATCH
    )
    short = Context(stores, ManualClock(remaining=0.0), tuning=TUNING)
    with pytest.raises(DeadlineError):
        run_task(summary.run, task, short)
    first = RunRecords(log).find_outcomes(task.id)
    assert first is not None
    assert not first.complete
    done = run_task(summary.run, task, context)
    alone = run_task(summary.run, structs.replace(task, id="batch-alone"), context)
    assert done.requests.get == first.report.requests.get + alone.requests.get
    assert done.bytes_read == first.report.bytes_read + alone.bytes_read
    assert done.unfinished == 0


class BusyClock(ManualClock):
    """Has time until the bucket got so many more objects."""

    def __init__(self, bucket: MemoryBucket, more: int) -> None:
        super().__init__()
        self._bucket = bucket
        self._full = len(bucket.objects) + more

    def remaining(self) -> float:
        """Return the seconds left."""
        return 0.0 if len(self._bucket.objects) >= self._full else float("inf")


def first_batch(context: Context) -> tuple[Run, Task]:
    """Plan the archive; return its run and the first batch."""
    summary = plan(context)
    records = RunRecords.open(context.stores, summary.run.id)
    return summary.run, next(task for task in records.tasks() if task.kind is TaskKind.BATCH)


def test_a_task_that_makes_progress_never_fails_for_want_of_time(context: Context) -> None:
    """On AWS a round follows each attempt, so a slow store costs rounds and no failure."""
    run, task = first_batch(context)
    tuning = structs.replace(TUNING, puts_in_flight=1, bytes_in_flight=1)
    bucket, left = context.stores.destination(run.destination), [task.members]
    assert isinstance(bucket, MemoryBucket)
    while left[-1]:
        short = structs.replace(context, clock=BusyClock(bucket, 2), tuning=tuning)
        report = run_task(run, task, short, in_rounds=True)
        assert report.late == 0
        left.append(report.unfinished)
    assert len(left) > 4
    assert left == sorted(set(left), reverse=True)


def test_a_task_without_progress_fails_after_four_rounds(context: Context) -> None:
    """It needs more time than a worker has; a redrive gives it one more attempt each time."""
    run, task = first_batch(context)
    short = structs.replace(context, clock=ManualClock(remaining=0.0))
    late = [run_task(run, task, short, in_rounds=True).late for _ in range(3)]
    assert late == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(DeadlineError, match=f"{task.id}: 30 s before the worker's time limit"):
            run_task(run, task, short, in_rounds=True)
    report = run_task(run, task, context, in_rounds=True)
    assert (report.unfinished, report.late) == (0, 0)
