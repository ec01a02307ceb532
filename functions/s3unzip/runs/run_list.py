"""The runs of this machine, or of a deployed environment.

Commands use a `RunList`, whose subclasses are in `local.runs` and `operate.runs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import Location
from s3unzip.run_ids import STEM_AT, run_of_execution
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.stores import Stores
    from s3unzip.stores.config import StoreConfig

RUNNING = "RUNNING"  # the state of a run that is at work
MAX_RUNS = 1_000  # the latest ones, which `find` compares with a name


class RecentRun(NamedTuple):
    """A run in a list of runs."""

    run: str
    state: str  # `RUNNING` while it is at work, otherwise empty
    time: float  # Unix seconds


class MapCounts(NamedTuple):
    """How many items of a run's last Map are in each state."""

    waiting: int
    running: int
    succeeded: int
    failed: int


class RunList(ABC):
    """The runs of this machine, or of a deployed environment."""

    environment: str | None  # None: this machine
    location: str  # for messages: "here", "in prod"
    nothing_yet: str  # the message if there is no run
    work_location: Location
    stores: Stores
    found_by = ""  # with a space before it: the options with which a command finds these runs

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        return RunRecords.open(self.stores, run)

    def find(self, name: str) -> str:
        """Return the full id of a run.

        Args:
            name: ``latest``, an id, the name of an execution, or the beginning of an id or of the
                archive's stem in it.
        """
        run = run_of_execution(name)
        if run == "latest":
            for latest in self.begun(1):
                return latest
            raise NotFoundError(self.nothing_yet)
        try:
            return pick_run(run, self.begun(MAX_RUNS), self.location)
        except NotFoundError:
            if not self.has(run):
                raise
            return run  # older than the latest `MAX_RUNS`

    @abstractmethod
    def recent(self, limit: int) -> Iterator[RecentRun]:
        """Yield runs, the latest first."""

    def begun(self, limit: int) -> Iterator[str]:
        """Yield the ids of the runs that `find` compares with a name, the latest first."""
        return (recent.run for recent in self.recent(limit))

    def has(self, run: str) -> bool:
        """Return whether there is a run with this id; it may have no record yet."""
        return self.state(run) is not None

    @abstractmethod
    def state(self, run: str) -> str | None:
        """Return the state of a run, `RUNNING` while it is at work; None: it never began."""

    @abstractmethod
    def stop(self, run: str) -> bool:
        """Stop a run and wait for its end; return False if it had ended."""

    @abstractmethod
    def connections(self, run: str) -> StoreConfig:
        """Return how the stores of a run are reached."""

    def map_counts(self, run: str) -> MapCounts | None:  # noqa: ARG002 - of a deployed run
        """Return the item counts of the last Map of a run; None: it had no Map."""
        return None


def pick_run(name: str, runs: Iterable[str], location: str) -> str:
    """Return the one run whose id, or whose archive's stem in the id, begins with `name`.

    `location` is for messages: "here", "in prod".
    """
    matches = [run for run in runs if run.startswith(name) or run[STEM_AT:].startswith(name)]
    if name in matches:
        return name
    if len(matches) > 1:
        raise UsageError(f"{name}: {len(matches)} runs begin with it; see s3unzip runs")
    if not matches:
        raise NotFoundError(f"{name}: no such run {location}; see s3unzip runs")
    return matches[0]
