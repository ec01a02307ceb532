"""The resources that every step of the pipeline uses in addition to its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import force_setattr

from s3unzip.settings import Tuning
from s3unzip.stores.calls import AimdLimiter, Calls
from s3unzip.stores.fault_budget import FaultBudget
from s3unzip.zip import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s3unzip.model import NestedRun, Outcome, PlanSummary, Report
    from s3unzip.pricing import Platform
    from s3unzip.stores import Stores
    from s3unzip.stores.config import StoreConfig
    from s3unzip.stores.ports import Clock


class Progress:
    """Receives the events of a run. Subclass this class, and override the methods that you need.

    The methods `finished`, `failed` and `trouble` may be called from any thread; all other methods
    are called from the thread of `extract`.
    """

    def planned(self, plan: PlanSummary) -> None:
        """Receive the plan before the first task starts."""

    def finished(self, counts: Mapping[str, int]) -> None:
        """Receive what was added to the counts since the last call.

        `extracted`, `unchanged` and `failed` count members. `bytes_read`, `bytes_written` and
        `bytes_done` count bytes. For one archive, the sum of all `bytes_done` is at most
        `PlanSummary.work`; nested archives add their own work. No value is negative, and repeated
        work is counted only once.
        """

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Receive the outcomes of members that have just failed."""

    def phase(self, name: str) -> None:
        """Receive the name of the next phase: plan, check, scan, link, extract or report."""

    def trouble(self, message: str) -> None:
        """Receive one line about a store that does not respond; the request is retried."""

    def reported(self, report: Report) -> None:
        """Receive the report before the runs of nested archives start."""

    def nested(self, run: NestedRun) -> None:
        """Receive the result of one nested archive."""


class UploadNotes:
    """Notes on which run started each upload. This base class, used on AWS, keeps no notes."""

    def note(self, upload_id: str, run: str) -> None:
        """Record that `run` has started an upload, so that other runs do not abort it."""

    def forget(self, upload_id: str) -> None:
        """Forget an upload that has been completed or aborted."""

    def is_of_another(self, upload_id: str, run: str) -> bool:  # noqa: ARG002 - no notes are kept
        """Return whether an upload belongs to an active run other than `run`."""
        return False


class Context(Struct, frozen=True):
    """The stores, clock, rules and limits of a process; each worker has its own context."""

    stores: Stores
    clock: Clock
    policy: Policy = field(default_factory=Policy)
    tuning: Tuning = field(default_factory=Tuning)
    progress: Progress | None = None
    platform: Platform | None = None  # None if the run has no estimate and no cost
    environment: str = ""  # name of the deployed environment; empty for this machine
    # How the stores are reached. These settings are recorded, and suggested commands contain them.
    connections: StoreConfig | None = None
    max_cost: float | None = None  # maximum estimated cost of a run in dollars; None if unlimited
    faults: FaultBudget | None = None  # shared by all calls of the process; created if None
    pace: AimdLimiter | None = None  # shared by all calls to the destination; created if None
    archive_end: bytes = b""  # the last bytes of the run's archive, if they are in memory
    uploads: UploadNotes = UploadNotes()  # without notes, uploads are recognized by their keys

    def __post_init__(self) -> None:
        if self.faults is None:
            budget = FaultBudget(self.tuning.retry_seconds)
            if self.progress is not None:
                budget = FaultBudget(self.tuning.retry_seconds, warn=self.progress.trouble)
            force_setattr(self, "faults", budget)
        if self.pace is None:
            force_setattr(self, "pace", AimdLimiter(self.tuning.puts_in_flight))

    def calls(self) -> Calls:
        """Return an object that sends the requests of one step, counts them and retries them."""
        return Calls(
            self.clock,
            self.tuning.retry_seconds,
            self.tuning.puts_in_flight,
            faults=self.faults,
            pace=self.pace,
        )
