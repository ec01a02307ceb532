"""The door of the state machine: starts executions while there are workers, and moves shares.

Every start and every end of a run looks at the ledger (`ledger`), asks `s3unzip.runs.shares` who
is admitted, starts these executions, and tells the Map Runs of the others their new concurrency
(UpdateMapRun, API reference of Step Functions). The execution's name is the run's id, so it starts
only once, even if two functions admit the same run.

A run that ends, fails or is aborted leaves the ledger by the report function. An entry that was
left behind is found by a look at one old entry at each start, and every few minutes while runs
wait: the first that waits sends a reminder to the intake queue, with a delay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import replace

from s3unzip.aws.admission.ledger import (
    HELD,
    WAITING,
    Entry,
    Ledger,
    drop_run,
    read_ledger,
    read_payload,
    write_entry,
)
from s3unzip.aws.telemetry import logger, record_waiting
from s3unzip.model import encode
from s3unzip.planning.lists import WorkList
from s3unzip.runs.shares import MIN_WORKERS, Bid, admit, share_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mypy_boto3_stepfunctions import SFNClient

    from s3unzip.stores.ports import Clock, RunStore

OLD_SECONDS = 900  # of an entry, after which its execution is looked at
MAX_MOVES = 10  # Map Runs that one look changes
MOVED = 1.12  # a share that differs by this factor is worth a change


class Start(Enum):
    """What became of an execution that was to start, in the words of the log."""

    STARTED = "run started"
    KNOWN = "run is known"  # its execution exists
    WAITING = "run waits for workers"


@dataclass(frozen=True, slots=True)
class Door:
    """The state machine, its workers, and who has them.

    Args:
        store: of the folder `ledger.FOLDER`.
        states: a client of Step Functions.
        machine: ARN of the state machine; empty: nothing can be started from here.
        workers: that all runs share.
        clock: for the time of entries.
        remind: queues a reminder, which comes as a call of `look`.
    """

    store: RunStore
    states: SFNClient
    machine: str
    workers: int
    clock: Clock
    remind: Callable[[], None] = lambda: None

    def start(self, bid: Bid, payload: Mapping[str, Any]) -> Start:
        """Start the execution of a run with the input `payload`, now or when there are workers.

        Raises:
            StorageError, ServiceFaultError: the ledger cannot be read or written.
            botocore.exceptions.ClientError: Step Functions refuses.
        """
        ledger = self._drop_ended(read_ledger(self.store))
        held = ledger.held.get(bid.run)
        if held is not None:  # a repeated event, or a function was killed before it could start
            return self._execute(held, payload)
        waiting = {one.run: one for one in ledger.waiting_bids()} | {bid.run: bid}
        admitted = admit(self.workers, ledger.held_bids(), waiting.values())
        if bid not in admitted:
            return self._wait(bid, payload, ledger)
        shares = share_workers(self.workers, [*ledger.held_bids(), *admitted])
        start = self._hold(Entry(bid, self._now(), shares[bid.run]), payload)
        self._move(ledger, shares)
        if ledger.waiting:
            self.balance()
        return start

    def plan(self, bid: Bid) -> int:
        """Put a run's plan in the place of what was held for it; return its workers."""
        ledger = read_ledger(self.store)
        others = [one for one in ledger.held_bids() if one.run != bid.run]
        share = share_workers(self.workers, [*others, bid])[bid.run]
        entry = ledger.held.get(bid.run)
        fresh = Entry(bid, self._now() if entry is None else entry.since, share)
        if entry is None or entry.name != fresh.name:
            write_entry(self.store, fresh)
            if entry is not None:
                self.store.delete([entry.name])
        return share

    def is_at_work(self, run: str) -> bool:
        """Return whether a run has an execution that has not ended, or waits for workers."""
        return run in read_ledger(self.store).waiting or not self._has_ended(run)

    def release(self, run: str) -> None:
        """Give the workers of an execution that ended to others."""
        if drop_run(self.store, run) and self.machine:
            self.balance()

    def count_redrives(self, execution: str) -> int:
        """Return how often an execution was redriven; 0 if Step Functions does not say."""
        try:
            answer = self.states.describe_execution(executionArn=self._execution(execution))
        except (BotoCoreError, ClientError) as error:
            logger.warning("execution is not described", run=execution, error=str(error))
            return 0
        return answer.get("redriveCount", 0)

    def look(self) -> None:
        """Look for entries that were left behind, and remind again while runs wait."""
        ledger = self._drop_ended(read_ledger(self.store))
        for run, entry in ledger.begun.items():
            if run in ledger.held:
                self._admit(entry, ledger.held[run])
        before = self.balance()
        if before.waiting or before.begun:
            self.remind()

    def balance(self) -> Ledger:
        """Start what can be admitted, and move shares; return what the ledger was before.

        Raises:
            StorageError, ServiceFaultError: the ledger cannot be read or written.
        """
        ledger = read_ledger(self.store)
        admitted = admit(self.workers, ledger.held_bids(), ledger.waiting_bids())
        shares = share_workers(self.workers, [*ledger.held_bids(), *admitted])
        for bid in admitted:
            self._admit(ledger.waiting[bid.run], Entry(bid, self._now(), shares[bid.run]))
        self._move(ledger, shares)
        self._measure(len(ledger.waiting) - len(admitted), ledger.oldest)
        return ledger

    def _wait(self, bid: Bid, payload: Mapping[str, Any], ledger: Ledger) -> Start:
        """Let a run wait. A run that ended meanwhile did not see it, so all is looked at again."""
        if bid.run not in ledger.waiting:
            write_entry(self.store, Entry(bid, self._now()), payload)
            logger.info("run is queued", run=bid.run, before=len(ledger.waiting))
        if not ledger.waiting:
            self.remind()
        self.balance()
        return Start.WAITING

    def _admit(self, entry: Entry, held: Entry) -> None:
        """Start the execution of a run that waits; after a fault it goes on waiting."""
        payload = read_payload(self.store, entry)
        if payload is None:
            return
        run = entry.bid.run
        try:
            self._hold(held, payload)
        except (BotoCoreError, ClientError) as error:
            logger.warning("run waits on", run=run, error=str(error))
            return
        drop_run(self.store, run, [WAITING])
        logger.info("run is admitted", run=run, waited=self._now() - entry.since)

    def _hold(self, held: Entry, payload: Mapping[str, Any]) -> Start:
        """Hold workers for a run and start its execution."""
        write_entry(self.store, held)
        try:
            start = self._execute(held, payload)
        except (BotoCoreError, ClientError):
            self.store.delete([held.name])
            raise
        # A repeated event of a run that has ended. If the run is at work, another function
        # admitted it in the same second: the entry is its own.
        if start is Start.KNOWN and self._has_ended(held.bid.run):
            self.store.delete([held.name])
        return start

    def _execute(self, held: Entry, payload: Mapping[str, Any]) -> Start:
        """Start the execution of a run with its workers, unless it exists."""
        try:
            self.states.start_execution(
                stateMachineArn=self.machine,
                name=held.bid.run,
                input=encode(limit_workers(payload, held.share)).decode(),
            )
        except self.states.exceptions.ExecutionAlreadyExists:
            return Start.KNOWN
        return Start.STARTED

    def _move(self, ledger: Ledger, shares: Mapping[str, int]) -> None:
        """Tell Map Runs their share where it changed; those of few workers keep theirs."""
        changed = [
            entry
            for entry in ledger.held.values()
            if entry.bid.workers > MIN_WORKERS
            and not 1 / MOVED <= shares[entry.bid.run] / entry.share <= MOVED
        ]
        changed.sort(key=lambda entry: abs(shares[entry.bid.run] - entry.share), reverse=True)
        for entry in changed[:MAX_MOVES]:
            share = shares[entry.bid.run]
            try:
                moved = self._update_maps(entry.bid.run, share)
            except (BotoCoreError, ClientError) as error:
                logger.warning("share is not changed", run=entry.bid.run, error=str(error))
                continue
            if moved:
                write_entry(self.store, entry._replace(share=share))
                self.store.delete([entry.name])

    def _update_maps(self, run: str, share: int) -> bool:
        """Set the concurrency of an execution's Map Runs; return False if none is at work."""
        maps = self.states.list_map_runs(executionArn=self._execution(run))["mapRuns"]
        at_work = [one["mapRunArn"] for one in maps if "stopDate" not in one]
        for arn in at_work:
            each = max(1, share // len(at_work))
            self.states.update_map_run(mapRunArn=arn, maxConcurrency=each)
        return bool(at_work)

    def _drop_ended(self, ledger: Ledger) -> Ledger:
        """Look at one old entry, and drop it if its execution has ended."""
        old = [run for run, one in ledger.held.items() if one.since < self._now() - OLD_SECONDS]
        if not old:
            return ledger
        run = old[int(random.random() * len(old))]  # noqa: S311 - no secret
        if not self._has_ended(run):
            return ledger
        logger.warning("workers were held for a run that ended", run=run)
        drop_run(self.store, run, [HELD])
        held = {name: entry for name, entry in ledger.held.items() if name != run}
        return replace(ledger, held=held)

    def _has_ended(self, run: str) -> bool:
        """Say whether the execution of a run is known to have ended, or not to exist."""
        try:
            answer = self.states.describe_execution(executionArn=self._execution(run))
        except self.states.exceptions.ExecutionDoesNotExist:
            return True
        except (BotoCoreError, ClientError) as error:
            logger.warning("execution is not described", run=run, error=str(error))
            return False
        return answer["status"] != "RUNNING"

    def _measure(self, waiting: int, oldest: float | None) -> None:
        age = 0.0 if oldest is None or not waiting else max(0.0, self._now() - oldest)
        record_waiting(waiting, age)

    def _execution(self, run: str) -> str:
        return f"{self.machine.replace(':stateMachine:', ':execution:')}:{run}"

    def _now(self) -> int:
        return round(self.clock.now())


def limit_workers(payload: Mapping[str, Any], share: int) -> dict[str, Any]:
    """Return the input of an execution (`executions`) with `share` workers.

    Without a plan it only says how many of them are started beside the planner. If both sides of
    the run are at work at once, each has its part of them, and at least one. Slices only wait
    beside the scans if all of them keep a worker each.
    """
    if "whole_at_once" not in payload:
        return {**payload, "warm": payload["warm"][:share]} if "warm" in payload else dict(payload)
    whole, split = payload["whole_at_once"], payload["slices_at_once"]
    if not payload["split_members"]:
        whole = min(whole, share)
    elif payload.get("inline", {}).get(WorkList.WHOLE) == []:  # nothing beside the split members
        split = min(split, share)
    elif whole + split > share:
        split = max(1, share * split // (whole + split))
        whole = max(1, share - split)
    return {
        **payload,
        "concurrency": min(share, payload["concurrency"]),
        "whole_at_once": whole,
        "scans_at_once": min(split, payload["scans_at_once"]),
        "slices_at_once": split,
        "overlap": payload.get("overlap", False) and split == payload["slices_at_once"],
    }
