"""Stopping a whole run: what one step meets that no other step should meet again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
    StoreFullError,
    StoreRefusesError,
)
from s3unzip.model import Stop, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.runs.records import RunRecords

STOPPED = "stopped"  # the reason of a run that its user stopped
REASONS: dict[type[StorageError], str] = {
    SourceChangedError: "source-changed",
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

    Raises:
        RunStoppedError: another step met it.
        SourceChangedError, AccessDeniedError, ...: this step met it; it is on record.
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
