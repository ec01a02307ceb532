"""The loop of a run: its rounds, what ends it, and who may write its report."""

from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

from s3unzip.errors import (
    ConflictError,
    ServiceFaultError,
    SourceChangedError,
    UsageError,
)
from s3unzip.extraction.task import run_task
from s3unzip.model import (
    Location,
    Next,
    Outcome,
    Report,
    Run,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.planning.reading import read_tail
from s3unzip.run_ids import run_id
from s3unzip.runs.records import PAGE, REPORT, RunRecords
from s3unzip.runs.run_list import read_snapshot
from s3unzip.settling.loop import (
    KnownArchive,
    begin_run,
    settle,
    settle_failed,
)
from s3unzip.settling.page import render_page
from s3unzip.settling.report import amend_report, write_report
from s3unzip.stores.ports import Tail
from s3unzip.stores.run_store import MemoryRunStore
from tests.support.memory import TINY, MemoryBucket, World
from tests.support.reports import REPORT as SAMPLE
from tests.support.zips import DEFLATE, Entry, build, log_lines, with_wrong_crc

SMALL = [Entry(f"d/{number}", b"%d" % number) for number in range(20)]
WRONG = with_wrong_crc("wrong", b"x")
ARCHIVE = build(*SMALL)


def _begin(world: World, archive: bytes) -> tuple[Run, Next]:
    state = begin_run(world.request(archive), world.context).next
    return world.records(state.run).read_plan().run, state


def _do(world: World, run: Run, tasks: Iterable[Task]) -> None:
    for task in tasks:
        run_task(run, task, world.context)


def test_few_tasks_travel_with_the_state_and_many_as_a_list(world: World) -> None:
    """An inline Map is given its tasks; a Distributed one reads them."""
    world.tune(batch_members=1)
    _, few = _begin(world, ARCHIVE)
    assert (few.next, len(few.tasks)) == ("few", 20)
    world.buckets.forget_runs()
    world.tune(max_few_tasks=19)
    _, many = _begin(world, ARCHIVE)
    assert (many.next, many.tasks) == ("many", ())
    assert len(list(world.records(many.run).read_round(0))) == 20
    assert world.finish(settle(many, world.context)).verdict is Verdict.COMPLETED


class Overtaken(MemoryBucket):
    """A bucket whose first GET lets another attempt do all before it."""

    overtake: Callable[[], object] | None = None

    def tail(self, location: Location, length: int) -> Tail:
        other, self.overtake = self.overtake, None
        if other is not None:
            other()
        return super().tail(location, length)


def test_a_late_plan_replaces_no_report(world: World) -> None:
    """The archive was extracted and deleted while an attempt at the plan was slow."""
    world.buckets.buckets["ingest"] = bucket = Overtaken()
    request = world.request(ARCHIVE)
    source = world.buckets.source(request.source)
    tail = read_tail(source, request.source, world.context, world.context.calls())
    name = run_id(request, tail.pin, tail.modified)
    known = KnownArchive(name, tail.pin)

    def extract_and_delete() -> None:
        assert world.finish(begin_run(request, world.context, known)).verdict is Verdict.COMPLETED
        bucket.objects.clear()

    bucket.overtake = extract_and_delete
    late = world.finish(begin_run(request, world.context, known))
    assert (late.verdict, world.records(late.run).find_report()) == (Verdict.COMPLETED, late)


def _report_failure(world: World, run: str, began: float, ended: float) -> Report:
    settled = settle_failed(
        run,
        Stop(Verdict.FAILED, "execution-failed", f"aborted at {ended:.0f}"),
        world.context,
        began=began,
        ended=ended,
    )
    assert settled is not None
    report, _ = settled
    assert report == world.records(run).find_report()
    return report


def test_the_report_of_a_failed_execution_replaces_no_better_and_no_newer_one(world: World) -> None:
    """Each execution that fails is reported, in whatever order its event comes; COMPLETED stays."""
    world.tune(batch_members=10)
    run, state = _begin(world, ARCHIVE)
    first = _report_failure(world, run.id, 10, 20)
    assert (first.verdict, first.reason, first.missing, first.message, first.finished) == (
        *("FAILED", "execution-failed", 20),
        *("aborted at 20", 20),
    )
    _do(world, run, state.tasks[:1])
    second = _report_failure(world, run.id, 30, 40)
    assert (second.message, second.missing) == ("aborted at 40", 10)
    assert _report_failure(world, run.id, 10, 20) == second
    ended = world.resume(run.id, verdict="COMPLETED")
    assert _report_failure(world, run.id, 50, ended.finished + 60) == ended


def test_a_member_that_settling_ends_is_progress_of_its_round_alone() -> None:
    """The round after it, in which nothing is done, is an idle one."""
    world = World(replace(TINY, copy_task_bytes=25_000))
    run, state = _begin(world, build(Entry("m", bytes(60_000)), Entry("n", b"1")))
    _do(world, run, (task for task in state.tasks if task.kind is TaskKind.COPY))
    state = settle(state, world.context).next
    assert (state.idle, len(state.tasks), world.content("m")) == (0, 1, bytes(60_000))
    assert settle(state, world.context).next.idle == 1


def test_a_member_of_a_task_that_does_not_end_is_progress(world: World) -> None:
    """The round that wrote it is not idle, although none of its tasks has ended."""
    run, state = _begin(world, ARCHIVE)
    state = settle(state, world.context).next
    task = state.tasks[0]
    half = TaskReport(task.id, task.kind, task.members, extracted=1, unfinished=task.members - 1)
    world.records(run.id).write_outcomes(half, [Outcome(0, "archive/d/0", Status.EXTRACTED)])
    state = settle(state, world.context).next
    assert (state.idle, settle(state, world.context).next.idle) == (0, 1)


def test_a_link_that_is_lost_is_made_again() -> None:
    """A settling that is killed after it began the upload begins another; none is left."""
    world = World(TINY)
    content = log_lines(400_000)
    run, state = _begin(world, build(Entry("m", content, DEFLATE)))
    _do(world, run, state.tasks)
    settle(state, world.context)
    world.records(run.id).store.delete(["rounds/01.jsonl"])
    world.assert_clean(world.finish(settle(state, world.context)), m=content)


@pytest.mark.parametrize("overwritten", ["no-record", "rounds/00.jsonl"])
def test_a_member_that_two_settlings_end_counts_once(overwritten: str) -> None:
    """The late one finds another object in its place, and streams the member once more.

    The member also counts once if the record of a round is damaged meanwhile.
    """
    world = World(TINY)
    run, state = _begin(world, build(Entry("m", log_lines(400_000), DEFLATE), Entry("n", b"1")))
    _do(world, run, (task for task in state.tasks if task.kind is TaskKind.SCAN))
    state = settle(state, world.context).next
    _do(world, run, (task for task in state.tasks if task.kind is TaskKind.SLICE))
    settle(state, world.context)
    records = world.records(run.id)
    (ended,) = (name for name in records.recorded_task_ids() if "member-" in name)
    record = records.store.read(f"outcomes/{ended}.jsonl")
    records.delete_outcomes(ended)
    world.out.objects["archive/m"].body = b"of a newer archive"
    late = settle(state, world.context)
    records.store.write(f"outcomes/{ended}.jsonl", [record])
    assert TaskKind.STREAM in {task.kind for task in late.next.tasks}
    report = world.finish(late, lambda _: records.store.write(overwritten, [b"?"]))
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 2)
    assert sorted(outcome.index for _, outcome in records.final_outcomes()) == [0, 1]
    assert read_snapshot(records).progress.extracted == 2


