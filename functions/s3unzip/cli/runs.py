"""The runs that commands speak of: this machine's, or those of a deployed environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.cli.terminal.figures import printable
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.local.locking import LOCK, is_at_work
from s3unzip.model import Verdict
from s3unzip.runs.step import STOPPED
from s3unzip.stores.home import known_runs, runs_of_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Connections, Location, Report, Run
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.runs.records import RunRecords
    from s3unzip.runs.watch import Items, RunEntry
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.ports import Stores

RUNNING, ENDED = "RUNNING", "ENDED"  # states of runs of this machine
# What a run leaves whose planning did not get past the trial of its destination: the folder of
# records of uploads, and its lock.
TRIED = (run_files.UPLOADS.rstrip("/"), LOCK)


class LocalRuns:
    """The runs that this machine did, with what `DeployedRuns` has; they have no executions."""

    def __init__(self, config: StoreConfig) -> None:
        from s3unzip.stores.factory import open_stores

        self._home = config.work
        self._stores = open_stores(config)

    @property
    def stores(self) -> Stores:
        """The stores that the runs read and write."""
        return self._stores

    def recent(self, limit: int) -> Iterator[RunEntry]:
        """Yield runs, the latest first."""
        from s3unzip.runs.watch import RunEntry

        for run in known_runs(self._home)[:limit]:
            touched = Path(self._home.key, "runs", run).stat().st_mtime
            yield RunEntry(run, "", touched)

    def find(self, name: str) -> str:
        """Return the whole id of a run.

        Raises:
            NotFoundError: there is none.
            UsageError: several begin so.
        """
        known = known_runs(self._home)
        if name in known:
            return name
        if name == "latest":
            latest = next(filter(self._is_run, known), None)
            if latest is None:
                raise NotFoundError("there are no runs yet: s3unzip run SRC DEST begins one")
            return latest
        found = [run for run in known if run.startswith(name) and self._is_run(run)]
        if not found:
            raise NotFoundError(f"{printable(name)}: no such run here; see s3unzip runs")
        if len(found) > 1:
            raise UsageError(
                f"{printable(name)}: {len(found)} runs begin with it; see s3unzip runs"
            )
        return found[0]

    def _is_run(self, run: str) -> bool:
        """Return whether the planning of a run got past the trial of its destination.

        The trial leaves a record of its upload, and a run has its lock before its plan.
        """
        folder = Path(self._home.key, "runs", run)
        left = any(entry.name not in TRIED for entry in folder.iterdir())
        return left or is_at_work(self._home.key, run)

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of archives named like `source`, the earliest first."""
        return runs_of_archive(self._home, source)

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        from s3unzip.runs.records import RunRecords

        return RunRecords.open(self._stores, run)

    def connections(self, run: str) -> Connections:
        """Return how the run's stores were reached; a command about the run remembers it."""
        return self.records(run).find_connections()

    def state(self, run: str) -> str:
        """Return `RUNNING` while a process plans the run or works on it; then `ENDED`."""
        return RUNNING if is_at_work(self._home.key, run) else ENDED

    def items(self, run: str) -> Items | None:
        """Return None: there is no Map."""

    def explain_waiting(self) -> str:
        """Return nothing: no run waits for workers."""
        return ""


Runs: TypeAlias = "LocalRuns | DeployedRuns"


def open_runs(environment: str | None, config: StoreConfig) -> Runs:
    """Return the runs of a deployed environment, or of this machine."""
    return LocalRuns(config) if environment is None else open_deployed(environment, config)


def open_deployed(environment: str, config: StoreConfig) -> DeployedRuns:
    """Return the runs of a deployed environment.

    Raises:
        NotFoundError: it is not there.
    """
    from s3unzip.operate.runs import DeployedRuns

    return DeployedRuns(environment, replace(config, check_reachable=False))


def report_of(run: str, runs: Runs) -> Report:
    """Return the report of a run.

    Raises:
        NotFoundError: it has none yet.
    """
    report = runs.records(run).find_report()
    if report is None:
        raise missing_report(run, runs)
    return report


def missing_report(run: str, runs: Runs) -> NotFoundError:
    """Return the error that says why a run has no report, and what to do."""
    if runs.state(run) == RUNNING:
        return NotFoundError(f"{run}: has no report yet; s3unzip watch {run} follows it")
    if runs.records(run).find_summary() is None:
        return NotFoundError(
            f"{run}: has no plan and no report: it is being planned, or planning failed; then "
            "start again with s3unzip run"
        )
    return NotFoundError(f"{run}: has no report yet; s3unzip redrive {run} continues it")


class ListedRun(Struct, frozen=True, omit_defaults=True):
    """One line of ``s3unzip runs``."""

    run: str
    state: str  # the verdict; RUNNING, WAITING, STOPPED or UNFINISHED where there is none
    started: float  # Unix seconds
    seconds: float | None = None
    source: str = ""
    destination: str = ""
    members: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0


def list_entries(runs: Runs, limit: int) -> Iterator[ListedRun]:
    """Yield the latest runs first; a run and its retries are one.

    A run of this machine is not listed if the destination was refused before there was a plan.
    """
    from s3unzip.settling.retry import run_of

    listed: set[str] = set()
    for entry in runs.recent(limit):
        run = run_of(entry.id)
        if run not in listed:
            listed.add(run)
            found = _list_entry(run, entry, runs.records(run))
            if found is not None:
                yield found


def _list_entry(run: str, entry: RunEntry, records: RunRecords) -> ListedRun | None:
    report = records.find_report()
    # A run that is refused has ended; the note of its end is written a little later.
    refused = report is not None and report.verdict is Verdict.REJECTED
    if report is None or (entry.state == "RUNNING" and not refused):
        try:
            source, destination = _ends(records.read_run())
        except NotFoundError:  # it is being planned, or was never planned
            if not entry.state:
                return None
            source, destination = "", ""
        state = entry.state or "UNFINISHED"
        return ListedRun(run, state, entry.started, None, source, destination)
    source, destination = _ends(report)
    return ListedRun(
        run,
        "STOPPED" if report.reason == STOPPED else report.verdict.value,
        report.started,
        round(report.finished - report.started, 3),
        source,
        destination,
        report.members,
        report.extracted,
        report.unchanged,
        report.failed,
    )


def _ends(run: Report | Run) -> tuple[str, str]:
    return str(run.source), str(run.destination)
