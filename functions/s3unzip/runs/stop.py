"""Stopping a whole run: what one task meets that no other should meet again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    SourceChangedError,
    StorageError,
    StoreFullError,
)
from s3unzip.model import Stop, Verdict, decode, encode

if TYPE_CHECKING:
    from s3unzip.stores.ports import RunStore

REASONS: dict[type[StorageError], str] = {
    SourceChangedError: "source-changed",
    AccessDeniedError: "access-denied",
    NotFoundError: "not-found",
    StoreFullError: "store-full",
}
RUN_FAULTS = tuple(REASONS)


def write_stop(work: RunStore, fault: StorageError) -> Stop:
    """Leave word for all other tasks of the run; return it."""
    changed = isinstance(fault, SourceChangedError)
    verdict = Verdict.SOURCE_CHANGED if changed else Verdict.FAILED
    stop = Stop(verdict, REASONS.get(type(fault), "storage"), str(fault))
    work.write(run_files.STOP, [encode(stop)])
    return stop


def read_stop(work: RunStore) -> Stop | None:
    """Return why the run must end, None if it need not."""
    try:
        return decode(work.read(run_files.STOP), Stop)
    except NotFoundError:
        return None
