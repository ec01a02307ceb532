"""The runs of an environment that wait for workers, as its operator sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.aws.admission.ledger import WAITING as WAITING_NAMES
from s3unzip.aws.admission.ledger import drop_run, read_ledger
from s3unzip.runs.watch import RunEntry

if TYPE_CHECKING:
    from s3unzip.stores.ports import RunStore

WAITING = "WAITING"


class WaitingRuns(Struct, frozen=True):
    """The runs that wait; `store` is that of the ledger's folder."""

    store: RunStore

    def entries(self) -> list[RunEntry]:
        """Return the runs that wait, those that came last first."""
        found = read_ledger(self.store).waiting.values()
        runs = [RunEntry(entry.bid.run, WAITING, float(entry.since)) for entry in found]
        return sorted(runs, key=lambda run: run.started, reverse=True)

    def ids(self, beginning: str) -> list[str]:
        """Return the ids of runs that wait and begin so."""
        return [run for run in read_ledger(self.store).waiting if run.startswith(beginning)]

    def drop(self, run: str) -> bool:
        """Let a run wait no more; return False if it did not wait."""
        if run not in read_ledger(self.store).waiting:
            return False
        drop_run(self.store, run, [WAITING_NAMES])
        return True

    def explain(self) -> str:
        """Return what runs wait for; empty if none waits."""
        ledger = read_ledger(self.store)
        if not ledger.waiting:
            return ""
        shared = sum(entry.share for entry in ledger.held.values())
        return (
            f"waiting for workers: {len(ledger.waiting):,}; at work: {len(ledger.held):,} with "
            f"{shared:,} workers (runs.concurrency less runs.reserve is for all)"
        )
