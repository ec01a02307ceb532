"""Whole runs over stores in memory, in this process: what functional tests start from."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from s3unzip.context import Context, Progress, UploadNotes
from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.local.machine import Machine
from s3unzip.model import (
    Location,
    NestedRun,
    Options,
    Outcome,
    PlanSummary,
    Report,
    Request,
    Task,
    TaskKind,
    Verdict,
)
from s3unzip.pricing import Platform
from s3unzip.runs.records import RunRecords
from s3unzip.settings import KIB, Tuning
from s3unzip.settling.loop import Settled, begin, resume, settle
from s3unzip.stores import Stores
from s3unzip.stores.clock import Clock
from s3unzip.zip import Policy
from tests.support.memory import ManualClock, MemoryBucket, MemoryStores, put_archive

OUT = Location("s3", "out", "")
KEY = "archive/"

# Sizes at which a few hundred KiB are a huge member.
TINY = Tuning(
    small_member=4 * KIB,
    copy_from=4 * KIB,
    split_from=32 * KIB,
    segment_bytes=32 * KIB,
    copy_task_bytes=1 << 40,
    copy_part_bytes=16 * KIB,
    part_bytes=16 * KIB,
    read_piece=8 * KIB,
)
WHOLE = replace(TINY, split_from=1 << 40)  # nothing is split


class Told(Progress):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[Outcome] = []
        self.phases: list[str] = []
        self.troubles: list[str] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        assert all(count > 0 for count in counts.values()), "progress never goes back"
        self.counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        self.failures += outcomes

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def trouble(self, message: str) -> None:
        self.troubles.append(message)


@dataclass(slots=True)
class World:
    """Buckets, and runs between them; `stores` may stand before the buckets."""

    tuning: Tuning = field(default_factory=Tuning)
    buckets: MemoryStores = field(default_factory=MemoryStores)
    clock: Clock = field(default_factory=ManualClock)
    stores: Stores | None = None
    progress: Progress | None = None
    platform: Platform | None = None
    policy: Policy = field(default_factory=Policy)
    uploads: UploadNotes | None = None
    faults: list[S3UnzipError] = field(default_factory=list)  # of tasks

    @property
    def out(self) -> MemoryBucket:
        return self.buckets.bucket("out")

    @property
    def context(self) -> Context:
        stores = self.stores or self.buckets
        return Context(
            stores,
            self.clock,
            self.policy,
            self.tuning,
            self.progress,
            self.platform,
            uploads=self.uploads,
        )

    def tune(self, **changes: float) -> None:
        self.tuning = replace(self.tuning, **changes)

    def request(self, archive: bytes, options: Options | None = None) -> Request:
        return Request(put_archive(self.buckets, archive), OUT, options or Options())

    def run(
        self, archive: bytes, options: Options | None = None, verdict: Verdict | None = None
    ) -> Report:
        """Extract an archive; assert the verdict, if one is given."""
        report = self.run_request(self.request(archive, options))
        assert verdict in {None, report.verdict}, report
        return report

    def run_request(self, request: Request) -> Report:
        plans: list[PlanSummary] = []
        self.buckets.forget_runs()
        step = begin(request, self.context, planned=lambda plan: plans.append(plan.summary))
        report = self.finish(step)
        # The plan is told of once, if the archive is not refused, and every entry counts once.
        assert len(plans) == (report.verdict is not Verdict.REJECTED)
        for plan in plans:
            assert plan.run.id == report.run
            parts = plan.selected + plan.failed + plan.directories + plan.excluded
            assert plan.members == parts == report.members
            outcomes = report.extracted + report.unchanged + report.failed + report.missing
            assert outcomes == plan.selected + plan.failed
        return report

    def resume(self, run: str, *, failed: bool = False) -> Report:
        return self.finish(resume(run, self.context, failed=failed))

    def finish(self, step: Settled, before: Callable[[Task], None] | None = None) -> Report:
        """Do rounds until the run ends; a task that fails is in the next round."""
        while step.report is None:
            records = self.records(step.next.run)
            run = records.read_plan().run
            for task in step.next.tasks or records.read_round(step.next.round):
                if before is not None:
                    before(task)
                try:
                    run_task(run, task, self.context)
                except S3UnzipError as fault:
                    self.faults.append(fault)
                    is_known = (
                        isinstance(fault, ServiceFaultError) or records.find_stop() is not None
                    )
                    if not is_known:
                        raise
            step = settle(step.next, self.context)
        return step.report

    def run_here(self, request: Request) -> Report:
        """Extract what a request asks for as this machine does, after-success action included."""
        return Machine(self.context).run(request)

    def resume_here(self, run: str, *, failed: bool = False) -> Report:
        return Machine(self.context).resume(run, failed=failed)

    def run_nested_here(self, report: Report) -> list[NestedRun]:
        return list(Machine(self.context).run_nested(report))

    def records(self, run: str) -> RunRecords:
        return RunRecords.open(self.stores or self.buckets, run)

    def tasks(self, report: Report, *kinds: TaskKind) -> list[Task]:
        tasks = self.records(report.run).tasks()
        return [task for task in tasks if not kinds or task.kind in kinds]

    def contents(self, prefix: str = KEY) -> dict[str, bytes]:
        return {key.removeprefix(prefix): stored.body for key, stored in self.out.objects.items()}

    def content(self, name: str) -> bytes | None:
        stored = self.out.objects.get(KEY + name)
        return None if stored is None else stored.body

    def assert_clean(self, report: Report, **contents: bytes) -> None:
        """Assert that the run completed with these members, and left no upload."""
        assert (report.verdict, report.tasks_failed) == ("COMPLETED", 0), report
        for name, content in contents.items():
            assert self.content(name) == content, name
        assert self.out.pending == {}

    def assert_absent(self, name: str) -> None:
        assert self.content(name) is None
        assert self.out.pending == {}
