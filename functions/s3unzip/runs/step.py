"""One step of a run: a plan, an attempt at a task, or settling.

This module also defines the faults that end a run.
"""

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
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.runs.records import RECORD_UNREADABLE, RunRecords, TaskOutcomes
from s3unzip.stages import Stage, gives_outcome
from s3unzip.stores.calls import Calls

MAX_FAILURES = 50  # maximum number of failures shown in one update; the report counts all failures
PROGRESS_SECONDS = 0.2  # minimum time between two updates of the progress display


class Step:
    """One step of a run, with the run's records, the archive and the destination.

    Args:
        run: the run.
        context: the stores, the clock and the limits.
        calls: sends, retries and counts the requests of this step.
    """

    def __init__(self, run: Run, context: Context, calls: Calls) -> None:
        self.run = run
        self.context = context
        self.calls = calls
        self.started = context.clock.now()  # in Unix seconds
        self.records = RunRecords.open(context.stores, run.id, calls)
        # If `context.archive_end` is set, the last bytes of the archive are not read again.
        self.archive = context.stores.source(run.source).pinned(
            run.source, run.pin, context.archive_end
        )
        self.destination = context.stores.destination(run.destination)
        self.warnings: Counter[str] = Counter()  # number of warnings, by code

    def read_rows(self, span: tuple[int, int]) -> list[PlannedMember]:
        """Return the members in bytes [start, stop) of the member list."""
        return self.records.read_rows(span, self.run.key_prefix)

    def check_time(self) -> None:
        """Raise `DeadlineError` if the worker's time is nearly over."""
        margin = self.context.tuning.margin_seconds  # time to write the outcomes
        if self.context.clock.remaining() < margin:
            raise errors.DeadlineError(f"stopped {margin:.0f} s before the worker's time limit")


