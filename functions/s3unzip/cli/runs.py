"""The runs that commands speak of: this machine's, or those of a deployed environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from s3unzip.cli.terminal.figures import printable
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.stores.home import known_runs, runs_of_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Location, Report
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.runs.records import RunRecords
    from s3unzip.runs.watch import Items, RunEntry
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.ports import Stores


class Runs(Protocol):
    """Runs that were planned somewhere, and their records."""

    @property
    def stores(self) -> Stores:
        """The stores that the runs read and write."""
        ...

    def recent(self, most: int) -> Iterator[RunEntry]:
        """Yield runs, the latest first."""
        ...

    def find(self, name: str) -> str:
        """Return the whole id of a run.

        Raises:
            NotFoundError: there is none.
            UsageError: several begin so.
        """
        ...

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of archives named like `source`, the earliest first."""
        ...

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        ...

    def state(self, run: str) -> str | None:
        """Return the state of the run's execution, None where there is none."""
        ...

    def items(self, run: str) -> Items | None:
        """Return what the Map at work has to do, None where there is none."""
        ...


class LocalRuns:
    """The runs that this machine did."""

    def __init__(self, config: StoreConfig) -> None:
        from s3unzip.stores.factory import open_stores

        self._home = config.work
        self._stores = open_stores(config)

    @property
    def stores(self) -> Stores:
        """The stores that the runs read and write."""
        return self._stores

    def recent(self, most: int) -> Iterator[RunEntry]:
        """Yield runs, the latest first."""
        from s3unzip.runs.watch import RunEntry

        for run in known_runs(self._home)[:most]:
            touched = Path(self._home.key, "runs", run).stat().st_mtime
            yield RunEntry(run, "", touched)

    def find(self, name: str) -> str:
        """Return the whole id of a run.

        Raises:
            NotFoundError: there is none.
            UsageError: several begin so.
        """
        known = known_runs(self._home)
        if name == "latest" and known:
            return known[0]
        found = [run for run in known if run == name] or [r for r in known if r.startswith(name)]
        if not found:
            raise NotFoundError(f"{printable(name)}: no such run here; see s3unzip runs")
        if len(found) > 1:
            raise UsageError(f"{printable(name)}: {len(found)} runs begin so; see s3unzip runs")
        return found[0]

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of archives named like `source`, the earliest first."""
        return runs_of_archive(self._home, source)

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        from s3unzip.runs.records import RunRecords

        return RunRecords.open(self._stores, run)

    def state(self, run: str) -> str | None:  # noqa: ARG002 - nobody keeps it here
        """Return None."""
        return None

    def items(self, run: str) -> Items | None:  # noqa: ARG002 - likewise
        """Return None."""
        return None


def open_runs(environment: str | None, config: StoreConfig) -> Runs:
    """Return the runs of a deployed environment, or of this machine."""
    return LocalRuns(config) if environment is None else open_deployed(environment, config)


def open_deployed(environment: str, config: StoreConfig) -> DeployedRuns:
    """Return the runs of a deployed environment.

    Raises:
        NotFoundError: it is not there.
    """
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.stores.s3.session import S3Access

    access = S3Access(
        config.endpoint_url, config.region, config.profile, connections=config.connections
    )
    return DeployedRuns(environment, access)


def report_of(run: str, runs: Runs) -> Report:
    """Return the report of a run.

    Raises:
        NotFoundError: it has none yet.
    """
    report = runs.records(run).find_report()
    if report is None:
        raise NotFoundError(f"{run}: has no report yet; s3unzip redrive {run} continues it")
    return report
