"""The records of a run as its operator reads them: separate objects, or one bundle.

A direct run writes ``report.json`` like every run, and all other records into one object that the
report names. `unpack_records` writes these records as separate objects, because the functions read
nothing else. An active direct run has a claim and no records.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.aws.intake.claims import RUNNING, claim_name, list_direct_runs
from s3unzip.direct.bundle import unpack
from s3unzip.errors import NotFoundError
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from s3unzip.direct.bundle import Bundle
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.stores.ports import RunStore


class BundledRunStore:
    """One run's records: its separate objects first, then the objects of its bundle."""

    def __init__(self, store: RunStore, read_bundle: Callable[[str], bytes]) -> None:
        self._store = store
        self._read_bundle = read_bundle  # by what `Report.records` says
        self._known: Bundle | None = None

    @property
    def bundle(self) -> Bundle:
        """The records in the bundle; empty for a run of the state machine and for an active run."""
        if self._known is None:
            report = RunRecords(self._store).find_report()
            if report is None:
                return {}  # an active run may have one later
            self._known = {}
            if report.records is not None:
                self._known = unpack(self._read_bundle(report.records))[1]
        return self._known

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        return self._store.write(name, pieces)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it.

        Raises:
            NotFoundError: there is no such object.
        """
        try:
            return self._store.read(name, span)
        except NotFoundError:
            data = None if name == run_files.REPORT else self.bundle.get(name)
            if data is None:
                raise
            return data if span is None else data[span[0] : span[1]]

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces."""
        try:
            yield from self._store.stream(name)
        except NotFoundError:
            if name not in self.bundle:
                raise
            yield self.bundle[name]

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""
        bundled = {name for name in self.bundle if name.startswith(prefix)}
        yield from sorted(bundled.union(self._store.names(prefix)))

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects that are not in the bundle; nothing happens if they are gone."""
        self._store.delete(names)

    def unpack_records(self) -> None:
        """Write each record of the bundle as a separate object, unless that object exists."""
        there = set(self._store.names(""))
        for name, data in self.bundle.items():
            if name not in there:
                self._store.write(name, [data])


MAX_CLAIMS = 1_000  # of the latest that are looked through


def is_claimed(runs: DeployedRuns, run: str) -> bool:
    """Return whether a function may be at work on `run` as a direct run.

    Raises:
        AccessDeniedError: a right is missing.
    """
    listed = list_direct_runs(runs.stores.session.control, runs.work_location, MAX_CLAIMS)
    started = next((one.started for one in listed if (one.id, one.state) == (run, RUNNING)), None)
    if started is None or runs.records(run).exists():  # executions and refusals have records
        return False
    claim, _ = unpack(runs.stores.run_store(run_files.CLAIMS).read(claim_name(run, started)))
    return claim.until > time.time()