class TaskAttempt(Step):
    """A step that does one task; any thread can add outcomes."""

    def __init__(self, run: Run, task: Task, context: Context) -> None:
        super().__init__(run, context, context.calls())
        self.task = task
        self.outcomes: list[Outcome] = []
        self.put_seconds: list[float] = []
        self.first_object_time: float | None = None  # time of the first object, in Unix seconds
        self.uploaded: tuple[Part, ...] = ()  # only for a slice of a split member
        self.settling_adds_outcome = False  # True for a scan or slice that has ended
        self.fault: str | None = None  # the fault that ends this attempt prematurely
        # The report of the earlier attempts; if there are none, its counts are zero.
        self._earlier = TaskReport(task.id, task.kind, members=0, started=self.started)
        self._shown_counts: Counter[str] = Counter()  # the counts that the progress display shows
        self._shown_outcome_count = 0  # number of outcomes shown on the progress display
        # Bytes that count as progress: `PlannedMember.work` of each member with an outcome.
        # This is a list, because threads can append to a list, but cannot safely add to a number.
        self._finished_bytes: list[int] = []
        # The processed bytes of the current large member; 0 if it has an outcome or must be read
        # again.
        self.current_member_bytes = 0
        self._next_update = 0.0  # time of the next update, in Unix seconds

    @property
    def slice(self) -> Slice:
        """The slice of the task; raises `UsageError` if the task has none."""
        if self.task.slice is None:
            raise errors.UsageError(f"{self.task.id}: the task has no slice")
        return self.task.slice

    def note_extracted(
        self, row: PlannedMember, seconds: float, size: int | None = None, etag: str | None = None
    ) -> None:
        """Add the outcome of a member whose object is complete and verified.

        Args:
            row: the member.
            seconds: the duration of the PUT or the Complete request.
            size: the size of the object in bytes; None for the size of the member.
            etag: the ETag in the store's response, without quotes; None if the response
                contained no ETag.
        """
        self.put_seconds.append(seconds)
        if self.first_object_time is None:
            self.first_object_time = self.context.clock.now()
        self.note(row, row.outcome(Status.EXTRACTED, size, etag))

    def note(self, row: PlannedMember, outcome: Outcome) -> None:
        """Add a member's outcome; unless the task is a scan or slice, count the member's work."""
        self.outcomes.append(outcome)
        if self.task.is_whole:  # otherwise, `count_member_bytes` counts the work
            self._finished_bytes.append(row.work)
            self.current_member_bytes = 0  # `row.work` includes these bytes

    def note_failed(self, row: PlannedMember, finding: errors.Finding) -> None:
        """Add the outcome of a member that could not be extracted."""
        self.note(row, row.failed(finding))

    def resume(self, earlier: TaskOutcomes) -> None:
        """Take over the outcomes, requests, bytes and seconds of an earlier attempt at the task."""
        self.outcomes.extend(earlier.outcomes)
        self._shown_outcome_count = len(self.outcomes)  # reported by the earlier attempt
        self._shown_counts = count_progress([earlier.report])
        self._earlier = earlier.report
        self.first_object_time = earlier.report.first_object
        if self.task.kind is TaskKind.BATCH:  # other tasks add the same warnings again
            self.warnings.update(earlier.report.warnings)

    def count_member_bytes(self, size: int) -> None:
        """Add `size` bytes to the progress of a large member, counted in bytes of the archive."""
        self.current_member_bytes += size
        self.show_progress()

    def count_pieces(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        """Yield `pieces` of a large member, and add each of them to its progress."""
        for data in pieces:
            self.count_member_bytes(len(data))
            yield data

    def show_progress(self, *, force: bool = False) -> None:
        """Send new counts to the progress display, at most once per `PROGRESS_SECONDS`.

        If `force` is true, the display is updated even if it was updated a moment ago.
        """
        progress = self.context.progress
        if progress is None:
            return
        time = self.context.clock.now()
        if not force and time < self._next_update:
            return
        self._next_update = time + PROGRESS_SECONDS
        # Other threads may append outcomes at any time: only the outcomes in `new` count as shown.
        new = self.outcomes[self._shown_outcome_count :]
        self._shown_outcome_count += len(new)
        counts = count_progress([self.report()])
        increase = counts.copy()
        increase.subtract(self._shown_counts)
        self._shown_counts = counts
        progress.finished(increase)
        failed = [outcome for outcome in new if outcome.status is Status.FAILED]
        # A failed scan or slice is not shown, because settling determines its member's outcome.
        if failed and self.task.is_whole:
            progress.failed(failed[:MAX_FAILURES])

    def report(self) -> TaskReport:
        """Return the current report of the task, which includes the work of earlier attempts."""
        task = self.task
        earlier = self._earlier
        seconds = self.context.clock.now() - self.started
        counts = Counter(outcome.status for outcome in self.outcomes)
        # Only a slice has parts.
        bytes_written = sum(part.size for part in self.uploaded) + sum(
            outcome.size for outcome in self.outcomes if outcome.status is Status.EXTRACTED
        )
        unfinished = task.members - len(self.outcomes)
        if self.settling_adds_outcome:  # the scan or slice has ended
            unfinished = 0
        return TaskReport(
            task=task.id,
            kind=task.kind,
            members=task.members,
            extracted=counts[Status.EXTRACTED],
            unchanged=counts[Status.UNCHANGED],
            failed=counts[Status.FAILED],
            bytes_read=earlier.bytes_read + self.archive.bytes_read,
            bytes_done=earlier.bytes_done + sum(self._finished_bytes) + self.current_member_bytes,
            bytes_written=bytes_written,
            requests=earlier.requests + self.calls.requests,
            started=earlier.started,
            seconds=round(earlier.seconds + seconds, 6),
            first_object=self.first_object_time,
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
        # The next attempt will read a member without an outcome again, so the bytes of this member
        # are not counted. But a scan or slice that has ended will not be repeated.
        if not self.settling_adds_outcome:
            self.current_member_bytes = 0
        self.show_progress(force=True)
        report = self.report()
        self.records.write_outcomes(report, self.outcomes)
        return report


def count_progress(reports: Iterable[TaskReport], next_tasks: Iterable[Task] = ()) -> Counter[str]:
    """Return the sums of the counts in the reports of tasks, for the progress display.

    Each member is counted once: a split member in the report of settling (stage DONE), not in those
    of its scans and slices. The slices of a member that is streamed are not counted.

    Args:
        reports: the reports of the tasks that have ended.
        next_tasks: the tasks of the next round.
    """
    recorded = list(reports)
    # Indexes of the members that a task has streamed or will stream.
    streamed_members = {report.member for report in recorded if report.stage is Stage.STREAM}
    streamed_members |= {task.member for task in next_tasks if task.stage is Stage.STREAM}
    # Indexes of the members whose outcomes were recorded by settling.
    settled_members = {report.member for report in recorded if report.stage is Stage.DONE}
    counts: Counter[str] = Counter()
    for report in recorded:
        if report.stage is Stage.SLICE and report.member in streamed_members:
            continue
        counts["bytes_read"] += report.bytes_read
        if report.stage is not Stage.SCAN:  # a scan only reads data that a slice extracts later
            counts.update(bytes_done=report.bytes_done, bytes_written=report.bytes_written)
        # The outcome that settling has recorded is counted instead of this outcome.
        is_replaced = report.stage is not Stage.DONE and report.member in settled_members
        if gives_outcome(report.stage) and not is_replaced:
            counts.update(
                extracted=report.extracted, unchanged=report.unchanged, failed=report.failed
            )
    return counts


STOPPED = "stopped"  # the reason code of a run that the user stopped
# The reason codes of runs that a fault ended, by the class of the fault.
REASONS: dict[type[errors.StorageError], str] = {
    errors.SourceChangedError: "source-changed",
    errors.AccessDeniedError: "access-denied",
    errors.LinkRefusedError: "link-refused",
    errors.NotFoundError: "not-found",
    errors.StoreFullError: "store-full",
    errors.StoreRefusesError: "storage",
    errors.UnreadableRecordError: RECORD_UNREADABLE,
    errors.StoreLacksError: "not-implemented",
}
RUN_FAULTS = tuple(REASONS)  # the errors that end the whole run


def stop_for(fault: errors.StorageError) -> Stop:
    """Return the `Stop` for a fault that ends the run; the fault's class is in `RUN_FAULTS`."""
    verdict = Verdict.FAILED
    if isinstance(fault, errors.SourceChangedError):
        verdict = Verdict.SOURCE_CHANGED
    return Stop(verdict, REASONS[type(fault)], str(fault))
