"""One archive of a backlog: its version, its number of entries, and whether its run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import NotFoundError
from s3unzip.forecast.census import ArchiveSize
from s3unzip.model import Location, Request, run_id
from s3unzip.operate.backlog.values import BacklogArchive
from s3unzip.planning.parts import read_whole_tail
from s3unzip.settings import Tuning
from s3unzip.stores.calls import Calls
from s3unzip.stores.clock import LocalClock
from s3unzip.zip import TAIL_LENGTH, Limits, count_entries

if TYPE_CHECKING:
    from s3unzip.aws.environment import RunDefaults
    from s3unzip.model import Report
    from s3unzip.operate.runs import DeployedRuns

TAIL = 1_024  # bytes: the end record, and those of ZIP64, unless the archive has a long comment


class LookedAt(NamedTuple):
    """An archive that is there."""

    archive: BacklogArchive
    size: ArchiveSize
    report: Report | None  # of its run, if that ended


class Looker:
    """Looks at archives of an environment; threads may share it."""

    def __init__(self, runs: DeployedRuns, orders: RunDefaults) -> None:
        self._runs = runs
        self._orders = orders

    def look(self, key: str) -> LookedAt | None:
        """Return what is known of the archive `key`; None if it is not there.

        Sends two GETs: of the archive's last bytes and of the report of its run. Archives with long
        comments take one more, split ones a HEAD for each part.

        Raises:
            AccessDeniedError: a right is missing.
            StorageError, ServiceFaultError: the archive or the report cannot be read.
        """
        archive = self.identify(key)
        if archive is None:
            return None
        report = self._runs.records(archive.archive.run).find_report()
        return archive._replace(report=report)

    def identify(self, key: str) -> LookedAt | None:
        """Return the same without the report."""
        source = Location("s3", self._orders.trigger.bucket, key)
        store = self._runs.stores.source(source)
        calls = Calls(LocalClock(), Tuning().retry_seconds, 1)
        try:
            tail = read_whole_tail(store, source, TAIL, Limits().parts, calls)
            entries = count_entries(tail.data)
            if entries is None and tail.pin.size > TAIL:
                tail = read_whole_tail(store, source, TAIL_LENGTH, Limits().parts, calls)
                entries = count_entries(tail.data)
        except NotFoundError:
            return None
        request = Request(source, self._orders.destination, self._orders.options)
        size = tail.pin.size
        archive = BacklogArchive(key, run_id(request, tail.pin), size)
        return LookedAt(archive, ArchiveSize(size, entries), None)
