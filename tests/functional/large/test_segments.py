"""Segments: one member over ten workers; and the share that a run is done to, for every kind."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from s3unzip import deflate, errors, settings
from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options, Part, Report, Status, TaskKind
from s3unzip.runs import step as attempt
from s3unzip.runs.run_list import read_snapshot
from s3unzip.settling.loop import begin_run, settle
from s3unzip.stores import ports, run_store
from tests.functional.large.test_copy import FailingCopies
from tests.functional.test_run import Refusing
from tests.support import zips
from tests.support.memory import (
    KEY,
    TINY,
    WHOLE,
    ManualClock,
    MemoryBucket,
    MemoryStores,
    Told,
    World,
    check_fields,
)
from tests.support.streams import EMPTY_BLOCKS, ENCODERS, END_OF_STREAM, flushed

SEGMENTS = 10
LOG = zips.log_lines(700_000)


def ten_segments(data: bytes) -> settings.Tuning:
    """Return settings with which `data` is cut into ten segments."""
    return replace(TINY, split_from=len(data), segment_bytes=-(-len(data) // SEGMENTS))


def _run_split(content: bytes, data: bytes) -> tuple[World, Report]:
    world = World(ten_segments(data))
    report = world.run(zips.build(zips.Entry("big", content, zips.DEFLATE, data=data)))
    assert len(world.tasks(report, TaskKind.SCAN)) == SEGMENTS
    return world, report


@pytest.mark.parametrize(
    ("content", "encoder"),
    [
        (bytes(20_000_000), "zlib-9"),
        (random.Random(1).randbytes(400_000), "zlib-6"),
        (LOG[:200_000] + random.Random(1).randbytes(400_000), "zlib-6"),
        (random.Random(1).randbytes(400_000) + LOG[:200_000], "zlib-6"),
        (LOG[:300_000], "zlib-9-small-blocks"),
        (LOG[:300_000], "zlib-huffman-only"),
    ],
    ids=["1000-to-1", "noise", "noise-after-text", "text-after-noise", "tiny-blocks", "huffman"],
)
def test_streams_that_resist_are_extracted_all_the_same(content: bytes, encoder: str) -> None:
    """Where segments cannot be found the member is streamed: right bytes, no upload left."""
    world, report = _run_split(content, ENCODERS[encoder](content))
    world.assert_clean(report, big=content)


# Stretches of a member: its content, or nothing, in as many compressed bytes.
EMPTY_STRETCHES = {
    "last": (1, 0),
    "first": (0, 1),
    "middle": (1, 0, 1),
    "all-but-the-first": (1, 0, 0, 0),
    "every": (0, 0),
}


@pytest.mark.parametrize("stretches", EMPTY_STRETCHES.values(), ids=EMPTY_STRETCHES)
def test_segments_without_bytes_are_valid(stretches: tuple[int, ...]) -> None:
    """A segment may inflate to nothing, wherever it is: the slices still make the member."""
    text = LOG[:300_000]
    data = b"".join(flushed(text) if has_bytes else EMPTY_BLOCKS * 1_000 for has_bytes in stretches)
    content = text * sum(stretches)
    world, report = _run_split(content, data + END_OF_STREAM)
    world.assert_clean(report, big=content)
    assert not world.tasks(report, TaskKind.STREAM)
    assert all(task.size for task in world.tasks(report, TaskKind.SLICE)) or not content


@pytest.mark.parametrize("encoder", ["zlib-0-stored", "zlib-fixed"])
def test_one_segment_of_everything_is_not_scanned(encoder: str) -> None:
    """A member without boundaries is streamed directly, not inflated twice before."""
    world, report = _run_split(LOG[:400_000], ENCODERS[encoder](LOG[:400_000]))
    world.assert_clean(report, big=LOG[:400_000])
    assert len(world.tasks(report, TaskKind.STREAM)) == 1
    assert not world.tasks(report, TaskKind.SLICE)


@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_a_flipped_bit_in_any_segment_fails_the_member_by_name(segment: int) -> None:
    """Damage in any segment fails the member; no object, and no incomplete upload."""
    data = bytearray(zips.compress(zips.DEFLATE, LOG))
    data[len(data) * segment // SEGMENTS + 5_000] ^= 0x20
    world, report = _run_split(LOG, bytes(data))
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    assert [failure.key for failure in report.failures] == [KEY + "big"]
    assert report.reasons.keys() <= {
        "corrupt-stream",
        "crc-mismatch",
        "size-overrun",
        "size-mismatch",
        "stream-truncated",
        "compressed-trailing-bytes",
    }
    world.assert_absent("big")


@pytest.mark.parametrize(
    ("declared", "reason"),
    [({"size": 700_001}, "size-mismatch"), ({"size": 699_000}, "size-overrun")],
)
def test_a_wrong_declared_size_fails_the_member(declared: dict[str, int], reason: str) -> None:
    """Segments that make another size than the directory declares are never completed."""
    entry = zips.Entry("big", LOG, zips.DEFLATE, local=declared, central=declared)
    world = World(ten_segments(entry.stored_data))
    assert world.run(zips.build(entry)).reasons == {reason: 1}
    world.assert_absent("big")


def run_spoiled(spoil: Callable[[run_store.RunStore, list[str]], None]) -> tuple[World, Report]:
    """Extract a member; what its scans found is spoiled, by their names, before it is linked."""
    entry = zips.Entry("big", LOG, zips.DEFLATE)
    world = World(ten_segments(entry.stored_data))
    step = begin_run(world.request(zips.build(entry)), world.context)
    work = world.buckets.run_store(step.next.run)
    for task in step.next.tasks:
        run_task(world.records(step.next.run).read_plan().run, task, world.context)
    spoil(work, [name for name in work.names("split/") if name.endswith("-scanned.bin")])
    report = world.finish(settle(step.next, world.context))
    world.assert_clean(report, big=LOG)
    assert len(world.tasks(report, TaskKind.STREAM)) == 1
    return world, report


@pytest.mark.parametrize("place", [0, 4, -1])
def test_a_lost_scan_makes_a_stream_of_the_member(place: int) -> None:
    """Where a scan's result is lost, the first, one between or the last, the member is streamed."""
    run_spoiled(lambda work, names: work.delete([names[place]]))


