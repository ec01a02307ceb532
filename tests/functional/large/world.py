"""Archives with one large member, extracted in this process over stores in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.local.runner import redrive, run_archive
from s3unzip.model import Location, Options, PlanSummary, Report, Request, decode
from s3unzip.runs.records import RunRecords
from s3unzip.settings import KIB, Tuning
from s3unzip.stores.factory import StoreConfig, open_stores
from tests.memory import ManualClock, MemoryBucket, MemoryStores, put_archive
from tests.serial_pool import SerialPool

if TYPE_CHECKING:
    from s3unzip.context import Progress
    from s3unzip.model import Run
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.ports import Clock, Stores
    from tests.zips import Entry

OUT = Location("s3", "out", "")
KEY = "archive/"

# Sizes at which a few hundred KiB are a huge member.
TUNING = Tuning(
    small_member=4 * KIB,
    copy_from=4 * KIB,
    split_from=32 * KIB,
    segment_bytes=32 * KIB,
    copy_task_bytes=1 << 40,
    copy_part_bytes=16 * KIB,
    part_bytes=16 * KIB,
    read_piece=8 * KIB,
)
WHOLE = replace(TUNING, split_from=1 << 40)  # nothing is split


@dataclass(slots=True)
class World:
    """Buckets, and runs between them; `stores` may stand before the buckets."""

    tuning: Tuning = TUNING
    buckets: MemoryStores = field(default_factory=MemoryStores)
    clock: Clock = field(default_factory=ManualClock)
    stores: Stores | None = None
    progress: Progress | None = None

    @property
    def out(self) -> MemoryBucket:
        """The destination."""
        return self.buckets.bucket("out")

    @property
    def context(self) -> Context:
        """The context of a worker."""
        return Context(
            self.stores or self.buckets, self.clock, tuning=self.tuning, progress=self.progress
        )

    def request(self, archive: bytes, options: Options | None = None) -> Request:
        """Store the archive and return the request to extract it."""
        return Request(put_archive(self.buckets, archive), OUT, options or Options())

    def run(self, archive: bytes, options: Options | None = None) -> Report:
        """Extract an archive."""
        return self.run_request(self.request(archive, options))

    def run_request(self, request: Request, written: WrittenObjects | None = None) -> Report:
        """Extract what a request asks for."""
        return run_archive(request, self.context, self.pool, lambda _: None, written=written)

    def redrive(self, run: str) -> Report:
        """Do what a run left."""
        summary = decode(self.buckets.run_store(run).read("summary.json"), PlanSummary)
        return redrive(summary, self.context, self.pool)

    def pool(self, run: Run) -> SerialPool:
        """Return a pool of this process."""
        return SerialPool(run, self.context)

    def content(self, name: str) -> bytes | None:
        """Return what became of a member, None if it is not there."""
        stored = self.out.objects.get(KEY + name)
        return None if stored is None else stored.body

    def summary(self, report: Report) -> PlanSummary:
        """Return the plan's summary of a run."""
        return RunRecords(self.buckets.run_store(report.run)).read_summary()

    def read_by_tasks(self, report: Report) -> int:
        """Return how many bytes of the archive the tasks read, plan and scans left out."""
        scans = RunRecords(self.buckets.run_store(report.run)).scan_reports()
        read = self.summary(report).bytes_read + sum(scan.bytes_read for scan in scans)
        return report.bytes_in - read

    def assert_clean(self, report: Report, **contents: bytes) -> None:
        """Assert that the run completed with these members, and left no upload."""
        assert report.verdict == "COMPLETED", report
        for name, content in contents.items():
            assert self.content(name) == content, name
        assert self.out.pending == {}

    def assert_clean_bucket(self, entry: Entry) -> None:
        """Assert that `entry` is there, whole, and no upload is left."""
        assert list(self.out.objects) == [KEY + str(entry.name)]
        assert self.content(str(entry.name)) == entry.content
        assert self.out.pending == {}


@dataclass(frozen=True, slots=True)
class ContextMaker:
    """Makes the context of a worker process; found there by this module's name."""

    config: StoreConfig

    def __call__(self, clock: Clock, progress: Progress | None = None) -> Context:
        """Return the context."""
        return Context(open_stores(self.config), clock, progress=progress)
