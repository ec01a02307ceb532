"""How stores are reached, and the stores that a user names: S3, a file or folder, a URL.

Each kind of store is imported when the first location of its kind is opened,
so that ``s3unzip --help`` needs neither botocore nor obstore. A `StoreConfig` can
be sent to a worker process; the `Stores` made of it cannot.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, count, pairwise
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.errors import (
    ConflictError,
    NotFoundError,
    S3UnzipError,
    StorageError,
    UnconfirmedError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.stores.calls import Calls, Kind, LocalClock, count_request
from s3unzip.stores.listing import list_pages
from s3unzip.stores.locations import locate_part, runs_home
from s3unzip.stores.ports import (
    Archive,
    AskForKeys,
    Buffer,
    Destination,
    ObjectFacts,
    RunStore,
    Source,
    Stores,
    Tail,
    Upload,
)
from s3unzip.zip import ByteRange

if TYPE_CHECKING:  # they import botocore, obstore, urllib3
    from s3unzip.stores.s3.credentials import ProfileKeys
    from s3unzip.stores.s3.session import Session
    from s3unzip.stores.web import WebSource

# The options of the command line, where they have names of their own.
OPTIONS = {
    "endpoint_url": "--endpoint-url",
    "region": "--region",
    "profile": "--profile",
    "addressing_style": "--addressing-style",
    "unsigned": "--no-sign-request",
    "request_payer": "--request-payer",
    "destination_endpoint_url": "--dest-endpoint-url",
    "destination_region": "--dest-region",
    "destination_profile": "--dest-profile",
    "destination_unsigned": "--dest-no-sign-request",
    "destination_owner": "--dest-owner",
    "destination_kms_key": "--kms-key",
}
_AWS_NAME = re.compile(r"arn:|[a-z0-9.-]+\Z")
_KMS_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/)?(mrk-)?[0-9a-f-]{32,36}"
    r"|(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[\w/-]+"
)
T = TypeVar("T")
PART = 16 * 1024**2  # of a record: what is gathered before an upload begins, and a part of it
TYPES = {"json": "application/json", "jsonl": "application/jsonl", "html": "text/html"}
RETRY_SECONDS = 60.0  # the budget of one call for records, where no step has another
CALLS_AT_ONCE = 32
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


class StoreConfig(Struct, frozen=True, omit_defaults=True):
    """How stores are reached. It has no secret: credentials come from boto3's chain.

    What is not set for the destination is the same as for the source. A run's records in S3 are
    reached as the destination is. Times are in seconds.
    """

    # Runs are kept below it: a folder, or an S3 prefix that ends in "/".
    work: Location = field(default_factory=runs_home)
    endpoint_url: str | None = None  # of S3; None: AWS, or AWS_ENDPOINT_URL
    region: str | None = None
    profile: str | None = None
    # path or virtual: where requests have the bucket. None: as the configuration says; else S3 of
    # AWS has it in the host name, other servers in the path.
    addressing_style: str | None = None
    unsigned: bool = False  # read the archive without credentials: everybody may
    request_payer: bool = False  # the archive's bucket is Requester Pays; accept to pay
    destination_endpoint_url: str | None = None
    destination_region: str | None = None
    destination_profile: str | None = None
    destination_unsigned: bool = False  # for verify: everybody may read the destination
    destination_owner: str | None = None  # account that must own the destination bucket
    destination_kms_key: str | None = None  # None: the bucket's default encryption
    other_hosts: bool = False  # follow the redirects of a web server to other hosts
    connections: int = 64  # to S3, kept open
    check_reachable: bool = False  # give up at once what cannot be reached at the beginning
    connect_seconds: float = 5.0
    stall_seconds: float = 20.0  # without a byte
    # One PUT of at most some MiB, the sending included; of a part, the sending of 128 KiB, and the
    # answer after it.
    put_seconds: float = 80.0
    slow_seconds: float = 600.0  # UploadPartCopy and Complete: silent while S3 works

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

    def recorded(self) -> StoreConfig:
        """Return what a run's record keeps: no URL with a secret, nothing of this process."""
        return replace(
            self,
            endpoint_url=_drop_secret(self.endpoint_url),
            destination_endpoint_url=_drop_secret(self.destination_endpoint_url),
            connections=64,
            check_reachable=False,
        )

    def typed(self) -> StoreConfig:
        """Return what no variable of the environment sets, so that a command must name it."""
        known = set(map(os.environ.get, VARIABLES))
        return replace(
            self, **{name: None for name in OPTIONS if getattr(self, name) in known - {None}}
        )

    def words(self) -> list[str]:
        """Return the options of a command that reaches the same stores."""
        words: list[str] = []
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            if value is True:
                words.append(option)
            elif value:
                words += [option, value]
        return [*words, "--allow", "other-hosts"] if self.other_hosts else words

    @property
    def copies(self) -> bool:
        """Whether the destination's server and credentials may read the archive, too."""
        there = self.at_destination()
        same = (there.endpoint_url, there.profile) == (self.endpoint_url, self.profile)
        return same and not self.unsigned