def test_a_false_boundary_makes_a_stream_of_the_member() -> None:
    """Scans that agree on a place where no block begins cost time, never data."""

    def spoil(work: run_store.RunStore, names: list[str]) -> None:
        scans = [deflate.ScannedSegment.from_bytes(work.read(name)) for name in names]
        bit = scans[4].start_bit + 1
        work.write(names[3], [replace(scans[3], stop_bit=bit).to_bytes()])
        work.write(names[4], [replace(scans[4], start_bit=bit).to_bytes()])

    world, report = run_spoiled(spoil)
    assert world.tasks(report, TaskKind.SLICE)  # the link believed it; extracting found out
    # The slices that failed are no failed member, neither in the records nor for `watch`.
    records = world.records(report.run)
    assert [outcome.status for _, outcome in records.final_outcomes()] == [Status.EXTRACTED]
    snapshot = read_snapshot(records)
    assert (snapshot.counts["failed"], snapshot.failures) == (0, ())


def test_two_split_members_and_small_ones_make_one_run() -> None:
    """Members of every kind share a run; where they are unchanged, nothing is written again."""
    world = World(replace(TINY, segment_bytes=16 << 10))
    contents = {"logs": LOG, "files": zips.mixed_files(900_000)}
    small = {f"small-{n}": b"%d" % n for n in range(20)}
    archive = zips.build(
        *(zips.Entry(name, content, zips.DEFLATE) for name, content in contents.items()),
        *(zips.Entry(name, content) for name, content in small.items()),
        zips.Entry("stored", random.Random(9).randbytes(20_000)),
    )
    report = world.run(archive)
    world.assert_clean(report, **contents, **small)
    assert set(world.records(report.run).read_plan().kinds) == {"batch", "scan", "copy"}
    assert sum(task.size for task in world.tasks(report, TaskKind.SLICE)) == 700_000 + 900_000
    for rule in (OnConflict.SKIP_UNCHANGED, OnConflict.NEVER):
        report = world.run(archive, Options(on_conflict=rule), verdict="COMPLETED", unchanged=23)
        assert (report.requests.part, world.out.pending) == (0, {})


