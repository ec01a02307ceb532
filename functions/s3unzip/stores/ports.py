"""The interface of destinations, the clock, and the values that stores take and return.

`archives.Source` is the interface of sources. Each method of a source or destination makes ONE
attempt: `stores.calls` retries, paces and counts. A run store retries requests itself, through the
`Calls` object of the step that opens it, so its callers do not retry. A write may take many
requests, and a caller could not repeat it, because the bodies can be read only once.

Adapters translate every fault into an `S3UnzipError`:

* 503, 429, SlowDown, throttling by KMS: `ThrottledError`
* other 5xx, 409, resets, timeouts, bodies that are cut short: `ServiceFaultError`
* expired keys: `ServiceFaultError` if new keys may be available soon, else `ExpiredKeysError`
* 403, wrong owner, KMS denied or disabled: `AccessDeniedError`, which names the missing permission
* 404: `NotFoundError`
* 412 or 404 on a pinned read: `SourceChangedError`
* 412 on a conditional write: `ConflictError`
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from s3unzip.errors import (
    Finding,
    NotFoundError,
    RejectedError,
    UnconfirmedError,
    UnsupportedError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.zip import ByteRange, Disks, Policy, Reads, drive, locate_directory
from s3unzip.zip.directory import DirectoryLocation

Buffer: TypeAlias = bytes | bytearray | memoryview
PIECE = 1024 * 1024  # size of a streamed piece, in bytes
# The kinds of requests that are counted, and the kinds of stores. "work" is the run store.
Kind = Literal[
    "get", "put", "head", "list", "create", "part", "copy", "complete", "abort", "delete"
]
Store = Literal["source", "destination", "work"]


class Clock:
    """A clock that also knows the remaining time of the worker. `stop` ends all waits.

    Args:
        clock: source of the time. Defaults to the clock of the machine.
        remaining: function that returns the seconds until the machine stops the worker. Ignored if
            `clock` is given.

    Attributes:
        now: function that returns the Unix time in seconds. A method would be slower than this
            attribute, and the time is read ten times for each member.
    """

    def __init__(
        self,
        clock: "Clock | None" = None,
        remaining: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._clock = clock
        if clock is None:
            self._remaining = remaining
            self.now = time.time
        else:
            self._remaining = clock.remaining
            self.now = clock.now
        self._stopped = threading.Event()

    def sleep(self, seconds: float) -> None:
        """Wait until the given time has passed or `stop` is called."""
        self.wait(self._stopped, seconds)

    def wait(self, stopped: threading.Event, seconds: float) -> None:
        """Wait until the given time has passed or `stopped` is set."""
        if self._clock is None:
            stopped.wait(seconds)
        else:
            self._clock.wait(stopped, seconds)

    def remaining(self) -> float:
        """Return the seconds until the machine stops the worker, or 0 after `stop`."""
        if self._stopped.is_set():
            return 0.0
        return self._remaining()

    def stop(self) -> None:
        """End all calls of `sleep`, and set the remaining time of the worker to 0."""
        self._stopped.set()


class Keys(Struct, frozen=True):
    """The credentials that sign requests to AWS. Only worker processes may receive keys."""

    access_key: str
    secret_key: str
    token: str | None = None
    advice: str = ""  # how to get new keys
    is_fixed: bool = False  # whether the keys stay the same while the program runs

    def __repr__(self) -> str:
        return f"Keys({self.access_key})"  # the secret key and the token must not be logged


class KeysRequest(Struct, frozen=True):
    """A worker's request for the access keys of a profile."""

    profile: str | None  # None stands for the default profile
    refused: str | None = None  # access key that a store has refused, if any


AskForKeys: TypeAlias = Callable[[KeysRequest], Keys | None]  # None if there are no keys