@pytest.mark.parametrize(
    ("key", "etag"), [("b/archive.zip", None), (None, '"another"')], ids=["key", "version"]
)
def test_records_of_another_archive_are_an_error(
    world: World, key: str | None, etag: str | None
) -> None:
    """Two archives may have one id: the records of one are never taken for the other's."""
    request = world.request(ARCHIVE)
    run = begin_run(request, world.context).next.run
    source = replace(request.source, key=key or request.source.key)
    pin = world.buckets.source(request.source).stat(request.source).pin
    known = KnownArchive(run, replace(pin, etag=etag or pin.etag))
    with pytest.raises(UsageError, match=f"its run would have the id {run}, but"):
        begin_run(replace(request, source=source), world.context, known)


def test_failed_members_are_done_again_only_from_their_archive(world: World) -> None:
    """If it is gone, their records stay."""
    report = world.run(build(*SMALL, WRONG), verdict="COMPLETED_WITH_ERRORS", failed=1)
    records = world.records(report.run)
    outcomes = list(records.final_outcomes())
    world.buckets.bucket("ingest").objects.clear()
    with pytest.raises(SourceChangedError):
        world.resume(report.run, failed=True)
    assert (records.find_report(), list(records.final_outcomes())) == (report, outcomes)


@pytest.mark.parametrize("record", ["members.jsonl", "rounds/00.jsonl"])
def test_failed_members_whose_records_are_damaged_are_planned_anew(
    world: World, record: str
) -> None:
    """Their resume ends FAILED for that reason, and the next one begins anew."""
    report = world.run(build(*SMALL, WRONG), verdict="COMPLETED_WITH_ERRORS", failed=1)
    world.buckets.records.objects[f"runs/{report.run}/{record}"].body = b"?"
    world.resume(report.run, failed=True, verdict="FAILED", reason="record-unreadable", missing=0)
    world.resume(report.run, verdict="COMPLETED_WITH_ERRORS", reason=None)


DONE, ERRORS, REJECTED, CHANGED, FAILED = Verdict
ORDER = {DONE: 3, ERRORS: 2, REJECTED: 1, CHANGED: 0, FAILED: 0}


