"""Open the store for a location, and check buckets, names and keys before a run begins.

The adapter of a store is imported when the first location in that store is opened, so that
``s3unzip --help`` needs neither botocore nor obstore. A worker process receives a `StoreConfig` and
opens stores of its own.

If the log level is DEBUG (``-vv``) when an adapter is opened, the adapter logs the kind, the
object, the result and the duration of each attempt. Requests for the records of runs are not
logged.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Never, TypeVar

from msgspec.structs import replace

from s3unzip.errors import S3UnzipError, UsageError
from s3unzip.model import Location, Part
from s3unzip.settings import Tuning
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import (
    AskForKeys,
    Buffer,
    Clock,
    Destination,
    ListPage,
    ObjectFacts,
    Upload,
)
from s3unzip.stores.run_store import ObjectRunStore

if TYPE_CHECKING:  # importing these modules would import botocore, obstore and urllib3
    from s3unzip.stores.s3.session import Session
    from s3unzip.stores.web import WebSource

NOWHERE = Location("nowhere", "", "")  # objects written to this location are discarded
# Returns the settings of a `StoreConfig` that a session depends on.
_session_key = attrgetter(
    *("endpoint_url", "region", "addressing_style", "profile", "unsigned", "request_payer")
)
T = TypeVar("T")
_log = logging.getLogger("s3unzip.requests")
# The pattern is compiled on first use, because the Lambda functions do not need it.
_KMS_KEY = (
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/)?(mrk-)?[0-9a-f-]{32,36}"
    r"|(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[\w/-]+"
)


# The text to log for a call, by method; `root` is the location of the bucket, "s3://bucket/".
_SOURCE_TEXTS = {
    "tail": "get {location} last {length} bytes",
    "stat": "head {location}",
    "stream": "get {location} bytes [{want.start}, {want.stop})",
    "delete": "delete {location}",
    "tag": "put tags of {location}",
    "tags": "get tags of {location}",
}
_DESTINATION_TEXTS = {
    "put": "put {root}{key}",
    "head": "head {root}{key}",
    "list_page": "list {root}{prefix}",
    "read": "get {root}{key}",
    "delete": "delete {root}{keys[0]} and the keys after it",
    "create_upload": "create {root}{key}",
    "upload_part": "part {number} of {root}{upload.key}",
    "copy_part": "copy part {number} of {root}{upload.key} from bytes [{span.start}, {span.stop})",
    "complete_upload": "complete {root}{upload.key}",
    "abort_upload": "abort {root}{upload.key}",
    "uploads": "list uploads of {root}{prefix}",
}


class NowhereDestination(Destination):
    """Accepts every object and discards it."""

    def _ignore(self, *_: object, **__: object) -> None:
        """Do nothing, because there are no objects."""

    head = put = replace = delete = complete_upload = abort_upload = _ignore

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        return [], None

    def _list_nothing(self, *_: object, **__: object) -> Iterator[Never]:
        yield from ()

    read = uploads = _list_nothing

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        return key  # uploads do not need real ids

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        return Part(number, "", memoryview(body).nbytes, crc32)


class OpenedStores:
    """The stores of this process; opening them sends no request.

    Args:
        config: settings for reaching the stores.
        destination_session: existing session for the destination; a source with equal settings
            shares it.
        ask: function that requests keys from the main process. None in the main process itself.
    """

    def __init__(
        self,
        config: StoreConfig,
        destination_session: Session | None = None,
        ask: AskForKeys | None = None,
    ) -> None:
        self._config = config
        self._ask_main_process = ask
        self._lock = threading.Lock()
        self._sessions: dict[tuple[object, ...], Session] = {}  # keyed by `_session_key`
        if destination_session is not None:
            self._sessions[_session_key(config.at_destination())] = destination_session
        self._web: WebSource | None = None

    def end_startup(self) -> None:
        """Note that each server has responded, so that later faults of a server are retried."""
        with self._lock:
            self._config = replace(self._config, check_reachable=False)
            for client in (self._web, *self._sessions.values()):
                if client is not None:
                    client.startup_ends = 0.0  # a time in the past

    def source(self, location: Location) -> Source:
        match location.scheme:
            case "s3":
                from s3unzip.stores.s3.source import S3Source

                return _traced(S3Source(self.session(self._config)), _SOURCE_TEXTS)
            case "file":
                from s3unzip.stores.files import FileSource

                return _traced(FileSource(), _SOURCE_TEXTS)
            case "http" | "https":
                from s3unzip.stores.web import WebSource

                # All archives on the web share one source with its connections.
                with self._lock:
                    if self._web is None:
                        self._web = _traced(WebSource(self._config), _SOURCE_TEXTS)
                return self._web
            case _:
                raise UsageError(
                    f"{location}: a source must be a path, or an s3:// or http(s):// URL"
                )

    def destination(self, location: Location) -> Destination:
        match location.scheme:
            case "s3":
                from s3unzip.stores.s3.destination import S3Destination

                # The session uses the endpoint and credentials of the destination. The adapter gets
                # the whole configuration, because copies also depend on the settings of the source.
                bucket = S3Destination(
                    self.session(self._config.at_destination()), location.bucket, self._config
                )
                return _traced(bucket, _DESTINATION_TEXTS, f"s3://{location.bucket}/")
            case "file":
                from s3unzip.stores.folder import FolderDestination

                return _traced(FolderDestination(location.key), _DESTINATION_TEXTS)
            case "nowhere":
                return NowhereDestination()
            case _:
                raise UsageError(f"{location}: a destination must be an s3:// URL or a path")

    def run_store(self, run: str, calls: Calls | None = None) -> ObjectRunStore:
        """Return the run store of one run, which sends its requests through `calls`.

        If `calls` is None, a new `Calls` is created. The limit `at_once` does not matter, because
        requests for records are not paced.
        """
        work = self._config.work
        key = work.key
        if work.store.has_folders and not key.endswith("/"):
            key += "/"
        home = replace(work, key=f"{key}runs/{run}/")
        match work.scheme:
            case "s3":
                from s3unzip.stores.s3.destination import S3Destination
                from s3unzip.stores.s3.source import S3Source

                # Records are accessed with the settings of the destination, except the
                # settings for members (owner, KMS key, copies).
                session = self.session(self._config.at_destination())
                calls = calls or Calls(Clock(), Tuning().retry_seconds, at_once=1)
                bucket = S3Destination(session, work.bucket, StoreConfig())
                return ObjectRunStore(home, S3Source(session), bucket, calls)
            case "file":
                from s3unzip.stores.files import FileSource
                from s3unzip.stores.folder import FolderDestination

                folder = FolderDestination(home.key, private=True)
                # Files need no requests. `calls` is not used, because its counts are reported as
                # requests.
                return ObjectRunStore(home, FileSource(), folder, Calls(Clock(), 0.0, at_once=1))
            case _:
                raise UsageError(f"{work}: the records of runs require an s3:// URL or a path")

    def session(self, access: StoreConfig) -> Session:
        """Return the session for reaching S3 with `access`; equal settings share a session."""
        from s3unzip.stores.s3.aws_session import AwsSession
        from s3unzip.stores.s3.session import Session

        key = _session_key(access)
        with self._lock:
            if key not in self._sessions:
                # The advice for an unreachable server names this option.
                option = "--endpoint-url"
                is_destination = key == _session_key(self._config.at_destination())
                if is_destination and self._config.destination_endpoint_url is not None:
                    option = "--dest-endpoint-url"
                self._sessions[key] = Session(AwsSession(access, self._ask_main_process), option)
            return self._sessions[key]


def check_buckets(config: StoreConfig, source: Location, destination: Location) -> None:
    """Send a request to each bucket; raise an error if a bucket is missing or unreachable.

    Locations outside S3 are not checked. The main process calls this function once, so that its
    workers need not check the buckets.
    """
    stores = OpenedStores(config)
    for location, access in ((source, config), (destination, config.at_destination())):
        if location.store.takes_s3_options:
            stores.session(access).check_bucket(location.bucket)


def check_names(config: StoreConfig, source: Location, destination: Location | None) -> None:
    """Refuse names of buckets and KMS keys that AWS does not allow.

    The check sends no request, and never asks the user for an MFA code.
    """
    access_to_destination = config.at_destination()
    for location, access in ((source, config), (destination, access_to_destination)):
        if location is None or not location.store.takes_s3_options:
            continue
        if not re.match(r"arn:|[a-z0-9.-]+\Z", location.bucket) and reaches_aws(access):
            raise UsageError(
                f"{location}: AWS has no bucket of this name: lower-case letters, digits, dots and "
                "hyphens; --endpoint-url names another server"
            )
    key = config.destination_kms_key
    if (
        key is not None
        and not re.fullmatch(_KMS_KEY, key)
        # The key is sent in a header, so no server accepts characters that cannot be printed.
        and (reaches_aws(access_to_destination) or not key.isprintable())
    ):
        raise UsageError(f"--kms-key {key}: no ARN, no id and no alias (alias/NAME) of a KMS key")


def reaches_aws(access: StoreConfig) -> bool:
    """Return whether requests with the settings `access` go to AWS, and not to another server."""
    from s3unzip.stores.s3.aws_session import AwsSession

    return AwsSession(access).reaches_aws


def sign_in(config: StoreConfig, destination: Location) -> None:
    """Look up the keys of the destination's own profile before the run.

    The profile may need an MFA code, and the user is never asked for a code during a run.
    """
    has_own_keys = config.destination_profile is not None and not config.destination_unsigned
    if has_own_keys and destination.store.takes_s3_options:
        from s3unzip.stores.s3.credentials import shared_keys

        shared_keys(config.destination_profile).current()  # later lookups return the same keys


def _traced(adapter: T, texts: Mapping[str, str], root: str = "") -> T:
    """Return `adapter`; at log level DEBUG, make it log each attempt at a request.

    Args:
        adapter: source or destination.
        texts: texts to log for a call, by method.
        root: location of the bucket, to be logged before each key.
    """
    if _log.isEnabledFor(logging.DEBUG):
        for name, text in texts.items():
            setattr(adapter, name, _log_calls(getattr(adapter, name), text, root))
    return adapter


def _log_calls(method: Callable[..., Any], text: str, root: str) -> Callable[..., Any]:
    """Return a method that calls `method`, and logs the end of the call or of the generator.

    Args:
        text: format string of the message. Its fields are `root` and the parameters of the method.
        root: location of the bucket, to be logged before each key.
    """
    import inspect

    signature = inspect.signature(method)

    def describe(*arguments: object, **options: object) -> str:
        return text.format(root=root, **signature.bind(*arguments, **options).arguments)

    def call(*arguments: object, **options: object) -> Any:
        with _logged(describe(*arguments, **options)):
            return method(*arguments, **options)

    def stream(*arguments: object, **options: object) -> Iterator[Any]:
        with _logged(describe(*arguments, **options)):
            yield from method(*arguments, **options)

    if inspect.isgeneratorfunction(method):
        return stream
    return call


@contextmanager
def _logged(request: str) -> Iterator[None]:
    began = time.monotonic()
    status = "ok"  # remains if the consumer closes a stream early
    try:
        yield
    except S3UnzipError as error:
        status = str(error)
        raise
    finally:
        _log.debug("%s: %s, %.0f ms", request, status, 1000 * (time.monotonic() - began))