class Tail(NamedTuple):
    """The end of an archive, and the version that it belongs to."""

    data: bytes  # the last bytes; may be the whole archive
    pin: Pin
    modified: float | None = None  # Unix time; None if the store does not return it
    refusal: Finding | None = None  # reason why parts of a split archive could not be joined

    def locate_directory(self, policy: Policy) -> Reads[DirectoryLocation]:
        """Yield ranges to read, which are usually in `data`; return the directory's location.

        Raises:
            RejectedError: the archive has no valid central directory, or has two directories.
        """
        return locate_directory(
            self.pin.size, policy, Disks([part.size for part in self.pin.parts or ()])
        )

    def count_members(self, policy: Policy) -> int | None:
        """Return the number of members, if the whole directory is in the tail.

        Returns None if the directory begins before the tail, and 0 if it cannot be read.
        """
        start = self.pin.size - len(self.data)

        def read(want: ByteRange) -> bytes:
            if want.start < start:
                raise EOFError  # the range begins before the tail
            return self.data[want.start - start : want.stop - start]

        try:
            location = drive(self.locate_directory(policy), read)
        except EOFError:
            return None
        except RejectedError:  # the planner will report this error
            return 0
        if location.start < start:
            return None
        return location.entries


RangeReader: TypeAlias = Callable[[ByteRange], Iterator[Buffer]]  # like `Source.stream`