def check_buckets(config: StoreConfig, source: Location, destination: Location) -> None:
    """Ask for the buckets of two locations, before workers try them again and again."""
    stores = _Stores(config)
    for location, access in ((source, config), (destination, config.at_destination())):
        if location.scheme == "s3":
            stores.session(access).check_bucket(location.bucket)


def check_names(config: StoreConfig, source: Location, destination: Location | None) -> None:
    """Refuse names that AWS does not have, before anybody is asked for keys."""
    writing = config.at_destination()
    for location, access in ((source, config), (destination, writing)):
        bucket = location.bucket if location is not None and location.scheme == "s3" else ""
        if bucket and not _AWS_NAME.match(bucket) and _reaches_aws(access):
            raise UsageError(
                f"{location}: AWS has no bucket of this name: lower-case letters, digits, dots and "
                "hyphens; --endpoint-url names another server"
            )
    key = config.destination_kms_key
    if key is not None and not _KMS_KEY.fullmatch(key) and _reaches_aws(writing):
        raise UsageError(f"--kms-key {key}: no ARN, no id and no alias (alias/NAME) of a KMS key")


def _reaches_aws(access: StoreConfig) -> bool:
    from s3unzip.stores.s3.credentials import AwsSession, is_aws

    url = access.endpoint_url or AwsSession(access.profile, access.region).own_endpoint
    return url is None or is_aws(url)


def sign_in(config: StoreConfig, destination: Location) -> None:
    """Look for the keys of the destination's own profile, which a person may have to help with."""
    profile = None if config.destination_unsigned else config.destination_profile
    if profile is not None and destination.scheme == "s3":
        from s3unzip.stores.s3.credentials import shared_keys

        shared_keys(profile).current()


def open_stores(
    config: StoreConfig, session: Session | None = None, ask: AskForKeys | None = None
) -> Stores:
    """Return the stores of this process; nothing is asked of them yet.

    Args:
        config: how they are reached.
        session: one of the destination that exists already shares its clients.
        ask: asks the program for keys; None: this process is the program.
    """
    return _Stores(config, session, ask)


class _Stores:
    def __init__(
        self, config: StoreConfig, session: Session | None = None, ask: AskForKeys | None = None
    ) -> None:
        self._config = config
        self._ask = ask
        self._keys: dict[str | None, ProfileKeys] = {}  # by profile, of a worker
        self._there = config.at_destination()
        self._lock = threading.Lock()
        self._sessions = {} if session is None else {_reached(self._there): session}
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
        slash = "" if work.scheme == "s3" or work.key.endswith("/") else "/"
        home = replace(work, key=f"{work.key}{slash}runs/{run}/")
        match work.scheme:
            case "s3":
                from s3unzip.stores.s3.destination import S3Destination
                from s3unzip.stores.s3.source import S3Source

                session = self.session(self._there)
                calls = calls or Calls(LocalClock(), RETRY_SECONDS, CALLS_AT_ONCE)
                there = S3Destination(session, work.bucket, StoreConfig())
                return ObjectRunStore(home, S3Source(session), there, calls)
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


