"""The share that a run is done to: exact for every kind of member, and after every fault."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from s3unzip.errors import StorageError, ThrottledError
from s3unzip.model import OnConflict, Options, Part, Report
from s3unzip.runs import step as attempt
from s3unzip.runs.run_list import RunWatcher
from s3unzip.settings import Tuning
from s3unzip.stores.ports import Buffer, ObjectFacts, Upload
from tests.functional.large.test_copy import FailingCopies
from tests.functional.large.test_segments import ten_segments
from tests.support import zips
from tests.support.contents import log_lines
from tests.support.memory import ManualClock, MemoryBucket, MemoryStores
from tests.support.runs import TINY, WHOLE, Told, World

LOG = log_lines(200_000)
STORED = random.Random(5).randbytes(60_000)
SMALL = [zips.Entry(f"s/{n}", b"%d" % n * 200, zips.DEFLATE) for n in range(30)]
SMALL += [zips.Entry("empty", b"")]
STREAMED = zips.Entry("m", LOG, zips.DEFLATE)
SPLIT = zips.Entry("m", LOG * 4, zips.DEFLATE)
SLICED = replace(WHOLE, copy_task_bytes=25_000)


@pytest.fixture(autouse=True)
def _every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell every change, not only a few a second."""
    monkeypatch.setattr(attempt, "PROGRESS_SECONDS", 0.0)


class Share(Told):
    """Keeps what a run tells, and how much of the work was done each time."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[int] = []

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

    def __init__(self, tuning: Tuning = TINY, out: MemoryBucket | None = None) -> None:
        self.told = Share()
        self.world = World(tuning, MemoryStores(out=out or MemoryBucket()), progress=self.told)

    def run(self, *members: zips.Entry, options: Options | None = None) -> Report:
        return self.world.run_here(self.world.request(zips.build(*members), options))

    def resume(self, report: Report, *, failed: bool = False) -> Report:
        """Do what a run left; what is told begins anew."""
        self.told = self.world.progress = Share()
        return self.world.resume_here(report.run, failed=failed)

    def work(self, report: Report) -> int:
        return self.world.records(report.run).read_plan().work

    def watched(self, report: Report) -> Counter[str]:
        return RunWatcher(self.world.records(report.run)).read().counts

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
    members: list[zips.Entry], tuning: Tuning, kinds: dict[str, int]
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
def test_a_copy_that_is_refused_in_the_middle_begins_again(tuning: Tuning) -> None:
    """What the copy did does not count twice when the member is streamed, nor as failed."""
    shown = Shown(tuning, FailingCopies(None, None, last=StorageError("refused")))
    report = shown.run(zips.Entry("m", STORED))
    shown.world.assert_clean(report, m=STORED)
    assert shown.told.members == (1, 0, 0)
    shown.assert_done(report)


def test_a_damaged_split_member_is_told_once() -> None:
    """Its slices fail, the stream of the whole fails: one failed member, all work done once."""
    data = bytearray(SPLIT.stored_data)
    data[len(data) // 2] ^= 0x20
    shown = Shown(ten_segments(bytes(data)))
    report = shown.run(zips.Entry("m", LOG * 4, zips.DEFLATE, data=bytes(data)))
    assert report.verdict == "COMPLETED_WITH_ERRORS"
    shown.assert_done(report)
    assert shown.told.members == (0, 0, 1)


class Down(MemoryBucket):
    """Takes a few bodies, then none until the clock has passed a time."""

    def __init__(self, takes: int, seconds: float) -> None:
        super().__init__()
        self.takes = takes
        self.clock = ManualClock()
        self.until = self.clock.now() + seconds

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        self._take()
        return super().put(key, body, facts, if_absent=if_absent)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        self._take()
        return super().upload_part(upload, number, offset, body, crc32)

    def _take(self) -> None:
        self.takes -= 1
        if self.takes < 0 and self.clock.now() < self.until:
            raise ThrottledError("503")


def test_a_store_that_recovers_counts_nothing_twice() -> None:
    """Within the budget for faults the tasks go on where they stopped."""
    out = Down(20, 0.5 * WHOLE.retry_seconds)
    shown = Shown(replace(WHOLE, batch_members=10), out)
    shown.world.clock = out.clock
    report = shown.run(*SMALL, STREAMED)
    assert report.verdict == "COMPLETED"
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
def test_a_resumed_run_begins_where_it_stopped(members: list[zips.Entry], tuning: Tuning) -> None:
    """Its share is that of the whole run: what is on record is done, slices of a member, too."""
    out = Down(25, 1e12)
    shown = Shown(tuning, out)
    shown.world.clock = out.clock
    failed = shown.run(*members)
    assert failed.verdict == "FAILED"
    before = shown.told.counts["bytes_done"]
    assert 0 < before < shown.work(failed)
    assert shown.told.counts["extracted"] == failed.extracted
    out.until = 0.0
    report = shown.resume(failed)
    shown.world.assert_clean(report, m=members[-1].content)
    first = shown.told.shares[0]
    assert 0 < first <= before  # parts of an attempt that failed are not on record
    if members != [SPLIT]:
        assert first == before
        assert shown.told.members == (len(members), 0, 0)
    shown.assert_done(report)


class RefusesSevens(MemoryBucket):
    """Refuses keys that end with a 7, as long as it is told to."""

    refuses = True

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        if self.refuses and key.endswith("7"):
            raise StorageError("no 7s")
        return super().put(key, body, facts, if_absent=if_absent)


def test_members_that_are_tried_again_count_once() -> None:
    """The share of a resumed run begins with what is done, and `watch` counts each member once."""
    out = RefusesSevens()
    shown = Shown(WHOLE, out)
    first = shown.run(*SMALL)
    assert (first.failed, shown.watched(first)["failed"]) == (3, 3)
    out.refuses = False
    puts = out.puts
    report = shown.resume(first, failed=True)
    assert (report.verdict, out.puts) == ("COMPLETED", puts + 3)
    assert shown.told.members == (len(SMALL), 0, 0)
    shown.assert_done(report)
    assert shown.watched(report)["failed"] == 0
