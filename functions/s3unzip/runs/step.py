"""One step of a run: a plan, a scan, a link, a task or a report, with what it works with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from s3unzip.context import Context
from s3unzip.errors import (
    AccessDeniedError,
    DeadlineError,
    Finding,
    NotFoundError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
    StoreFullError,
    StoreRefusesError,
)
from s3unzip.model import PlannedMember, Run, Stop, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.stores.calls import Calls


class Step:
    """What a step has: its run, the run's records, its calls, and what it read and noted.

    Args:
        run: the run.
        name: of the step, for messages; of a task or scan, its id.
        context: of the worker.
        calls: retries and counts the requests of this step.
    """

    def __init__(self, run: Run, name: str, context: Context, calls: Calls) -> None:
        stores = context.stores
        self.run = run
        self.name = name
        self.context = context
        self.calls = calls
        self.started = context.clock.now()  # Unix seconds
        self.records = RunRecords.open(stores, run.id, calls)
        self.archive = stores.source(run.source).pinned(run.source, run.pin)
        self.destination = stores.destination(run.destination)
        self.bytes_read = 0  # of the archive
        self.warnings: Counter[str] = Counter()  # by code

    def read_rows(self, span: tuple[int, int]) -> list[PlannedMember]:
        """Return the members of a task: those in bytes [start, stop) of the member list."""
        return self.records.read_rows(span, self.run.key_prefix)

    def add_read(self, count: int) -> None:
        """Count bytes that were read of the archive."""
        self.bytes_read += count

    def warned(self, findings: Iterable[Finding]) -> None:
        """Count warnings by their code."""
        for finding in findings:
            self.warnings[finding.code] += 1

    def check_time(self) -> None:
        """Check that the worker may go on."""
        margin = self.context.tuning.margin_seconds
        if self.context.clock.remaining() < margin:
            raise DeadlineError(f"{self.name}: {margin:.0f} s before the worker's time limit")


SOURCE_CHANGED = "source-changed"
STOPPED = "stopped"  # the reason of a run that its user stopped
REASONS: dict[type[StorageError], str] = {
    SourceChangedError: SOURCE_CHANGED,
    AccessDeniedError: "access-denied",
    NotFoundError: "not-found",
    StoreFullError: "store-full",
    StoreRefusesError: "storage",
}
RUN_FAULTS = tuple(REASONS)


@contextmanager
def stops_run(
    records: RunRecords, step: str, find_stop: Callable[[], Stop | None] | None = None
) -> Iterator[None]:
    """Do a step, unless the run must end; write down what the step meets that must end the run.

    Args:
        records: of the run.
        step: its name, for messages.
        find_stop: says why the run must end, if the caller has read that; None: it is read here.
    """
    stop = (find_stop or records.find_stop)()
    if stop is not None:
        raise RunStoppedError(f"{step}: not begun, for the run met {stop.reason}")
    try:
        yield
    except RUN_FAULTS as fault:
        records.write_stop(stop_for(fault))
        raise


def stop_for(fault: StorageError) -> Stop:
    """Return why a run must end that met `fault`."""
    changed = isinstance(fault, SourceChangedError)
    verdict = Verdict.SOURCE_CHANGED if changed else Verdict.FAILED
    return Stop(verdict, REASONS[type(fault)], str(fault))
