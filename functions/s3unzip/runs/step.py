"""One step of a run: a plan, a scan, a link, a task or a report, with what it works with."""

from collections import Counter
from collections.abc import Iterable, Iterator

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.model import (
    Outcome,
    Part,
    PlannedMember,
    Run,
    Slice,
    Status,
    Stop,
    Task,
    TaskReport,
    Verdict,
)
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords, TaskOutcomes
from s3unzip.stores.calls import Calls

MAX_FAILURES = 50  # shown of one update; the report counts them all
PROGRESS_SECONDS = 0.2  # between two updates of the progress display


class Step:
    """What a step has: its run, the run's records, its calls, and what it read and noted.

    Args:
        name: of the step, for messages; of a task or scan, its id.
        calls: retries and counts the requests of this step.
    """

    def __init__(self, run: Run, name: str, context: Context, calls: Calls) -> None:
        stores = context.stores
        self.run = run
        self.name = name
        self.context = context
        self.calls = calls
        self.started = context.clock.now()  # Unix seconds
        self.records = RunRecords.open(stores, run.id, calls)
        self.archive = stores.source(run.source).pinned(run.source, run.pin)
        self.destination = stores.destination(run.destination)
        self.bytes_read = 0  # of the archive
        self.warnings: Counter[str] = Counter()  # by code

    def read_rows(self, span: tuple[int, int]) -> list[PlannedMember]:
        """Return the members of a task: those in bytes [start, stop) of the member list."""
        return self.records.read_rows(span, self.run.key_prefix)

    def check_time(self) -> None:
        """Check that the worker may go on."""
        margin = self.context.tuning.margin_seconds
        if self.context.clock.remaining() < margin:
            raise errors.DeadlineError(
                f"{self.name}: {margin:.0f} s before the worker's time limit"
            )


