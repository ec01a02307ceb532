"""The resources of every step of the pipeline, in addition to its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from s3unzip.model.connections import Connections
from s3unzip.settings import Tuning
from s3unzip.stores.calls import Calls
from s3unzip.zip import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s3unzip.estimate import Platform
    from s3unzip.model import Outcome
    from s3unzip.stores.ports import Clock, Stores


class Progress(Protocol):
    """Receives progress while a run works; every method may be called from any thread."""

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments: extracted, unchanged, failed, and bytes read, copied, written and done.

        `bytes_done` goes up to `PlanSummary.work`. An increment is negative where a worker
        was lost, because its work is done again.
        """
        ...

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Learn of members that failed, as they fail."""
        ...

    def phase(self, name: str) -> None:
        """Learn that a phase of the run begins: plan, scan, link, extract or report."""
        ...


class Context(Struct, frozen=True):
    """Stores, rules and clock; each worker has one, created where the program starts."""

    stores: Stores
    clock: Clock
    policy: Policy = field(default_factory=Policy)
    tuning: Tuning = field(default_factory=Tuning)
    progress: Progress | None = None
    platform: Platform | None = None  # for forecasts and costs; None: neither is computed
    environment: str = ""  # the deployed environment; empty: this machine
    connections: Connections = Connections()  # how its stores are reached; part of commands

    def calls(self) -> Calls:
        """Return the counted, retried calls of one step."""
        return Calls(self.clock, self.tuning.retry_seconds, self.tuning.puts_in_flight)
