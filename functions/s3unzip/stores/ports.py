"""The interfaces of stores and the clock. `archives.Source` is the interface of archives.

Each method of a source or destination is ONE attempt: `stores.calls` retries, paces and counts. A
run store takes the `Calls` of the step that opens it, because one write may take many requests,
whose bodies can be read only once. Its callers do not retry it. Adapters turn every fault into an
error of the tree in `errors`:

* 503, 429, SlowDown, KMS throttling: `ThrottledError`
* other 5xx, 409, resets, timeouts, truncated bodies: `ServiceFaultError`
* expired tokens: `ServiceFaultError` if new ones may come soon, else `ExpiredKeysError`
* 403, wrong owner, KMS denied or disabled: `AccessDeniedError`, which names the missing right
* 404: `NotFoundError`
* a pinned read answered with 412 or 404: `SourceChangedError`
* 412 on a conditional write: `ConflictError`
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from s3unzip.errors import UnsupportedError
from s3unzip.finding import Finding
from s3unzip.model import Location, Part, Pin
from s3unzip.zip import ByteRange, Disks, Policy, Reads, locate_directory
from s3unzip.zip.directory import DirectoryLocation

Buffer: TypeAlias = bytes | bytearray | memoryview
PIECE = 1024 * 1024  # bytes of a streamed piece
# Requests as they are counted, and the stores of a run.
Kind = Literal[
    "get", "put", "head", "list", "create", "part", "copy", "complete", "abort", "delete"
]
Store = Literal["source", "destination", "work"]


class Clock(Protocol):
    """A source of the time, which tests can replace."""

    def now(self) -> float:
        """Return Unix seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def remaining(self) -> float:
        """Return the seconds until the worker is stopped; infinite on one machine."""


class LocalClock:
    """Tells the machine's time, or that of `clock`.

    After `stop`, no time remains and every sleep ends.

    Attributes:
        now: returns Unix seconds. It is an attribute that holds the function itself, because a call
            then costs less: each member needs the time ten times.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.now = time.time
        if clock is not None:
            self.now = clock.now
        self._stopped = threading.Event()

    def sleep(self, seconds: float) -> None:
        """Wait until the seconds have passed or `stop` is called."""
        if self._clock is None:
            self._stopped.wait(seconds)
        elif not self._stopped.is_set():
            self._clock.sleep(seconds)

    def remaining(self) -> float:
        """Return the seconds left: 0 after `stop`."""
        if self._stopped.is_set():
            return 0.0
        if self._clock is None:
            return math.inf
        return self._clock.remaining()

    def stop(self) -> None:
        """Leave no time to the worker: end every sleep."""
        self._stopped.set()


class Keys(Struct, frozen=True):
    """The credentials that sign requests to AWS; they go to worker processes and nowhere else."""

    access_key: str
    secret_key: str
    token: str | None = None
    account: str | None = None
    advice: str = ""  # how to get new keys
    is_fixed: bool = False  # no process finds other keys later

    def __repr__(self) -> str:
        return f"Keys({self.access_key})"  # the other fields are secret


class KeysRequest(Struct, frozen=True):
    """A worker's request for keys."""

    profile: str | None
    refused: str | None = None  # the access key that a store has refused


AskForKeys: TypeAlias = Callable[[KeysRequest], Keys | None]


class Tail(NamedTuple):
    """The end of an archive, and the version to which it belongs."""

    data: bytes  # the last len(data) bytes before `missing`; all of a smaller archive
    pin: Pin
    modified: float | None = None  # Unix seconds; None: the store does not say
    refusal: Finding | None = None  # why the parts of a split archive could not be joined
    missing: int = 0  # bytes at the end that a broken body did not bring; `read_end` reads them

    def locate_directory(self, policy: Policy) -> Reads[DirectoryLocation]:
        """Return the search of the central directory, which may ask for earlier bytes.

        Raises:
            RejectedError: the archive has no directory, a broken one, or two.
        """
        return locate_directory(
            self.data, self.pin.size, policy, Disks([part.size for part in self.pin.parts or ()])
        )


RangeReader: TypeAlias = Callable[[ByteRange], Iterator[Buffer]]  # as `Source.stream` reads