class TaskAttempt(Step):
    """A step that does one task; any thread may add outcomes."""

    def __init__(self, run: Run, task: Task, context: Context) -> None:
        super().__init__(run, task.id, context, context.calls())
        self.task = task
        self.outcomes: list[Outcome] = []
        self.put_seconds: list[float] = []
        self.first_object: float | None = None  # Unix seconds
        self.uploaded: tuple[Part, ...] = ()  # for a slice of a split member
        self.has_no_outcome = False  # a scan or a slice that is done: settling gives the outcome
        self.fault: str | None = None  # what ends this attempt too early
        self._earlier: TaskReport | None = None  # of the attempts before this one
        self.done_before = 0  # `PlannedMember.work` of the members that they did
        self._shown = 0  # outcomes that the progress display knows
        # `PlannedMember.work` of the members with an outcome: threads may append at once to a list,
        # but not add to a number.
        self._works: list[int] = []
        self._passed = 0  # bytes of the one large member that is being done
        self._shown_bytes: Counter[str] = Counter()
        self._next_update = 0.0

    @property
    def slice(self) -> Slice:
        """The slice of a task that has one."""
        if self.task.slice is None:
            raise errors.UsageError(f"{self.task.id}: the task has no slice")
        return self.task.slice

    def extracted(
        self, row: PlannedMember, seconds: float, size: int | None = None, etag: str | None = None
    ) -> None:
        """Note that a member is complete in the destination, and verified.

        Args:
            seconds: how long the PUT or the Complete took.
            size: bytes of the object, where it is not the member's own size.
            etag: as the store answered, without quotes; None if it did not say.
        """
        self.put_seconds.append(seconds)
        if self.first_object is None:
            self.first_object = self.context.clock.now()
        self.note(row, row.outcome(Status.EXTRACTED, size, etag))

    def note(self, row: PlannedMember, outcome: Outcome) -> None:
        """Note what became of a member."""
        self.outcomes.append(outcome)
        if self.task.is_whole:  # a slice is as much of its member as it passed
            self._works.append(row.work)
            self._passed = 0

    def failed(self, row: PlannedMember, finding: errors.Finding) -> None:
        """Note why a member is not in the destination."""
        self.note(row, Outcome.failed(row.member.index, row.key, finding))

    def resume(self, earlier: TaskOutcomes) -> None:
        """Take over what an earlier attempt of the task finished, and what it cost."""
        self.outcomes.extend(earlier.outcomes)
        self._shown = len(self.outcomes)
        self._earlier = earlier.report
        self.first_object = earlier.report.first_object
        self.warnings.update(earlier.report.warnings)

    def passed(self, size: int) -> None:
        """Count bytes of a large member that are on their way to the destination."""
        self._passed += size
        self.show_progress()

    def passing(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield `pieces` of a large member and count them as passed."""
        for data in pieces:
            self.passed(len(data))
            yield data

    def begin_again(self) -> None:
        """Forget what passed of a large member, which begins at its first byte again."""
        self._passed = 0

    def show_progress(self, *, now: bool = False) -> None:
        """Tell the progress display what is new, a few times a second."""
        progress = self.context.progress
        if progress is None:
            return
        time = self.context.clock.now()
        if not now and time < self._next_update:
            return
        self._next_update = time + PROGRESS_SECONDS
        new = self.outcomes[self._shown :]
        self._shown += len(new)
        if not self.task.is_whole:
            new = []  # settling gives the member its outcome
        counts: Counter[str] = Counter(outcome.status.value for outcome in new)
        counts["bytes_written"] = sum(o.size for o in new if o.status is Status.EXTRACTED)
        sums = Counter(
            bytes_done=sum(self._works) + self._passed,
            bytes_read=self.bytes_read,
        )
        counts.update(sums)
        counts.subtract(self._shown_bytes)
        self._shown_bytes = sums
        progress.finished(counts)
        failed = [outcome for outcome in new if outcome.status is Status.FAILED]
        if failed:
            progress.failed(failed[:MAX_FAILURES])

    def report(self) -> TaskReport:
        """Return the task's report as of now, what earlier attempts cost included."""
        task = self.task
        earlier = self._earlier or TaskReport(task.id, task.kind, members=0, started=self.started)
        seconds = self.context.clock.now() - self.started
        counts = Counter(outcome.status for outcome in self.outcomes)
        written = sum(part.size for part in self.uploaded)  # of a slice
        written += sum(o.size for o in self.outcomes if o.status is Status.EXTRACTED)
        unfinished = task.members - len(self.outcomes)
        if self.has_no_outcome:
            unfinished = 0
        return TaskReport(
            task=task.id,
            kind=task.kind,
            members=task.members,
            extracted=counts[Status.EXTRACTED],
            unchanged=counts[Status.UNCHANGED],
            failed=counts[Status.FAILED],
            bytes_read=earlier.bytes_read + self.bytes_read,
            bytes_done=self.done_before + sum(self._works) + self._passed,
            bytes_written=written,
            requests=earlier.requests + self.calls.requests,
            started=earlier.started,
            seconds=round(earlier.seconds + seconds, 6),
            first_object=self.first_object,
            put_seconds=round(earlier.put_seconds + sum(self.put_seconds), 6),
            uploaded=self.uploaded,
            warnings=dict(self.warnings),
            unfinished=unfinished,
            fault=self.fault,
            stage=task.stage,
            member=task.member,
        )

    def write(self) -> TaskReport:
        """Write the task's report and outcomes to the run store; return the report."""
        if not self.has_no_outcome:
            self.begin_again()
        self.show_progress(now=True)
        report = self.report()
        self.records.write_outcomes(report, self.outcomes)
        return report


SOURCE_CHANGED = "source-changed"
NOT_IMPLEMENTED = "not-implemented"
STOPPED = "stopped"  # the reason of a run that its user stopped
REASONS: dict[type[errors.StorageError], str] = {
    errors.SourceChangedError: SOURCE_CHANGED,
    errors.AccessDeniedError: "access-denied",
    errors.LinkRefusedError: "link-refused",
    errors.NotFoundError: "not-found",
    errors.StoreFullError: "store-full",
    errors.StoreRefusesError: "storage",
    errors.UnreadableRecordError: RECORD_UNREADABLE,
    errors.StoreLacksError: NOT_IMPLEMENTED,
}
RUN_FAULTS = tuple(REASONS)


def stop_for(fault: errors.StorageError) -> Stop:
    """Return why a run must end that met `fault`."""
    verdict = (
        Verdict.SOURCE_CHANGED if isinstance(fault, errors.SourceChangedError) else Verdict.FAILED
    )
    return Stop(verdict, REASONS[type(fault)], str(fault))
