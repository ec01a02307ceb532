"""The share that a run is done to: exact for every kind of member, and after every fault."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from s3unzip.context import Progress
from s3unzip.errors import StorageError, ThrottledError
from s3unzip.local.machine import Machine
from s3unzip.model import OnConflict, Options, Outcome, Part, PlanSummary, Report
from s3unzip.runs import step as attempt
from s3unzip.runs.records import RunWatcher
from s3unzip.settings import Tuning
from s3unzip.stores.ports import Buffer, ObjectFacts, Upload
from tests import zips
from tests.functional.large.encoders import encode_zlib, log_lines
from tests.functional.large.test_copy import RefusingCopies
from tests.functional.large.test_segments import ten_segments
from tests.memory import ManualClock, MemoryBucket, MemoryStores
from tests.runs import TINY, WHOLE, World

LOG = log_lines(200_000)
STORED = random.Random(5).randbytes(60_000)
SMALL = [zips.Entry(f"s/{n}", b"%d" % n * 200, zips.DEFLATE) for n in range(30)]
SMALL += [zips.Entry("empty", b"")]


@pytest.fixture(autouse=True)
def _every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell every change, not only a few a second."""
    monkeypatch.setattr(attempt, "PROGRESS_SECONDS", 0.0)


class Told(Progress):
    """Keeps what a run tells, and that the work done never leaves its bounds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[Outcome] = []
        self.shares: list[int] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        """Add increments."""
        assert all(count > 0 for count in counts.values()), "progress never goes back"
        self.counts.update(counts)
        self.shares.append(self.counts["bytes_done"])

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Keep failures."""
        self.failures += outcomes

    def trouble(self, message: str) -> None:
        """Do nothing: no store fails here."""

    def assert_done(self, work: int) -> None:
        """Assert that all work is done, each byte once, and never more than all of it."""
        assert self.counts["bytes_done"] == work
        assert min(self.shares) >= 0
        assert max(self.shares) <= work

    @property
    def members(self) -> tuple[int, int, int]:
        """Members extracted, unchanged and failed."""
        counts = self.counts
        return counts["extracted"], counts["unchanged"], counts["failed"]


def shown_world(tuning: Tuning = TINY, out: MemoryBucket | None = None) -> tuple[World, Told]:
    """Return a world and what its runs tell."""
    told = Told()
    return World(tuning, MemoryStores(out=out or MemoryBucket()), progress=told), told


def extract(world: World, archive: bytes, options: Options | None = None) -> Report:
    """Extract an archive as this machine does."""
    context = world.context
    return Machine(context).run(world.request(archive, options))


def resume(world: World, report: Report, *, failed: bool = False) -> Report:
    """Do what a run left."""
    context = world.context
    return Machine(context).resume(report.run, failed=failed)


def plan_of(world: World, report: Report) -> PlanSummary:
    """Return the plan of a run."""
    return world.records(report.run).read_plan()


def watched(world: World, report: Report) -> Counter[str]:
    """Return the counts that `watch` has of a run from its records."""
    return RunWatcher(world.records(report.run)).read().counts


@pytest.mark.parametrize(
    ("members", "tuning", "kinds"),
    [
        (SMALL, TINY, {"batch": 31}),
        ([zips.Entry("m", LOG, zips.DEFLATE)], WHOLE, {"stream": 1}),
        ([zips.Entry("m", STORED)], WHOLE, {"copy": 1}),
        ([zips.Entry("m", STORED)], replace(WHOLE, copy_task_bytes=25_000), {"copy": 1}),
        ([zips.Entry("m", LOG * 4, zips.DEFLATE), *SMALL], None, {"scan": 1, "batch": 31}),
    ],
    ids=["small", "stream", "copy", "slices", "split"],
)
def test_the_share_ends_at_all_of_it(
    members: list[zips.Entry], tuning: Tuning | None, kinds: dict[str, int]
) -> None:
    """Every kind of member counts what it is, on one machine and for `watch`."""
    world, told = shown_world(tuning or ten_segments(members[0].stored_data))
    report = extract(world, zips.build(*members))
    summary = plan_of(world, report)
    assert (report.verdict, summary.kinds) == ("COMPLETED", kinds)
    told.assert_done(summary.work)
    assert watched(world, report)["bytes_done"] == summary.work


@pytest.mark.parametrize("rule", [OnConflict.SKIP_UNCHANGED, OnConflict.NEVER])
def test_what_is_kept_is_done(rule: OnConflict) -> None:
    """A second run of the same archive reads nothing of it, and is done to the end all the same."""
    world, told = shown_world(WHOLE)
    archive = zips.build(*SMALL, zips.Entry("m", LOG, zips.DEFLATE))
    work = plan_of(world, extract(world, archive)).work
    told.counts.clear()
    report = extract(world, archive, Options(on_conflict=rule))
    assert told.members == (0, len(SMALL) + 1, 0)
    assert watched(world, report)["unchanged"] == len(SMALL) + 1
    told.assert_done(work)


