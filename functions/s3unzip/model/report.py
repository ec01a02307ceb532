"""The result of a run."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.model.request import Location, Options, Pin, SourceResult
from s3unzip.model.tasks import Requests, Verdict

NOT_AN_ARCHIVE = "no-eocd"  # the reason for a file that has the name of an archive but is none


class Failure(Struct, frozen=True, omit_defaults=True):
    """A member or a task that failed, as the report lists it."""

    key: str
    reason: str
    message: str = ""
    index: int | None = None
    offset: int | None = None
    task: str | None = None


class Report(Struct, frozen=True, omit_defaults=True):
    """``report.json``: written last, with every verdict; also between two rounds of a run."""

    run: str
    verdict: Verdict
    source: Location
    pin: Pin | None
    destination: Location
    options: Options
    reason: str | None = None  # of a verdict that is not about members
    message: str | None = None  # as printable text
    offset: int | None = None  # in the archive, where the message is about a place in it
    members: int = 0
    directories: int = 0
    excluded: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    missing: int = 0  # members without an outcome, because their task did not end
    reasons: dict[str, int] = {}
    warnings: dict[str, int] = {}
    failures: tuple[Failure, ...] = ()  # the first Tuning.failures_listed
    tasks: int = 0
    tasks_failed: int = 0
    bytes_in: int = 0  # read from the archive
    bytes_out: int = 0  # written to the destination
    requests: Requests = Requests()  # of all steps, this report's own among them
    settling: Requests = Requests()  # of these, what reports took: this one and earlier ones
    event_time: float | None = None
    started: float = 0.0
    finished: float = 0.0
    plan_seconds: float = 0.0
    task_seconds: float = 0.0  # sum over tasks
    first_object: float | None = None
    forecast_seconds: float | None = None
    forecast_cost: float | None = None  # dollars
    cost: float | None = None  # dollars, from the counted requests
    records: str | None = None  # of a direct run: the object below runs/ that has all its records
    after_success: SourceResult | None = None  # what became of the archive, where it was asked for
    continues: bool = False  # the run has not ended: a later round does the tasks that are left

    def counting(self, requests: Requests) -> Report:
        """Return the report with more requests, all of the step that writes it."""
        more = self.requests + requests, self.settling + requests
        return replace(self, requests=more[0], settling=more[1])


class NestedRun(Struct, frozen=True, omit_defaults=True):
    """The result of one nested archive: a line of ``nested.jsonl``."""

    key: str
    run: str | None = None  # None: it was not begun
    verdict: Verdict | None = None
    reason: str | None = None
    message: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether all its members are extracted, or there were none."""
        return self.verdict is Verdict.COMPLETED or self.reason == NOT_AN_ARCHIVE


class ArchiveEnd(Struct, frozen=True, omit_defaults=True):
    """How one of several archives ended."""

    source: str
    exit_code: int
    report: Report | None = None  # None: it was not planned
    error: str | None = None  # why
    nested: tuple[NestedRun, ...] = ()  # the archives inside it
    warnings: tuple[str, ...] = ()  # globs that no member fits


class Batch(Struct, frozen=True, omit_defaults=True):
    """How several archives ended, in the order in which they were named."""

    exit_code: int  # the highest one
    archives: tuple[ArchiveEnd, ...]


class Settled(Struct, frozen=True):
    """What settling a run gave: the report, and how many tasks ``redo.jsonl`` lists."""

    report: Report
    left: int