class PinnedArchive:
    """One version of an archive, read as one sequence of bytes even if it has several parts.

    Args:
        readers: readers for the parts, in order.
        sizes: sizes of the parts, in bytes.
        tail: last bytes of the archive, if they are in memory.

    Attributes:
        bytes_read: number of bytes that all threads have read from the store so far.
    """

    def __init__(
        self, readers: Sequence[RangeReader], sizes: Sequence[int], tail: bytes = b""
    ) -> None:
        starts = [0, *accumulate(sizes[:-1])]
        # A range beyond the end of the archive is requested from the last part, so that the store
        # refuses the range.
        stops = [*starts[1:], sys.maxsize]
        self._parts = list(zip(readers, map(ByteRange, starts, stops), strict=True))
        self._tail = memoryview(tail)
        self._tail_start = sys.maxsize  # no bytes are in memory
        if tail:
            self._tail_start = sum(sizes) - len(tail)
        self._lock = threading.Lock()
        self.bytes_read = 0

    def holds(self, want: ByteRange) -> bool:
        """Return whether all of `want` is in memory."""
        return want.start >= self._tail_start

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield bytes from the beginning of `want`, from memory or with a single request.

        The bytes stop at the end of `want`, at the end of the part (one object of a split archive),
        or where the tail in memory begins, whichever comes first. The caller must call this method
        again for the remaining bytes.
        """
        if self.holds(want):
            yield self._tail[want.start - self._tail_start : want.stop - self._tail_start]
            return
        # The part that contains the first byte of `want`.
        read, span = next((read, span) for read, span in self._parts if want.start < span.stop)
        stop = min(want.stop, span.stop, self._tail_start)
        for data in read(ByteRange(want.start - span.start, stop - span.start)):
            with self._lock:
                self.bytes_read += len(data)
            yield data


class ObjectFacts(Struct, frozen=True):
    """The properties that are stored along with the bytes of an object."""

    content_type: str
    metadata: dict[str, str]  # ASCII; names from `object_properties` (such as CRC_KEY) or the user
    content_encoding: str | None = None
    cache_control: str | None = None
    storage_class: str | None = None
    tags: dict[str, str] | None = None
    acl: str | None = None


class StoredObject(NamedTuple):
    """The properties of an object, as returned by the store; listings contain no CRC-32."""

    key: str
    size: int
    crc32: int | None = None  # from the metadata, or computed from the bytes of a file
    etag: str | None = None  # without quotes; None if the store has no ETags (a folder)
    checksum: int | None = None  # CRC-32 of all bytes, if the store computes one


ListPage: TypeAlias = tuple[list[StoredObject], str | None]  # objects, and token for the next page


class Upload(NamedTuple):
    """An incomplete multipart upload."""

    key: str
    upload_id: str


class PartLimits(NamedTuple):
    """Limits on multipart uploads; the defaults are the limits of Amazon S3."""

    min_bytes: int = 5 * 1024**2  # minimum size of each part except the last, in bytes
    max_bytes: int = 5 * 1024**3  # maximum size of a part, in bytes
    max_parts: int = 10_000
    object_bytes: int = 50 * 10**12  # maximum size of an object, in bytes


class Destination(Protocol):
    """A bucket or a folder to which members are written.

    A key is a complete key in the bucket, or the absolute path of a file. Each adapter is a
    subclass. An adapter with nothing to check or to close inherits `check_reachable`, `check_ready`
    and `release`. An adapter that cannot copy parts inherits `copies_from` and `copy_part`.
    """

    # If True, `head` returns the CRC-32 that was stored with the object. If False, `head` reads the
    # object and computes the CRC-32.
    keeps_metadata: bool = True
    # The defaults are the limits of Amazon S3; only a few stores accept fewer parts.
    part_limits: PartLimits = PartLimits()

    def check_reachable(self) -> None:
        """Send one request; raise an error if the credentials, bucket or server cannot be used."""
        return

    def check_ready(self, size: int, warnings: Collection[str] = ()) -> None:
        """Raise an error if files cannot be created, or if `size` bytes in total do not fit.

        If `warnings` contains case-collision or unicode-collision, the archive has keys that differ
        only in case or in Unicode form. In this case, also raise an error if two such keys would be
        the same file. Send no request.
        """
        return

    def release(self) -> None:
        """Close the folders that stay open between writes; send no request."""
        return

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str | None:
        """Write a whole object, verified by checksum; return its ETag without quotes, if any.

        Raises `ConflictError` if `if_absent` is set and the key exists.
        """

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:
        """Replace the object whose ETag, without quotes, is `etag`.

        If `etag` is None, the store has no ETags: the caller ensures that nobody else writes the
        object. Raises `ConflictError` if the object has another ETag, and `NotFoundError` if there
        is no object.
        """

    def head(self, key: str) -> StoredObject | None:
        """Return the properties of the object, or None if it does not exist."""

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return one page of the objects below `prefix` with keys from `first` to `last`.

        A page has at most about 1,000 objects, in any order. The store may add objects with keys
        before `first` or after `last`; `listing.list_pages` leaves out these objects.

        Args:
            token: token returned with the preceding page, or None for the first page.

        Returns:
            The objects, and the token for the next page, which is None on the last page.
        """

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        """Yield the bytes of an object in pieces; with `span`, only bytes [start, stop)."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete 1 to 1,000 objects: records of runs or extra objects, but never members."""

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload, and return its id."""

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Upload part `number`, which begins at byte `offset` of the object."""

    def complete_upload(
        self, upload: Upload, parts: Sequence[Part], *, if_absent: bool
    ) -> str | None:
        """Make the whole object visible; return its ETag without quotes, if any.

        Raises `ConflictError` if `if_absent` is set and the key exists, and `NotFoundError` if the
        upload does not exist or must be restarted.
        """

    def abort_upload(self, upload: Upload) -> None:
        """Discard the upload and its parts; do nothing if the upload no longer exists."""

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Return whether `copy_part` can copy from the pinned source; send no request."""
        return False

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        """Copy `span` of the pinned source to part `number`, within the store.

        The part begins at byte `offset` of the new object. Its `crc32` is set only if the store
        returned a checksum of the part. Raises `UnsupportedError` if the store cannot copy.
        """
        raise UnsupportedError(f"{source}: this store does not copy parts")


def make_completion(
    destination: Destination,
    upload: Upload,
    parts: Sequence[Part],
    is_written: Callable[[], bool],
    *,
    if_absent: bool,
    was_tried: bool = False,
) -> Callable[[], str | None]:
    """Return a function that completes an upload, and that may be called again after a fault.

    The response to CompleteMultipartUpload may be lost. A later try then finds no upload, and
    `is_written` determines whether an earlier try has completed it. Some responses do not say
    whether the upload is complete (`UnconfirmedError`); then this try may have completed it.

    Args:
        destination: store of the upload.
        upload: the upload.
        parts: all parts of the upload.
        is_written: returns whether the object is the completed upload.
        if_absent: whether an existing object is kept.
        was_tried: whether an earlier step may have completed the upload.

    Returns:
        A function that returns the ETag without quotes, or None if the ETag is unknown.
    """

    def complete() -> str | None:
        nonlocal was_tried
        try:
            return destination.complete_upload(upload, parts, if_absent=if_absent)
        except (NotFoundError, UnconfirmedError) as error:
            may_be_done = was_tried or isinstance(error, UnconfirmedError)
            if may_be_done and is_written():
                return None
            raise
        finally:
            was_tried = True  # this try may have succeeded even if the client received an error

    return complete
