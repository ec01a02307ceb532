"""Where everything is in S3: the stores of a Lambda, and S3's part of the command line's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from s3unzip.stores.disposal.objects import S3Disposal
from s3unzip.stores.parts import PartsSource
from s3unzip.stores.s3.access import S3Access, Writing
from s3unzip.stores.s3.destination import S3Destination
from s3unzip.stores.s3.run_store import S3RunStore
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import S3Source

if TYPE_CHECKING:
    from s3unzip.model import Location
    from s3unzip.stores.calls import Calls


class S3Stores:
    """Opens S3 locations, all through one session or two; one per process.

    Args:
        work: the prefix that runs are kept below.
        access: how S3 is reached.
        writing: how members are stored; the run's own objects follow the work bucket's defaults.
        session: one that exists already shares its clients.
        reading: how archives are reached, if otherwise than the rest. If `access` may not read
            them, `writing` says that nothing is copied.
    """

    def __init__(
        self,
        work: Location,
        *,
        access: S3Access | None = None,
        writing: Writing | None = None,
        session: Session | None = None,
        reading: S3Access | None = None,
    ) -> None:
        self.session = session or Session(access or S3Access())
        self._work = work
        self._writing = writing or Writing()
        reader = self.session if reading is None else Session(reading)
        self._source = PartsSource(S3Source(reader))
        self._disposal = S3Disposal(reader)
        self._destinations: dict[str, S3Destination] = {}
        self._lock = threading.Lock()

    def source(self, location: Location) -> PartsSource:  # noqa: ARG002 - one reads all buckets
        """Return the adapter that reads `location`."""
        return self._source

    def destination(self, location: Location) -> S3Destination:
        """Return the adapter that writes to the bucket of `location`."""
        with self._lock:
            found = self._destinations.get(location.bucket)
            if found is None:
                found = S3Destination(self.session, location.bucket, self._writing)
                self._destinations[location.bucket] = found
            return found

    def disposal(self, location: Location) -> S3Disposal:  # noqa: ARG002 - one for all buckets
        """Return the adapter that deletes, moves or tags archives."""
        return self._disposal

    def run_store(self, run: str, calls: Calls | None = None) -> S3RunStore:
        """Return the run store of one run; `calls` retries and counts what is asked of it."""
        store = S3Destination(self.session, self._work.bucket)
        prefix = f"{self._work.key}runs/{run}/"
        return S3RunStore(self.session, self._work.bucket, prefix, store, calls)
