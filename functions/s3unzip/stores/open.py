"""Open the store that a location names.

Each kind of store is imported when the first location of its kind is opened, so that
``s3unzip --help`` needs neither botocore nor obstore. A `StoreConfig` can be sent to a worker
process; the stores that are opened by it cannot.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import Location
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import AskForKeys, Destination, RunStore, Source
from s3unzip.stores.run_store import ObjectRunStore

if TYPE_CHECKING:  # they import botocore, obstore, urllib3
    from s3unzip.stores.s3.credentials import ProfileKeys
    from s3unzip.stores.s3.session import Session
    from s3unzip.stores.web import WebSource

RETRY_SECONDS = 60.0  # the default budget of a request for records
CALLS_AT_ONCE = 32


def open_stores(
    config: StoreConfig, session: Session | None = None, ask: AskForKeys | None = None
) -> Stores:
    """Return the stores of this process, as `OpenedStores` says."""
    return OpenedStores(config, session, ask)


class OpenedStores:
    """The stores of this process; no request is sent before they are used.

    Args:
        config: how they are reached.
        session: one of the destination that exists already shares its clients.
        ask: asks the program for keys; None: this process is the program.
    """

    def __init__(
        self, config: StoreConfig, session: Session | None = None, ask: AskForKeys | None = None
    ) -> None:
        self._config = config
        self._ask = ask
        self._keys: dict[str | None, ProfileKeys] = {}  # by profile, of a worker
        self._there = config.at_destination()
        self._lock = threading.Lock()
        self._sessions: dict[tuple[object, ...], Session] = {}
        if session is not None:
            self._sessions[_reached(self._there)] = session
        self._web: WebSource | None = None

    def source(self, location: Location) -> Source:
        """Return the adapter that reads `location`."""
        match location.scheme:
            case "s3":
                from s3unzip.stores.s3.source import S3Source

                return S3Source(self.session(self._config))
            case "file":
                from s3unzip.stores.files import FileSource

                return FileSource()
            case "http" | "https":
                from s3unzip.stores.web import WebSource

                with self._lock:
                    self._web = self._web or WebSource(self._config)
                return self._web
            case _:
                raise UsageError(f"{location}: sources are s3://, paths, http:// and https://")

    def destination(self, location: Location) -> Destination:
        """Return the adapter that writes below `location`."""
        match location.scheme:
            case "s3":
                from s3unzip.stores.s3.destination import S3Destination

                return S3Destination(self.session(self._there), location.bucket, self._config)
            case "file":
                from s3unzip.stores.folder import FolderDestination

                return FolderDestination(location.key)
            case "nowhere":
                from s3unzip.stores.memory import NowhereDestination

                return NowhereDestination()
            case _:
                raise UsageError(f"{location}: destinations are s3:// and paths")

    def run_store(self, run: str, calls: Calls | None = None) -> RunStore:
        """Return the run store of one run; `calls` retries and counts requests to S3."""
        work = self._config.work
        key = work.key
        if work.store.has_folders and not key.endswith("/"):
            key += "/"
        home = replace(work, key=f"{key}runs/{run}/")
        match work.scheme:
            case "s3":
                from s3unzip.stores.s3.destination import S3Destination
                from s3unzip.stores.s3.source import S3Source

                session = self.session(self._there)
                calls = calls or Calls(LocalClock(), RETRY_SECONDS, CALLS_AT_ONCE)
                bucket = S3Destination(session, work.bucket, StoreConfig())
                return ObjectRunStore(home, S3Source(session), bucket, calls)
            case "file":
                from s3unzip.stores.files import FileSource
                from s3unzip.stores.folder import FolderDestination

                folder = FolderDestination(home.key, private=True)
                calls = Calls(LocalClock(), 0.0, CALLS_AT_ONCE)  # nothing is a request
                return ObjectRunStore(home, FileSource(), folder, calls)
            case _:
                raise UsageError(f"{work}: runs are kept in s3:// or a path")

    def session(self, access: StoreConfig) -> Session:
        """Return the clients that reach S3 so; those of archive and destination may be the same."""
        from s3unzip.stores.s3.credentials import AwsSession, ProfileKeys
        from s3unzip.stores.s3.session import Session, advice_for

        key = _reached(access)
        with self._lock:
            if key not in self._sessions:
                keys = None
                if self._ask is not None:
                    new = ProfileKeys(access.profile, self._ask)
                    keys = self._keys.setdefault(access.profile, new)
                aws = AwsSession(access.profile, access.region, keys)
                advice = advice_for(self._config, destination=key == _reached(self._there))
                self._sessions[key] = Session(access, aws, advice)
            return self._sessions[key]


def _reached(config: StoreConfig) -> tuple[object, ...]:
    """Return what a session depends on."""
    who = config.profile, config.unsigned, config.request_payer
    return config.endpoint_url, config.region, config.addressing_style, *who