# Archives of several parts


class ArchiveSource:
    """What sources have in common: archives of several parts, and a refusal to change any."""

    def stat(self, location: Location) -> Tail:
        """Return what is there now, as a tail without bytes, with one request."""
        raise NotImplementedError

    def head(self, location: Location) -> Pin:
        """Return the version that is there now, with one request."""
        return self.stat(location).pin

    def open(self, location: Location, pin: Pin) -> Archive:
        """Return a reader of that version of the one object at `location`."""
        raise NotImplementedError

    def tail_by_size(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin: the size is asked first, then a range."""
        count_request("head")
        current = self.stat(location)
        size = current.pin.size
        want = ByteRange(max(0, size - length), size)
        return current._replace(data=self.open(location, current.pin).read(want))

    def pinned(self, location: Location, pin: Pin) -> Archive:
        """Return a reader of exactly that version, of every part."""
        if not pin.parts:
            return self.open(location, pin)
        archives = []
        for number, part in enumerate(pin.parts, 1):
            where = locate_part(location, number, len(pin.parts))
            if where is None:
                raise UsageError(f"{location}: the name does not say where the other parts are")
            archives.append(self.open(where, part))
        return JoinedArchive(archives, [part.size for part in pin.parts])

    def delete(self, location: Location, pin: Pin) -> None:  # noqa: ARG002 - of the port
        """Refuse."""
        raise UsageError(f"{location.public}: only s3:// objects and files can be changed")

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - likewise
        """Refuse."""
        self.delete(location, pin)


class JoinedArchive:
    """Several archives in one address space: each begins where the one before it ends."""

    def __init__(self, archives: Sequence[Archive], sizes: Sequence[int]) -> None:
        self._archives = archives
        self._starts = [0, *accumulate(sizes)]

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request for each part that has some."""
        return b"".join(archive.read(own) for archive, own in self._owners(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request for each part that has some."""
        for archive, own in self._owners(want):
            yield from archive.stream(own)

    def _owners(self, want: ByteRange) -> Iterator[tuple[Archive, ByteRange]]:
        """Yield the parts that have bytes of `want`, and the range in each of them."""
        for archive, (begin, end) in zip(self._archives, pairwise(self._starts), strict=True):
            start, stop = max(want.start, begin), min(want.stop, end)
            if start < stop:
                if start > want.start:
                    count_request("get")
                yield archive, ByteRange(start - begin, stop - begin)


# A run's own objects, below `<home>runs/<run>/`, in whatever store takes members


class ObjectRunStore:
    """The work store of one run; threads may share it.

    Unlike the adapters it goes through `Calls` itself: a write may be many requests of pieces that
    come only once, so its caller could not repeat it.

    Args:
        home: every name begins with its key.
        source: reads what `store` has written.
    """

    def __init__(self, home: Location, source: Source, store: Destination, calls: Calls) -> None:
        self._home, self._source, self._store, self._calls = home, source, store, calls

    def _run(self, kind: Kind, call: Callable[[], T]) -> T:
        return self._calls.run(kind, call, "work")

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        key, facts = self._home.key + name, _facts_of(name)
        bodies = _gather(pieces)
        first, second = next(bodies, b""), next(bodies, None)
        if second is None:
            self._run("put", lambda: self._store.put(key, first, facts, if_absent=False))
            return len(first)
        upload = Upload(key, self._run("create", lambda: self._store.create_upload(key, facts)))
        parts: list[Part] = []
        try:
            for body in chain((first, second), bodies):
                where = upload, len(parts) + 1, sum(part.size for part in parts)
                add = partial(self._store.upload_part, *where, body, zlib.crc32(body))
                parts.append(self._run("part", add))
            self._complete(upload, parts)
        except BaseException as error:
            try:
                self._run("abort", lambda: self._store.abort_upload(upload))
            except S3UnzipError as trouble:  # the lifecycle rule of the bucket drops what stays
                error.add_note(f"and its upload was not aborted: {trouble}")
            raise
        return sum(part.size for part in parts)

    def create(self, name: str, body: bytes) -> None:
        """Write a small object, of all who try at once one."""
        key, facts = self._home.key + name, _facts_of(name)
        self._run("put", lambda: self._store.put(key, body, facts, if_absent=True))

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Write a small object in the place of `old`, and of nothing else."""
        key, facts = self._home.key + name, _facts_of(name)
        stored = self._run("head", lambda: self._store.head(key))
        try:
            if stored is None or self.read(name) != old:
                raise ConflictError(f"{key}: it has changed")
            etag = stored.etag
            self._run("put", lambda: self._store.replace(key, new, facts, etag))
        except NotFoundError as error:
            raise ConflictError(f"{key}: it is gone") from error

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it."""
        if span is not None and span[0] >= span[1]:
            return b""
        key = self._home.key + name
        try:
            data = self._run("get", lambda: b"".join(self._store.read(key, span)))
        except StorageError as error:
            if span is None or type(error) is not StorageError:  # a right, a bucket, an object
                raise
            raise UnreadableRecordError(str(error)) from error  # S3 answers 416: it ends before
        if span is not None and len(data) != span[1] - span[0]:
            raise UnreadableRecordError(f"{key}: its bytes {span} are {len(data)} bytes")
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces; a large body that breaks is read on where it broke."""
        where = replace(self._home, key=self._home.key + name)
        tail = self._run("get", lambda: self._source.tail(where, PART))
        before = ByteRange(0, tail.pin.size - len(tail.data))
        # Its version needs no right of its own: the ETag pins it.
        archive = self._source.pinned(where, replace(tail.pin, version_id=None))
        for piece in self._calls.stream(archive, before, "work"):
            yield bytes(piece)
        yield tail.data

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""
        home = self._home.key
        pages = list_pages(self._store, home + prefix, partial(self._run, "list"))
        keys = sorted(listed.key for page in pages for listed in page.objects)
        for key in keys:
            yield key.removeprefix(home)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        keys = [self._home.key + name for name in names]
        if keys:
            self._run("delete", lambda: self._store.delete(keys))

    def _complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        """Complete an upload.

        The store may have completed it and its answer may be lost. Then the next attempt finds no
        upload, and the object's size tells.
        """
        size = sum(part.size for part in parts)
        attempts = count(1)

        def complete_once() -> None:
            is_first = next(attempts) == 1
            try:
                self._store.complete_upload(upload, parts, if_absent=False)
            except (NotFoundError, UnconfirmedError) as error:
                if is_first and isinstance(error, NotFoundError):
                    raise
                count_request("head")
                stored = self._store.head(upload.key)
                if stored is None or stored.size != size:
                    raise

        self._run("complete", complete_once)


def _drop_secret(url: str | None) -> str | None:
    """Return the URL, None if it holds a password or a signed query."""
    parts = urlsplit(url or "")
    has_secret = parts.query or "@" in parts.netloc
    return None if has_secret else url


def _facts_of(name: str) -> ObjectFacts:
    return ObjectFacts(TYPES.get(name.rpartition(".")[2], "application/octet-stream"), {})


def _gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in bodies of at least `PART` bytes, the last one excepted."""
    body = bytearray()
    for piece in pieces:
        body += piece
        if len(body) >= PART:
            yield bytes(body)
            body.clear()
    if body:
        yield bytes(body)
