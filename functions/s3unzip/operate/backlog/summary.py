"""The one report of all archives of a backlog: who has ended, and what is wrong with which.

Each look reads the report of every archive that was not extracted at the last look. What is
extracted is written down list by list, so that a look costs as much as is left to do.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.aws.admission.ledger import FOLDER, read_ledger
from s3unzip.aws.aws_faults import asking
from s3unzip.errors import AccessDeniedError
from s3unzip.model import Location, Verdict
from s3unzip.operate.backlog.look import Looker
from s3unzip.operate.backlog.submitting import Environment, open_records
from s3unzip.operate.backlog.values import BacklogProblem, BacklogReport, Ends, Sums
from s3unzip.operate.queue import read_depth
from s3unzip.operate.runs import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from s3unzip.model import Report
    from s3unzip.operate.backlog.values import Backlog, BacklogArchive
    from s3unzip.operate.runs import DeployedRuns

THREADS = 32  # reports that are read at once
MAX_PROBLEMS = 100  # that the report lists; `told` gets all
MAX_CHECKED = 1_000  # archives without a report that are asked for one by one
REPLACED, GONE, LOST = "REPLACED", "GONE", "LOST"
CHANGED = Verdict.SOURCE_CHANGED.exit_code  # also of an archive that is gone
NOT_ENDED = 1  # exit code while something is left to wait for, and of a lost archive


class Summary:
    """Makes the report of one backlog; `look` again and again follows it."""

    def __init__(
        self,
        backlog: Backlog,
        runs: DeployedRuns,
        told: Callable[[BacklogProblem], object] = lambda _: None,
    ) -> None:
        """Make the reporter.

        Args:
            backlog: which.
            runs: of its environment.
            told: is given each archive that is not extracted, at each look.
        """
        self._backlog = backlog
        self._runs = runs
        self._told = told
        self._records = open_records(runs)
        self._looker = Looker(runs, Environment.read(runs).orders)
        self._writes = True  # whether what is extracted may be written down

    def look(self) -> BacklogReport:
        """Return the report of now.

        Raises:
            AccessDeniedError: a right is missing.
            StorageError, ServiceFaultError: records cannot be read.
        """
        # First who is active: a run that ends meanwhile has its report then.
        active = _Active.read(self._runs)
        queued = self._records.read_queued(self._backlog.id)
        gathered = _Gathered(self._backlog, self._told)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="backlog") as pool:
            for number in range(queued.lists):
                self._look_at(number, gathered, active, pool)
        not_queued = self._backlog.archives - queued.archives
        return gathered.report(not_queued)

    def _look_at(
        self, number: int, gathered: _Gathered, active: _Active, pool: ThreadPoolExecutor
    ) -> None:
        """Look at one list of archives."""
        known = self._records.find_ends(self._backlog.id, number)
        if known is None:
            known = Ends(Sums(), tuple(self._records.read_list(self._backlog.id, number)))
        completed, others = known.completed, []
        reports = pool.map(self._find_report, known.others)
        for archive, report in zip(known.others, reports, strict=True):
            if report is not None and report.verdict is Verdict.COMPLETED:
                completed += sum_up(report)
                continue
            others.append(archive)
            if report is not None:
                gathered.add_report(archive, report)
            else:
                self._add_pending(archive, gathered, active)
        gathered.add_completed(completed)
        if len(others) < len(known.others):
            self._keep(number, Ends(completed, tuple(others)))

    def _find_report(self, archive: BacklogArchive) -> Report | None:
        return self._runs.records(archive.run).find_report()

    def _keep(self, number: int, ends: Ends) -> None:
        """Write down what is extracted, if the caller may write."""
        if not self._writes:
            return
        try:
            self._records.write_ends(self._backlog.id, number, ends)
        except AccessDeniedError:  # the next look reads these reports again
            self._writes = False

    def _add_pending(self, archive: BacklogArchive, gathered: _Gathered, active: _Active) -> None:
        """Say where an archive is that has no report."""
        if archive.run in active.waiting:
            gathered.waiting += 1
        elif archive.run in active.held:
            gathered.running += 1
        elif not active.is_idle or gathered.checked >= MAX_CHECKED:
            gathered.queued += 1
        else:
            gathered.checked += 1
            self._check(archive, gathered)

    def _check(self, archive: BacklogArchive, gathered: _Gathered) -> None:
        """Find out about an archive that no queue and no ledger knows."""
        found = self._looker.identify(archive.key)
        if found is None:
            gathered.add_problem(archive, GONE, "it was deleted after it was listed")
        elif found.archive.run != archive.run:
            words = "it was overwritten after it was listed; the newer version's run is "
            gathered.add_problem(archive, REPLACED, words + found.archive.run)
        elif self._runs.state(archive.run) == RUNNING or self._find_report(archive) is not None:
            gathered.running += 1  # a report came meanwhile; the next look counts it
        else:
            words = "neither queued, nor running, nor ended: see s3unzip reconcile and doctor"
            gathered.add_problem(archive, LOST, words)


class _Active(NamedTuple):
    """The runs of an environment that have not ended, as far as one look tells."""

    waiting: Collection[str]
    held: Collection[str]  # with workers
    is_idle: bool  # whether the queue is empty

    @classmethod
    def read(cls, runs: DeployedRuns) -> _Active:
        """Read the queue first: what leaves it meanwhile is in the ledger."""
        client, url = runs.client("sqs"), runs.outputs["QueueUrl"]
        with asking("sqs:GetQueueAttributes"):
            depth = read_depth(client, url)
        ledger = read_ledger(runs.stores.run_store(FOLDER))
        held = ledger.held.keys() | ledger.begun.keys()
        return cls(ledger.waiting.keys(), held, not any(depth))


class _Gathered:
    """What one look has found so far."""

    def __init__(self, backlog: Backlog, told: Callable[[BacklogProblem], object]) -> None:
        self.queued = self.waiting = self.running = self.checked = 0
        self._backlog = backlog
        self._told = told
        self._sums = Sums()
        self._verdicts: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._problems: list[BacklogProblem] = []
        self._exit_code = 0

    def add_completed(self, sums: Sums) -> None:
        """Add archives that are extracted."""
        self._sums += sums
        if sums.archives:
            self._verdicts[Verdict.COMPLETED.value] += sums.archives

    def add_report(self, archive: BacklogArchive, report: Report) -> None:
        """Add an archive that ended otherwise."""
        self._sums += sum_up(report)
        self._verdicts[report.verdict.value] += 1
        self._exit_code = max(self._exit_code, report.verdict.exit_code)
        reason = report.reason or next(iter(report.reasons), None)
        self._say(
            BacklogProblem(
                source=self._source(archive),
                run=archive.run,
                state=report.verdict.value,
                reason=reason,
                message=report.message,
                failed=report.failed + report.missing,
            )
        )

    def add_problem(self, archive: BacklogArchive, state: str, message: str) -> None:
        """Add an archive that gets no report."""
        self._states[state] += 1
        self._exit_code = max(self._exit_code, NOT_ENDED if state == LOST else CHANGED)
        self._say(BacklogProblem(self._source(archive), archive.run, state, message=message))

    def _say(self, problem: BacklogProblem) -> None:
        self._told(problem)
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)

    def _source(self, archive: BacklogArchive) -> str:
        return str(Location("s3", self._backlog.bucket, archive.key))

    def report(self, not_queued: int) -> BacklogReport:
        """Return the report."""
        backlog, sums = self._backlog, self._sums
        ended = not (self.queued or self.waiting or self.running or not_queued)
        return BacklogReport(
            backlog=backlog.id,
            environment=backlog.environment,
            sources=backlog.sources,
            created=backlog.created,
            ended=ended,
            exit_code=max(self._exit_code, 0 if ended else NOT_ENDED),
            archives=backlog.archives,
            not_queued=not_queued,
            queued=self.queued,
            waiting=self.waiting,
            running=self.running,
            verdicts=dict(sorted(self._verdicts.items())),
            replaced=self._states[REPLACED],
            gone=self._states[GONE],
            lost=self._states[LOST],
            members=sums.members,
            extracted=sums.extracted,
            unchanged=sums.unchanged,
            failed=sums.failed,
            missing=sums.missing,
            bytes_in=sums.bytes_in,
            bytes_out=sums.bytes_out,
            seconds=max(0.0, round(sums.last - backlog.created, 3)) if sums.archives else None,
            task_seconds=round(sums.task_seconds, 3),
            cost=sums.dollars,
            forecast_seconds=backlog.forecast.duration.expected,
            forecast_cost=backlog.forecast.dollars.expected,
            problems=tuple(self._problems),
        )


def sum_up(report: Report) -> Sums:
    """Return the sums of one report."""
    return Sums(
        archives=1,
        members=report.members,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        missing=report.missing,
        bytes_in=report.bytes_in,
        bytes_out=report.bytes_out,
        dollars=report.cost or 0.0,
        task_seconds=report.task_seconds,
        last=report.finished,
    )
