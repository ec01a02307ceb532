"""A whole run over stores in memory, in this process: what functional tests start from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.local.runner import run_archive
from s3unzip.model import Location, Options, PlanSummary, Report, Request, Verdict
from s3unzip.settings import Tuning
from s3unzip.zip import Policy
from tests.memory import ManualClock, MemoryBucket, MemoryStores, put_archive
from tests.serial_pool import SerialPool

if TYPE_CHECKING:
    from s3unzip.model import Run
    from s3unzip.runs.written import WrittenObjects

DESTINATION = Location("s3", "out", "")


@dataclass(slots=True)
class Bench:
    """Stores, a clock and settings to run archives with."""

    stores: MemoryStores = field(default_factory=MemoryStores)
    clock: ManualClock = field(default_factory=ManualClock)
    tuning: Tuning = field(default_factory=Tuning)
    policy: Policy = field(default_factory=Policy)

    @property
    def context(self) -> Context:
        """The context of a worker."""
        return Context(stores=self.stores, clock=self.clock, policy=self.policy, tuning=self.tuning)

    @property
    def out(self) -> MemoryBucket:
        """The destination."""
        return self.stores.bucket("out")

    def tune(self, **changes: float) -> None:
        """Change settings."""
        self.tuning = replace(self.tuning, **changes)

    def request(self, archive: bytes, options: Options | None = None) -> Request:
        """Store the archive and return the request to extract it."""
        source = put_archive(self.stores, archive)
        return Request(source, DESTINATION, options or Options())

    def run(self, archive: bytes, options: Options | None = None) -> Report:
        """Extract an archive."""
        return self.repeat(self.request(archive, options))

    def repeat(self, request: Request, written: WrittenObjects | None = None) -> Report:
        """Extract what a request asks for."""
        context = self.context
        plans: list[PlanSummary] = []

        def make_pool(run: Run) -> SerialPool:
            return SerialPool(run, context)

        report = run_archive(request, context, make_pool, plans.append, written=written)
        # The plan is told of once, if the archive is not refused, and every entry counts once.
        assert len(plans) == (report.verdict is not Verdict.REJECTED)
        for plan in plans:
            assert plan.run.id == report.run
            parts = plan.selected + plan.failed + plan.directories + plan.excluded
            assert plan.members == parts == report.members
            outcomes = report.extracted + report.unchanged + report.failed + report.missing
            assert outcomes == plan.selected + plan.failed
        return report

    def contents(self, prefix: str = "archive/") -> dict[str, bytes]:
        """Return what is in the destination, by key below `prefix`."""
        return {key.removeprefix(prefix): stored.body for key, stored in self.out.objects.items()}