class PinnedArchive:
    """One version of an archive: each part begins where the part before it ends.

    Args:
        readers: of the parts, in order.
        sizes: of the parts, in bytes.
        end: the last bytes of the archive, if they are in memory.
    """

    def __init__(
        self, readers: Sequence[RangeReader], sizes: Sequence[int], end: bytes = b""
    ) -> None:
        *starts, size = accumulate(sizes, initial=0)  # the last sum is the archive's size
        # Bytes past the archive's end are requested from the last part: its store refuses them.
        spans = map(ByteRange, starts, [*starts[1:], sys.maxsize])
        self._parts = list(zip(readers, spans, strict=True))
        self._end = memoryview(end)
        self._end_start = sys.maxsize  # no bytes are in memory
        if end:
            self._end_start = size - len(end)

    def holds(self, want: ByteRange) -> bool:
        """Return whether all of `want` is in memory."""
        return want.start >= self._end_start

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the first bytes of `want`, up to the end of their part or to those in memory.

        This takes one request, or none if `want` is in memory. The caller calls it again for the
        remaining bytes.
        """
        if self.holds(want):
            yield self._end[want.start - self._end_start : want.stop - self._end_start]
            return
        read, span = next(part for part in self._parts if want.start < part[1].stop)
        stop = min(want.stop, span.stop, self._end_start)
        yield from read(ByteRange(want.start - span.start, stop - span.start))


class ObjectFacts(Struct, frozen=True):
    """The properties that are stored with an object's bytes."""

    content_type: str
    metadata: dict[str, str]  # zip-crc32 (8 hex digits), mtime, mode, the caller's; ASCII
    content_encoding: str | None = None
    cache_control: str | None = None
    storage_class: str | None = None
    tags: dict[str, str] | None = None
    acl: str | None = None


class StoredObject(NamedTuple):
    """The properties of one object that the store returns; a listing returns no CRC-32."""

    key: str
    size: int
    crc32: int | None = None  # from zip-crc32, which the writer chose; a folder computes it
    etag: str | None = None  # without its quotes; None: the store keeps none (a folder)
    checksum: int | None = None  # CRC-32 of all bytes, computed by the store, if it keeps one


ListPage: TypeAlias = tuple[list[StoredObject], str | None]  # and the token of the next page


class Upload(NamedTuple):
    """One multipart upload that is not complete."""

    key: str
    upload_id: str


class PartLimits(NamedTuple):
    """Limits of multipart uploads; the defaults are Amazon S3's."""

    min_bytes: int = 5 * 1024**2  # bytes of a part that is not the last
    max_bytes: int = 5 * 1024**3  # bytes of a part
    max_parts: int = 10_000
    object_bytes: int = 50 * 10**12


class Destination(Protocol):
    """Where members are written; keys are whole keys of the bucket or paths below the folder.

    Each adapter is a subclass. Only one that copies parts overrides the last two methods.
    """

    # True: `head` returns the CRC-32 that was stored with an object. False: it reads the object and
    # computes the CRC-32.
    keeps_metadata: bool
    part_limits: PartLimits

    def check_reachable(self) -> None:
        """Raise an error if credentials, the bucket or the server are missing; one request."""

    def check_ready(self, size: int) -> None:
        """Raise an error if `size` bytes in total cannot be written; no request."""

    def release(self) -> None:
        """Close the folders that stay open between writes; no request."""

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str | None:
        """Write one object whole, its checksum verified; return its ETag without quotes, if any.

        `ConflictError`: `if_absent`, and the key exists.
        """

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:
        """Replace the object whose ETag, without quotes, is `etag`.

        If `etag` is None, the store keeps no ETags, and only the caller writes the object.
        `ConflictError`: another object is there. `NotFoundError`: there is no object.
        """

    def head(self, key: str) -> StoredObject | None:
        """Return the properties of the object, or None if it does not exist."""

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return one page of the objects below `prefix`, and the token of the next page.

        `listing.list_pages` calls it. The page may have keys before `first` and after `last`, and
        be in any order.

        Args:
            token: from the previous page; None: the first page.

        Returns:
            At most a thousand objects or so; the token is None after the last page.
        """

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        """Yield an object's bytes, or its bytes [start, stop), in pieces."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects: records of runs and extra objects, never members."""

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload; return its id."""

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Upload part `number`, which begins at byte `offset` of the object."""

    def complete_upload(
        self, upload: Upload, parts: Sequence[Part], *, if_absent: bool
    ) -> str | None:
        """Make the whole object visible; return its ETag without quotes, if any.

        `ConflictError`: `if_absent`, and the key exists. `NotFoundError`: the upload does not
        exist, or it must begin anew.
        """

    def abort_upload(self, upload: Upload) -> None:
        """Drop the upload and its parts; nothing happens if it is gone."""

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Return whether `copy_part` can work from that source; no request."""
        return False

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        """Copy `span` of the pinned source as part `number`, inside the store.

        The part's `crc32` is set only if the store returned a checksum of the part.
        `UnsupportedError`: the store does not copy.
        """
        raise UnsupportedError(f"{source}: this store does not copy parts")


class RunStore(Protocol):
    """The run's own objects: plan, members, outcomes, report; names are relative to the run."""

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""

    def create(self, name: str, body: bytes) -> None:
        """Write a small object; `ConflictError`: it exists. If many write at once, one succeeds."""

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Replace `old` by a small object; `ConflictError`: another object is stored there."""

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it.

        `NotFoundError`: the object is missing. `UnreadableRecordError`: it ends before `stop`.
        """

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces."""

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
