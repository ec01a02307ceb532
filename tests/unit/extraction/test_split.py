"""Scan and link of split members: what stops them, how parts are numbered, what is read once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from s3unzip.deflate import Span
from s3unzip.errors import AccessDeniedError, RunStoppedError, SourceChangedError
from s3unzip.extraction.split.link import LinkReport, link_members
from s3unzip.extraction.split.scan import _Reader, run_scan
from s3unzip.model import OnConflict, Options, PlanSummary, Run, Verdict
from s3unzip.planning.plan_writer import make_plan
from s3unzip.runs.records import RunRecords
from s3unzip.runs.stop import stop_for
from s3unzip.settings import KIB
from s3unzip.settling.settle import settle
from tests import zips
from tests.functional.large.encoders import log_lines
from tests.functional.large.world import KEY, TUNING, World
from tests.memory import MemoryBucket, MemoryStores, put_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.extraction.member import MemberData

CONTENT = log_lines(700_000)
BIG = zips.Entry("big", CONTENT, zips.DEFLATE)


def planned(world: World) -> tuple[Run, RunRecords]:
    """Plan an archive of one member that is split; return its run and records."""
    summary = make_plan(world.request(zips.build(BIG)), world.context)
    assert isinstance(summary, PlanSummary)
    return summary.run, RunRecords(world.buckets.run_store(summary.run.id))


def test_nothing_is_uploaded_once_the_archive_has_changed() -> None:
    """Each split member has a link that says so: a redrive goes on after this step."""
    world = World()
    run, records = planned(world)
    records.write_stop(stop_for(SourceChangedError("another version")))
    assert link_members(run, world.context) == LinkReport(linked=0, streamed=1, settled=0)
    (link,) = records.links()
    assert link.upload_id is None
    assert world.out.pending == {}


def test_what_a_scan_met_stops_the_link() -> None:
    """A right that is missing is a fault of the execution, which fails."""
    world = World()
    run, records = planned(world)
    records.write_stop(stop_for(AccessDeniedError("no")))
    with pytest.raises(RunStoppedError):
        link_members(run, world.context)


def test_a_scan_of_a_changed_archive_finds_nothing() -> None:
    """The change is on record, so that no other step begins."""
    world = World()
    run, records = planned(world)
    scan = next(iter(records.scans()))
    put_archive(world.buckets, zips.build(zips.Entry("other", b"1")))
    assert not run_scan(run, scan, world.context).found
    stop = records.find_stop()
    assert stop is not None
    assert stop.verdict is Verdict.SOURCE_CHANGED


def test_a_scan_tells_its_seconds() -> None:
    """From its beginning to its end, as the forecast and the bill take them."""
    world = World()
    run, records = planned(world)
    report = run_scan(run, next(iter(records.scans())), world.context)
    assert report.found
    assert 0 <= report.seconds < report.started


def test_slices_leave_the_limit_of_parts_to_each_other() -> None:
    """Each slice rounds its count of parts up; together they stay within the store's limit."""
    bucket = MemoryBucket()
    bucket.part_limits = bucket.part_limits._replace(max_parts=44)
    tuning = replace(TUNING, segment_bytes=-(-len(BIG.stored_data) // 10))
    world = World(tuning, MemoryStores(out=bucket))
    report = world.run(zips.build(BIG))
    world.assert_clean(report, big=CONTENT)
    (link,) = RunRecords(world.buckets.run_store(report.run)).links()
    assert len(link.slices) > 1
    assert link.slices[-1].first_number + link.slices[-1].count - 1 <= 44


def test_slices_of_a_copy_number_their_parts_one_after_the_other() -> None:
    """Each has as many parts as its bytes need."""
    content = random.Random(3).randbytes(200_000)
    world = World(replace(TUNING, copy_task_bytes=48 * KIB))
    report = world.run(zips.build(zips.Entry("stored", content)))
    world.assert_clean(report, stored=content)
    (link,) = RunRecords(world.buckets.run_store(report.run)).links()
    numbers = [(piece.first_number, piece.count) for piece in link.slices]
    assert numbers == [(1, 3), (4, 3), (7, 3), (10, 3), (13, 3)]


def test_slices_make_the_member_without_a_stream() -> None:
    """Each member has its own end: one that is there already does not keep the next from it."""
    world, names = World(), ("one", "two")
    archive = zips.build(*(zips.Entry(name, CONTENT, zips.DEFLATE) for name in names))
    world.assert_clean(world.run(archive), one=CONTENT, two=CONTENT)
    del world.out.objects[f"{KEY}two"]
    report = world.run(archive, Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    world.assert_clean(report, one=CONTENT, two=CONTENT)
    assert (report.unchanged, report.extracted, report.requests.complete) == (1, 1, 1)
    tasks = RunRecords(world.buckets.run_store(report.run)).list_tasks()
    assert tasks
    assert {task.partition("-")[0] for task in tasks} == {"segment"}


def test_a_member_whose_end_is_not_on_record_is_known_by_its_object() -> None:
    """Its upload is gone, for an earlier settling completed it."""
    world = World()
    report = world.run(zips.build(BIG))
    records = RunRecords(world.buckets.run_store(report.run))
    (link,) = records.links()
    records.write_link(replace(link, outcome=None))
    settled = settle(records.read_run(), world.context)
    assert (settled.left, settled.report.verdict, settled.report.extracted) == (0, "COMPLETED", 1)


class Counted:
    """A member's data that counts the bytes that are taken of it."""

    def __init__(self) -> None:
        self.taken = 0

    def pieces(self, start: int = 0, stop: int = 0) -> Iterator[memoryview]:
        """Yield bytes [start, stop)."""
        self.taken += stop - start
        yield memoryview(bytes(range(start, stop)))


def test_what_was_searched_is_not_read_again() -> None:
    """The bytes of the first search are kept; the rest is read once it is needed."""
    data = Counted()
    reader = _Reader(cast("MemberData", data))
    for start, stop, taken in ((20, 30, 10), (20, 26, 10), (24, 34, 14), (0, 10, 24)):
        assert b"".join(reader.read(Span(start, stop))) == bytes(range(start, stop))
        assert data.taken == taken


def test_a_member_without_a_link_does_not_hide_the_next() -> None:
    """The link step may have ended between two members; each is judged by its own record."""
    world, names = World(), ("one", "two")
    report = world.run(zips.build(*(zips.Entry(name, CONTENT, zips.DEFLATE) for name in names)))
    assert report.extracted == len(names)
    store = world.buckets.run_store(report.run)
    store.delete(["links/00000000.json"])
    settled = settle(RunRecords(store).read_run(), world.context)
    assert (settled.report.extracted, settled.report.missing) == (1, 1)