@pytest.mark.parametrize("sliced", [False, True])
def test_a_copy_that_is_refused_in_the_middle_begins_again(*, sliced: bool) -> None:
    """What the copy did does not count twice when the member is streamed, nor as failed."""
    tuning = replace(WHOLE, copy_task_bytes=25_000) if sliced else WHOLE
    world, told = shown_world(tuning, RefusingCopies(after=2))
    report = extract(world, zips.build(zips.Entry("m", STORED)))
    world.assert_clean(report, m=STORED)
    told.assert_done(plan_of(world, report).work)
    assert watched(world, report)["bytes_done"] == plan_of(world, report).work
    assert told.failures == []
    assert told.members == (1, 0, 0)


def test_a_damaged_split_member_is_told_once() -> None:
    """Its slices fail, the stream of the whole fails: one failed member, all work done once."""
    data = bytearray(encode_zlib(6)(LOG * 4))
    data[len(data) // 2] ^= 0x20
    world, told = shown_world(ten_segments(bytes(data)))
    report = extract(world, zips.build(zips.Entry("m", LOG * 4, zips.DEFLATE, data=bytes(data))))
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    work = plan_of(world, report).work
    told.assert_done(work)
    assert (told.members, len(told.failures)) == ((0, 0, 1), 1)
    assert watched(world, report)["bytes_done"] == work, "the bytes of its slices are dropped"


class Down(MemoryBucket):
    """Takes a few bodies, then none until the clock has passed a time."""

    def __init__(self, takes: int, clock: ManualClock, until: float) -> None:
        super().__init__()
        self.takes = takes
        self.until = until
        self._clock = clock

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write, or fail."""
        self._take()
        return super().put(key, body, facts, if_absent=if_absent)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Write, or fail."""
        self._take()
        return super().upload_part(upload, number, offset, body, crc32)

    def _take(self) -> None:
        self.takes -= 1
        if self.takes < 0 and self._clock.now() < self.until:
            raise ThrottledError("503")


MIXED = [*SMALL, zips.Entry("m", LOG, zips.DEFLATE)]


def down_world(until: float) -> tuple[World, Told, Down]:
    """Return a world whose destination takes 20 bodies, then fails for so many seconds."""
    clock = ManualClock()
    out = Down(20, clock, clock.now() + until)
    world, told = shown_world(replace(WHOLE, batch_members=10), out)
    world.clock = clock
    return world, told, out


def test_a_store_that_recovers_counts_nothing_twice() -> None:
    """Within the budget for faults the tasks go on where they stopped."""
    world, told, _ = down_world(0.5 * WHOLE.retry_seconds)
    report = extract(world, zips.build(*MIXED))
    assert report.verdict == "COMPLETED"
    told.assert_done(plan_of(world, report).work)
    assert told.members == (len(MIXED), 0, 0)


def test_a_redrive_begins_where_the_run_stopped() -> None:
    """The share of a redrive is that of the whole run: what is on record is done."""
    world, told, out = down_world(1e9)
    failed = extract(world, zips.build(*MIXED))
    assert failed.verdict == "FAILED"
    work, before = plan_of(world, failed).work, told.counts["bytes_done"]
    assert 0 < before < work
    assert told.members[0] == failed.extracted
    out.until = 0.0
    again = world.progress = Told()
    report = resume(world, failed)
    assert report.verdict == "COMPLETED"
    assert again.shares[0] == before
    again.assert_done(work)
    assert again.members == (len(MIXED), 0, 0)
    assert watched(world, report)["bytes_done"] == work


def test_a_redrive_of_a_split_member_knows_its_slices() -> None:
    """Slices that an earlier process did are done; the rest of the member is added."""
    clock = ManualClock()
    out = Down(25, clock, 1e12)
    world, told = shown_world(ten_segments(zips.Entry("m", LOG * 4, zips.DEFLATE).stored_data), out)
    world.clock = clock
    failed = extract(world, zips.build(zips.Entry("m", LOG * 4, zips.DEFLATE)))
    before = told.counts["bytes_done"]
    assert 0 < before < plan_of(world, failed).work
    out.until = 0.0
    again = world.progress = Told()
    report = resume(world, failed)
    world.assert_clean(report, m=LOG * 4)
    assert 0 < again.shares[0] <= before  # parts of an attempt that failed are not on record
    again.assert_done(plan_of(world, report).work)


class RefusesLogs(MemoryBucket):
    """Refuses keys that end with a 7, as long as it is told to."""

    refuses = True

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write, or refuse."""
        if self.refuses and key.endswith("7"):
            raise StorageError("no 7s")
        return super().put(key, body, facts, if_absent=if_absent)


def test_members_that_are_tried_again_count_once() -> None:
    """The share of a resumed run begins with what is done, and `watch` counts each member once."""
    out = RefusesLogs()
    world, _ = shown_world(WHOLE, out)
    first = extract(world, zips.build(*SMALL))
    assert (first.failed, watched(world, first)["failed"]) == (3, 3)
    out.refuses = False
    again = world.progress = Told()
    report = resume(world, first, failed=True)
    assert report.verdict == "COMPLETED"
    assert again.members == (len(SMALL), 0, 0)
    counts = watched(world, report)
    assert (counts["extracted"], counts["failed"]) == (len(SMALL), 0)
    assert counts["bytes_done"] == plan_of(world, report).work
