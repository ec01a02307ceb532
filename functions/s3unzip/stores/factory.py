"""Open the stores that a user names: S3, a file or folder, a URL.

Each kind of store is imported when the first location of its kind is opened,
so that ``s3unzip --help`` needs neither boto3 nor obstore. A `StoreConfig` can
be sent to a worker process; the `Stores` made of it cannot.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.stores.home import runs_home
from s3unzip.stores.parts import PartsSource
from s3unzip.stores.web.access import WebAccess

if TYPE_CHECKING:
    from s3unzip.model import Location
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.disposal_port import Disposal
    from s3unzip.stores.ports import Destination, RunStore, Source, Stores
    from s3unzip.stores.s3.access import S3Access
    from s3unzip.stores.s3.stores import S3Stores
    from s3unzip.stores.spool.spooled_archive import SpooledArchive
    from s3unzip.stores.web.source import WebSource

DESTINATION_ADVICE = "check --dest-endpoint-url, --region and the network"


class StoreConfig(Struct, frozen=True):
    """How stores are reached. It has no secret: credentials come from boto3's chain.

    What is not set for the destination is the same as for the source. A run's records in S3 are
    reached as the destination is.
    """

    # Runs are kept below it: a folder, or an S3 prefix that ends in "/".
    work: Location = field(default_factory=runs_home)
    endpoint_url: str | None = None  # of S3; None: AWS, or AWS_ENDPOINT_URL
    region: str | None = None
    profile: str | None = None
    unsigned: bool = False  # read the archive without credentials: everybody may
    request_payer: bool = False  # the archive's bucket is Requester Pays; accept to pay
    destination_endpoint_url: str | None = None
    destination_region: str | None = None
    destination_profile: str | None = None
    destination_unsigned: bool = False  # for verify: everybody may read the destination
    destination_owner: str | None = None  # account that must own the destination bucket
    destination_kms_key: str | None = None  # None: the bucket's default encryption
    connections: int = 64  # to S3, kept open
    check_reachable: bool = False  # give up at once where S3 cannot be reached at the beginning
    web: WebAccess = field(default_factory=WebAccess)
    spooled: SpooledArchive | None = None  # read from a temporary file instead of its location

    def at_destination(self) -> StoreConfig:
        """Return how an archive is reached that is an object of the destination."""
        return replace(
            self,
            endpoint_url=self.destination_endpoint_url or self.endpoint_url,
            region=self.destination_region or self.region,
            profile=self.destination_profile or self.profile,
            unsigned=self.destination_unsigned,
            request_payer=False,
            destination_endpoint_url=None,
            destination_region=None,
            destination_profile=None,
        )

    @property
    def copies(self) -> bool:
        """Whether the destination's server and credentials may read the archive, too."""
        there = self.at_destination()
        same = (there.endpoint_url, there.profile) == (self.endpoint_url, self.profile)
        return same and not self.unsigned


def _s3_access(config: StoreConfig) -> S3Access:
    """Return how the source of `config` is reached in S3."""
    from s3unzip.stores.s3.access import S3Access

    return S3Access(
        config.endpoint_url,
        config.region,
        config.profile,
        connections=config.connections,
        check_reachable=config.check_reachable,
        unsigned=config.unsigned,
        request_payer=config.request_payer,
    )


def _destination_access(config: StoreConfig) -> S3Access:
    """Return how the destination of `config` is reached in S3."""
    access = _s3_access(config.at_destination())
    if config.destination_endpoint_url is not None:
        access = replace(access, advice=DESTINATION_ADVICE)
    return access


def check_reachable(config: StoreConfig, source: Location, destination: Location) -> None:
    """Connect to the S3 endpoints of two locations, before workers try them again and again.

    Raises:
        StorageError: one of them cannot be connected to.
    """
    ends = ((source, _s3_access), (destination, _destination_access))
    for location, access_of in ends:
        if location.scheme == "s3":
            from s3unzip.stores.s3.session import Session

            Session(access_of(config)).check_reachable(location.bucket)


def open_stores(config: StoreConfig) -> Stores:
    """Return the stores of this process; nothing is asked of them yet."""
    return _Stores(config)


class _Stores:
    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._s3: S3Stores | None = None
        self._web: WebSource | None = None
        self._folders: dict[str, Destination] = {}

    def source(self, location: Location) -> Source:
        """Return the adapter that reads `location`."""
        kept = self._config.spooled
        if kept is not None and location == kept.location:
            from s3unzip.stores.spool.source import SpooledSource

            return SpooledSource(kept)
        match location.scheme:
            case "s3":
                return self._open_s3().source(location)
            case "file":
                from s3unzip.stores.folder.source import FileSource

                return PartsSource(FileSource())
            case "http" | "https":
                return PartsSource(self._open_web())
            case "stdin":
                raise UsageError("-: only the command line reads standard input; see open_archive")
            case _:
                raise UsageError(f"{location}: sources are s3://, paths, http:// and https://")

    def destination(self, location: Location) -> Destination:
        """Return the adapter that writes below `location`."""
        match location.scheme:
            case "s3":
                return self._open_s3().destination(location)
            case "file":
                return self._open_folder(location.key)
            case "nowhere":
                from s3unzip.stores.nowhere import NowhereDestination

                return NowhereDestination()
            case _:
                raise UsageError(f"{location}: destinations are s3:// and paths")

    def disposal(self, location: Location) -> Disposal:
        """Return the adapter that deletes, moves or tags the archive at `location`.

        Raises:
            UsageError: nothing there can be changed.
        """
        match location.scheme:
            case "s3":
                return self._open_s3().disposal(location)
            case "file":
                from s3unzip.stores.disposal.files import FileDisposal

                return FileDisposal()
            case _:
                raise UsageError(f"{location.public}: only s3:// objects and files can be changed")

    def run_store(self, run: str, calls: Calls | None = None) -> RunStore:
        """Return the run store of one run; `calls` retries and counts what is asked of it."""
        match self._config.work.scheme:
            case "s3":
                return self._open_s3().run_store(run, calls)
            case "file":
                from s3unzip.stores.folder.run_store import FolderRunStore

                return FolderRunStore(self._config.work.key, run)
            case _:
                raise UsageError(f"{self._config.work}: runs are kept in s3:// or a path")

    def _open_s3(self) -> S3Stores:
        from s3unzip.stores.s3.access import Writing
        from s3unzip.stores.s3.stores import S3Stores

        config = self._config
        with self._lock:
            if self._s3 is None:
                reading, access = _s3_access(config), _destination_access(config)
                writing = Writing(
                    config.destination_owner,
                    config.destination_kms_key,
                    copies=config.copies,
                    copies_pay=config.request_payer,
                )
                self._s3 = S3Stores(
                    config.work,
                    access=access,
                    writing=writing,
                    reading=None if reading == access else reading,
                )
            return self._s3

    def _open_web(self) -> WebSource:
        from s3unzip.stores.web.source import WebSource

        with self._lock:
            if self._web is None:
                access = replace(self._config.web, check_reachable=self._config.check_reachable)
                self._web = WebSource(access)
            return self._web

    def _open_folder(self, root: str) -> Destination:
        from s3unzip.stores.folder.destination import FolderDestination

        with self._lock:
            if root not in self._folders:
                self._folders[root] = FolderDestination(root)
            return self._folders[root]