SHORT_LOG = zips.log_lines(200_000)
STORED = random.Random(5).randbytes(60_000)
SMALL = [
    *(zips.Entry(f"s/{n}", b"%d" % n * 200, zips.DEFLATE) for n in range(30)),
    zips.Entry("empty", b""),
]
STREAMED = zips.Entry("m", SHORT_LOG, zips.DEFLATE)
SPLIT = zips.Entry("m", SHORT_LOG * 4, zips.DEFLATE)
SLICED = replace(WHOLE, copy_task_bytes=25_000)


@pytest.fixture(autouse=True)
def _every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell every change, not only a few a second."""
    monkeypatch.setattr(attempt, "PROGRESS_SECONDS", 0.0)


@dataclass(eq=False)
class Share(Told):
    """Keeps what a run tells, and how much of the work was done each time."""

    shares: list[int] = field(default_factory=list)

    def finished(self, counts: Mapping[str, int]) -> None:
        super().finished(counts)
        self.shares.append(self.counts["bytes_done"])

    @property
    def members(self) -> tuple[int, int, int]:
        """Members extracted, unchanged and failed, those left out that settling ended."""
        counts = self.counts
        assert counts["failed"] == len(self.failures)
        return counts["extracted"], counts["unchanged"], counts["failed"]


class Shown:
    """A machine that extracts, and what its runs tell."""

    def __init__(self, tuning: settings.Tuning = TINY, out: MemoryBucket | None = None) -> None:
        self.told = Share()
        self.world = World(tuning, MemoryStores(out=out or MemoryBucket()), progress=self.told)

    def run(
        self, *members: zips.Entry, options: Options | None = None, **expected: object
    ) -> Report:
        return check_fields(
            self.world.machine.run(self.world.request(zips.build(*members), options)), expected
        )

    def resume(self, report: Report, *, failed: bool = False) -> Report:
        """Do what a run left; what is told begins anew."""
        self.told = self.world.progress = Share()
        return self.world.machine.resume(report.run, failed=failed)

    def work(self, report: Report) -> int:
        return self.world.records(report.run).read_plan().work

    def watched(self, report: Report) -> Counter[str]:
        return read_snapshot(self.world.records(report.run)).counts

    def assert_done(self, report: Report) -> None:
        """Assert that all work is done, each byte once, also for `watch`."""
        work = self.work(report)
        assert self.told.counts["bytes_done"] == self.watched(report)["bytes_done"] == work
        assert min(self.told.shares) >= 0
        assert max(self.told.shares) <= work


@pytest.mark.parametrize(
    ("members", "tuning", "kinds"),
    [
        (SMALL, TINY, {"batch": 31}),
        ([STREAMED], WHOLE, {"stream": 1}),
        ([zips.Entry("m", STORED)], WHOLE, {"copy": 1}),
        ([zips.Entry("m", STORED)], SLICED, {"copy": 1}),
        ([SPLIT, *SMALL], ten_segments(SPLIT.stored_data), {"scan": 1, "batch": 31}),
    ],
    ids=["small", "stream", "copy", "slices", "split"],
)
def test_progress_ends_at_all_work(
    members: list[zips.Entry], tuning: settings.Tuning, kinds: dict[str, int]
) -> None:
    """Every kind of member counts what it is, on one machine and for `watch`."""
    shown = Shown(tuning)
    report = shown.run(*members)
    assert shown.world.records(report.run).read_plan().kinds == kinds
    shown.assert_done(report)


@pytest.mark.parametrize("rule", [OnConflict.SKIP_UNCHANGED, OnConflict.NEVER])
def test_unchanged_members_count_as_done(rule: OnConflict) -> None:
    """A second run of the same archive reads nothing of it, and is done to the end all the same."""
    shown = Shown(WHOLE)
    shown.run(*SMALL, STREAMED)
    shown.told.counts.clear()
    report = shown.run(*SMALL, STREAMED, options=Options(on_conflict=rule))
    assert shown.watched(report)["unchanged"] == len(SMALL) + 1
    assert shown.told.members == (0, len(SMALL) + 1, 0)
    assert report.requests.create == 0
    shown.assert_done(report)


@pytest.mark.parametrize("tuning", [WHOLE, SLICED])
def test_a_copy_that_is_refused_in_the_middle_begins_again(tuning: settings.Tuning) -> None:
    """What the copy did does not count twice when the member is streamed, nor as failed."""
    shown = Shown(tuning, FailingCopies(None, None, last=errors.StorageError("refused")))
    report = shown.run(zips.Entry("m", STORED))
    shown.world.assert_clean(report, m=STORED)
    assert shown.told.members == (1, 0, 0)
    shown.assert_done(report)


def test_a_damaged_split_member_is_told_once() -> None:
    """Its slices fail, the stream of the whole fails: one failed member, all work done once."""
    data = bytearray(SPLIT.stored_data)
    data[len(data) // 2] ^= 0x20
    shown = Shown(ten_segments(bytes(data)))
    damaged = zips.Entry("m", SHORT_LOG * 4, zips.DEFLATE, data=bytes(data))
    shown.assert_done(shown.run(damaged, verdict="COMPLETED_WITH_ERRORS"))
    assert shown.told.members == (0, 0, 1)


@dataclass(eq=False)
class Down(MemoryBucket):
    """Takes a few bodies, then none until the clock has passed a time."""

    takes: int
    seconds: float
    clock: ManualClock = field(default_factory=ManualClock)

    def put(
        self, key: str, body: ports.Buffer, facts: ports.ObjectFacts, *, if_absent: bool
    ) -> str:
        self._take()
        return super().put(key, body, facts, if_absent=if_absent)

    def upload_part(
        self, upload: ports.Upload, number: int, offset: int, body: ports.Buffer, crc32: int
    ) -> Part:
        self._take()
        return super().upload_part(upload, number, offset, body, crc32)

    def _take(self) -> None:
        self.takes -= 1
        if self.takes < 0 and self.clock.slept < self.seconds:
            raise errors.ThrottledError("503")


def test_a_store_that_recovers_counts_nothing_twice() -> None:
    """Within the budget for faults the tasks go on where they stopped."""
    out = Down(20, 0.5 * WHOLE.retry_seconds)
    shown = Shown(replace(WHOLE, batch_members=10), out)
    shown.world.clock = out.clock
    report = shown.run(*SMALL, STREAMED, verdict="COMPLETED")
    assert shown.told.members == (len(SMALL) + 1, 0, 0)
    shown.assert_done(report)


@pytest.mark.parametrize(
    ("members", "tuning"),
    [
        ([*SMALL, STREAMED], replace(WHOLE, batch_members=10)),
        ([SPLIT], ten_segments(SPLIT.stored_data)),
    ],
    ids=["small", "split"],
)
def test_a_resumed_run_begins_where_it_stopped(
    members: list[zips.Entry], tuning: settings.Tuning
) -> None:
    """Its share is that of the whole run: what is on record is done, slices of a member, too."""
    out = Down(25, 1e12)
    shown = Shown(tuning, out)
    shown.world.clock = out.clock
    failed = shown.run(*members, verdict="FAILED")
    before = shown.told.counts["bytes_done"]
    assert 0 < before < shown.work(failed)
    assert shown.told.counts["extracted"] == failed.extracted
    out.seconds = 0.0
    report = shown.resume(failed)
    shown.world.assert_clean(report, m=members[-1].content)
    first = shown.told.shares[0]
    assert 0 < first <= before  # parts of an attempt that failed are not on record
    if members != [SPLIT]:
        assert first == before
        assert shown.told.members == (len(members), 0, 0)
    shown.assert_done(report)


def test_members_that_are_tried_again_count_once() -> None:
    """The share of a resumed run begins with what is done, and `watch` counts each member once."""
    out = Refusing()
    shown = Shown(WHOLE, out)
    first = shown.run(*SMALL, *(zips.Entry(f"bad-{n}", b"b") for n in range(3)))
    assert (first.failed, shown.watched(first)["failed"]) == (3, 3)
    out.error = None
    puts = out.puts
    report = shown.resume(first, failed=True)
    assert (report.verdict, out.puts) == ("COMPLETED", puts + 3)
    assert shown.told.members == (len(SMALL) + 3, 0, 0)
    shown.assert_done(report)
    assert shown.watched(report)["failed"] == 0