def _report_of(verdict: Verdict, finished: float = 100.0) -> Report:
    return replace(SAMPLE, verdict=verdict, finished=finished)


def _write(
    records: RunRecords, report: Report, since: float = 0.0, *, reopened: bool = False
) -> Report:
    context = World().context
    written, _ = write_report(report, records, since, renderer=context, reopened=reopened)
    assert (records.find_report(), records.store.read(PAGE)) == (
        written,
        render_page(written, context),
    )
    return written


@pytest.mark.parametrize("since", [99.0, 101.0])
@pytest.mark.parametrize("earlier", Verdict)
@pytest.mark.parametrize("later", Verdict)
def test_a_better_verdict_stays_and_of_equal_ones_the_newer(
    earlier: Verdict, later: Verdict, since: float
) -> None:
    """A step that began before the report on record was written is late."""
    records = RunRecords(MemoryRunStore())
    reports = [_write(records, _report_of(earlier)), _report_of(later, 200.0)]
    is_newer = ORDER[later] == ORDER[earlier] and since > 100
    is_written = ORDER[later] > ORDER[earlier] or is_newer
    assert _write(records, reports[1], since) == reports[is_written]


@pytest.mark.parametrize(
    ("earlier", "since", "verdict"),
    [(ERRORS, 99.0, ERRORS), (ERRORS, 101.0, FAILED), (DONE, 99.0, DONE), (DONE, 101.0, DONE)],
)
def test_a_person_reopens_members_that_failed(
    earlier: Verdict, since: float, verdict: Verdict
) -> None:
    """Then a newer verdict takes the place of COMPLETED_WITH_ERRORS, and of no better one."""
    records = RunRecords(MemoryRunStore())
    _write(records, _report_of(earlier))
    assert _write(records, _report_of(FAILED, 200.0), since, reopened=True).verdict is verdict


class Interleaved(MemoryRunStore):
    """A store in which another writer comes between the look at a report and its writing."""

    def __init__(self, other: Callable[[MemoryRunStore], object], *, lost: bool = False) -> None:
        super().__init__()
        self.other = [other]
        self.lost = lost  # whether the write is done, but looks like a conflict

    def create(self, name: str, body: bytes) -> None:
        self._interleave(name)
        super().create(name, body)
        if name == REPORT and self.lost:
            raise ConflictError("the first answer was lost, and the second try finds the report")

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        self._interleave(name)
        super().replace(name, old, new)

    def _interleave(self, name: str) -> None:
        if name == REPORT and self.other:
            self.other.pop()(MemoryRunStore(self.objects))


@pytest.mark.parametrize("on_record", [None, FAILED])
def test_a_report_that_comes_in_between_counts(on_record: Verdict | None) -> None:
    """Whoever looks before and writes after a better verdict does not replace it, nor its page."""
    store = Interleaved(lambda other: _write(RunRecords(other), _report_of(DONE, 150.0)))
    if on_record is not None:
        _write(RunRecords(MemoryRunStore(store.objects)), _report_of(on_record))
    assert _write(RunRecords(store), _report_of(FAILED, 200.0), 120.0) == _report_of(DONE, 150.0)


def test_a_lost_answer_is_found_again() -> None:
    """The second try meets the report of the first one, and is the first to write."""
    assert write_report(
        _report_of(DONE), RunRecords(Interleaved(lambda _: None, lost=True)), 0.0
    ) == (_report_of(DONE), True)


def test_a_later_action_amends_the_newest_report() -> None:
    """A newer report is amended, not replaced by the one that the caller knew."""
    store = Interleaved(lambda other: _write(RunRecords(other), _report_of(DONE, 150.0), 120.0))
    records = RunRecords(store)
    known = _write(RunRecords(MemoryRunStore(store.objects)), _report_of(DONE))
    assert (
        amend_report(known, lambda report: replace(report, cost=1.0), records)
        == replace(_report_of(DONE, 150.0), cost=1.0)
        == records.find_report()
    )


def test_a_store_that_is_never_the_same_ends_the_step() -> None:
    """A server that refuses each write is a fault, not an endless loop."""

    class Restless(MemoryRunStore):
        def create(self, name: str, body: bytes) -> None:
            raise ConflictError(name)

    with pytest.raises(
        ServiceFaultError, match="other writers replaced its report before each of 20 writes"
    ):
        write_report(_report_of(DONE), RunRecords(Restless()), 0.0)


def test_of_members_that_the_plan_refused_those_before_a_damage_are_read(world: World) -> None:
    """There can be millions, so they are read one after the other."""
    report = world.run(build(Entry("../a"), Entry("../b")), verdict="COMPLETED_WITH_ERRORS")
    stored = world.buckets.records.objects[f"runs/{report.run}/outcomes/plan.jsonl"]
    stored.body = stored.body[:-9]
    assert [outcome.index for _, outcome in world.records(report.run).final_outcomes()] == [0]
