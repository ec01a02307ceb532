"""The runs of this machine or of a deployed environment, and the progress of one of these runs.

Commands use a `RunList`; its subclasses are in `local.runs` and `operate.runs`. The progress of an
active run is read from its records. The first line of a task's record is the report of the task.
The other lines are read only if members have failed. The stage in a report determines which of its
counts are set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import (
    NotFoundError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.model import (
    Location,
    Outcome,
    PlanSummary,
    Report,
    Status,
    TaskReport,
)
from s3unzip.run_ids import STEM_AT, run_of_execution
from s3unzip.runs.records import PLAN_TASK, READERS, RunRecords
from s3unzip.runs.step import count_progress
from s3unzip.stages import Stage, gives_outcome
from s3unzip.stores.calls import map_ahead

if TYPE_CHECKING:
    from s3unzip.stores import Stores
    from s3unzip.stores.config import StoreConfig

RUNNING = "RUNNING"  # the state of an active run
MAX_RUNS = 1_000  # maximum number of recent runs that `find` compares with a name


class ListedRun(Struct, frozen=True, omit_defaults=True):
    """One line of ``s3unzip runs``."""

    run: str
    state: str  # the verdict, RUNNING, STOPPED, UNFINISHED or UNREADABLE, or an execution's state
    started: float  # Unix seconds
    seconds: float | None = None
    source: str = ""
    destination: str = ""  # DEST, as typed on the command line
    folder: str = ""  # the folder below DEST that contains the members
    members: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    route: str = ""  # name of the environment's route for the archive


class RunList(ABC):
    """The runs of this machine or of a deployed environment."""

    environment: str | None  # name of the environment; None for this machine
    location: str  # where the runs are, as shown in messages: "here", "in prod"
    nothing_yet: str  # the message if there are no runs
    work_location: Location  # the prefix or the folder with the records of all runs
    stores: Stores
    env_options = ""  # the options that select these runs in a command, with a leading space

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        return RunRecords.open(self.stores, run)

    def find(self, name: str) -> str:
        """Return the full id of a run.

        Args:
            name: ``latest``, an id, the name of an execution, the beginning of an id, or the
                beginning of the archive stem in an id.
        """
        if not name:
            raise UsageError("RUN is empty; is a variable of your shell not set?")
        run = run_of_execution(name)
        if run == "latest":
            latest = next(self.recent(1), None)
            if latest is None:
                raise NotFoundError(self.nothing_yet)
            return latest.run
        matches = [
            recent.run
            for recent in self.recent(MAX_RUNS)
            if recent.run.startswith(run) or recent.run[STEM_AT:].startswith(run)
        ]
        if len(matches) == 1:
            return matches[0]
        if run in matches:  # a full id can also be the beginning of another id
            return run
        advice = f"see s3unzip runs{self.env_options}"
        if matches:
            raise UsageError(f"{run}: {len(matches)} runs begin with this name; {advice}")
        if self.has(run):  # the run is older than the latest `MAX_RUNS` runs
            return run
        raise NotFoundError(f"{run}: no such run {self.location}; {advice}")

    def find_final_report(self, run: str) -> Report | None:
        """Return the report of a run; None if the run is still active or has no report yet."""
        # Read the state before the report: a report that is read after the run has ended is final.
        if self.state(run) == RUNNING:
            return None
        return self.records(run).find_report()

    @abstractmethod
    def recent(self, limit: int) -> Iterator[ListedRun]:
        """Yield at most `limit` runs, latest first, without reading their records.

        Only the id, the state and the start time are set. The state is empty if it is not known.
        The start time is approximate.
        """

    def has(self, run: str) -> bool:
        """Return whether a run with this id exists, even if it has no records yet."""
        return self.state(run) is not None

    @abstractmethod
    def state(self, run: str) -> str | None:
        """Return the state of a run: `RUNNING` if it is active; None if it never began."""

    @abstractmethod
    def stop(self, run: str) -> bool:
        """Stop a run and wait for it to end; return False if it had already ended."""

    @abstractmethod
    def connections(self, run: str) -> StoreConfig:
        """Return the configuration with which commands reach the stores of a run."""

    def map_counts(self, run: str) -> dict[str, int]:  # noqa: ARG002 - used in a subclass
        """Return how many tasks of the last Map Run of a run are waiting, running and lost.

        The keys are fields of `RunProgress`. The result is empty if the run had no Map Run.
        """
        return {}


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """A line of ``s3unzip watch --json``, printed when a figure changes."""

    run: str
    state: str = ""  # state of the execution; empty on one machine
    members: int | None = None  # number of selected members; None while the run is being planned
    extracted: int = 0  # all counts of members include only the tasks that have ended
    unchanged: int = 0
    failed: int = 0
    bytes_written: int = 0
    tasks: int = 0  # number of tasks in the first round
    tasks_done: int = 0
    rounds: int = 0
    running: int | None = None  # number of tasks of the current Map Run that are running
    waiting: int | None = None  # number of tasks of the current Map Run that have not begun
    lost: int | None = None  # number of tasks of the current Map Run that ended without a result
    throttled: int = 0  # number of throttled requests
    retries: int = 0  # number of retries of requests
    first_object: float | None = None  # when the first object was finished, in Unix seconds


class RunSnapshot(Struct, frozen=True):
    """What the records of a run contain at one moment."""

    run: str
    plan: PlanSummary | None = None  # None if the run has no plan yet
    rounds: int = 0
    reports: dict[str, TaskReport] = {}  # the reports of the tasks that have ended, by task
    failures: tuple[Outcome, ...] = ()  # failures since the previous snapshot

    @property
    def counts(self) -> Counter[str]:
        """The sums of the counts in the reports."""
        return count_progress(self.reports.values())

    @property
    def progress(self) -> RunProgress:
        """The progress of the run as recorded, without the state and the counts of the Map Run."""
        plan = self.plan
        if plan is None:  # the run is still being planned
            return RunProgress(self.run)
        reports = self.reports.values()
        first_times = [report.first_object for report in reports if report.first_object is not None]
        counts = self.counts
        return RunProgress(
            self.run,
            members=plan.selected,
            extracted=counts["extracted"],
            unchanged=counts["unchanged"],
            failed=counts["failed"],
            bytes_written=counts["bytes_written"],
            tasks=plan.tasks,
            # Settling, not a task, writes the records of stage DONE: one for each split member.
            tasks_done=sum(report.stage is not Stage.DONE for report in reports),
            rounds=self.rounds,
            throttled=sum(report.requests.throttled for report in reports),
            retries=sum(report.requests.retries for report in reports),
            first_object=min(first_times, default=None),
        )


def read_snapshot(
    records: RunRecords, earlier: RunSnapshot | None = None, max_failures: int = 20
) -> RunSnapshot:
    """Read the records that are not in an earlier snapshot; return a snapshot with all of them.

    Args:
        records: the records of the run.
        earlier: the previous snapshot; None if nothing was read yet.
        max_failures: the maximum number of new failures to return.

    Raises:
        ServiceFaultError: the store does not answer; a call with the same `earlier` tries again.
    """
    earlier = earlier or RunSnapshot(records.run)
    plan = earlier.plan
    if plan is None:
        with suppress(UnreadableRecordError):  # an unreadable plan counts as missing
            plan = records.find_plan()
    if plan is None:  # the run is still being planned
        return earlier
    tasks = [
        task
        for task in records.recorded_task_ids()
        if task != PLAN_TASK and task not in earlier.reports
    ]
    reports = map_ahead(records.find_task_report, tasks, READERS)
    # A report is missing if the record is damaged, or was deleted after it was listed. A report is
    # unfinished if an attempt ended early. The next call reads these records again.
    ended = {
        task: report
        for task, report in zip(tasks, reports, strict=True)
        if report is not None and not report.unfinished
    }
    return RunSnapshot(
        records.run,
        plan,
        rounds=len(records.list_rounds()),
        reports=earlier.reports | ended,
        failures=_read_failures(records, ended, max_failures),
    )


def _read_failures(
    records: RunRecords, reports: Mapping[str, TaskReport], limit: int
) -> tuple[Outcome, ...]:
    """Return the failures of members in the records of some tasks, at most `limit`."""
    failures: dict[str, Outcome] = {}  # by key, because two tasks may record the same member
    for task, report in reports.items():
        # The failure of a scan or slice is not a failure of its member.
        if report.failed and gives_outcome(report.stage) and len(failures) < limit:
            recorded = records.find_outcomes(task)
            if recorded is not None:
                failures |= {
                    outcome.key: outcome
                    for outcome in recorded.outcomes
                    if outcome.status is Status.FAILED
                }
    return tuple(failures.values())[:limit]
