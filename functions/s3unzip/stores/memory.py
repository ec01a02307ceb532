"""Stores in memory: records, an archive in an open reader, and a destination that keeps nothing."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from s3unzip.errors import (
    ConflictError,
    NotFoundError,
    SourceChangedError,
    StorageError,
    UnreadableRecordError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.stores import Stores
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import (
    PIECE,
    Buffer,
    Destination,
    ListPage,
    ObjectFacts,
    PartLimits,
    PinnedArchive,
    Tail,
    Upload,
)
from s3unzip.zip import ByteRange

NOWHERE = Location("nowhere", "", "")


class NowhereDestination(Destination):
    """Takes every object and forgets it."""

    keeps_metadata = True
    part_limits = PartLimits()  # Amazon S3's, so that members are cut as for S3

    def _ignore(self, *_: object, **__: object) -> None:
        """Do nothing: there are no objects."""

    check_reachable = check_ready = sync = release = _ignore
    head = put = replace = delete = complete_upload = abort_upload = _ignore

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:  # noqa: ARG002 - of the port
        """Return an empty page, which is the last one."""
        return [], None

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:  # noqa: ARG002 - of the port
        """Raise `NotFoundError`: there is no object."""
        raise NotFoundError(f"{key}: nothing is kept")

    def create_upload(self, key: str, facts: ObjectFacts) -> str:  # noqa: ARG002 - of the port
        """Return the key: uploads need no ids."""
        return key

    def upload_part(
        self,
        upload: Upload,  # noqa: ARG002 - of the port
        number: int,
        offset: int,  # noqa: ARG002 - of the port
        body: Buffer,
        crc32: int,
    ) -> Part:
        """Return the part's size and CRC-32, and forget its bytes."""
        return Part(number, "", memoryview(body).nbytes, crc32)

    def uploads(self, prefix: str) -> Iterator[Upload]:  # noqa: ARG002 - of the port
        """Return no uploads."""
        return iter(())


class BinaryReader(Protocol):
    """The methods of a seekable binary file that reading an archive calls."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to `offset` and return the position from the start."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""


class ReaderSource(Source):
    """A source whose one archive is an open reader.

    The reader stays open and belongs to the caller. A lock lets one thread at a time use it.
    """

    def __init__(self, reader: BinaryReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.location = Location("reader", "", str(getattr(reader, "name", "") or "archive"))
        # Its key is only for messages: a file's name, or "archive".

    def stat(self, location: Location) -> Tail:  # noqa: ARG002 - there is only one
        """Return the size of the archive, as a tail without bytes."""
        with self._lock:
            try:
                return Tail(b"", Pin(self._reader.seek(0, os.SEEK_END)))
            except (OSError, ValueError) as error:
                raise StorageError(
                    f"{self.location.key}: the reader cannot seek: {error}"
                ) from error

    def _read(self, want: ByteRange) -> bytes:
        """Return the bytes of `want`; `SourceChangedError`: the reader ends before them."""
        data = bytearray()
        with self._lock:
            try:
                self._reader.seek(want.start)
                while len(data) < want.length:  # one read may return fewer bytes
                    chunk = self._reader.read(want.length - len(data))
                    if not chunk:
                        break
                    data += chunk
            except (OSError, ValueError) as error:
                raise StorageError(f"{self.location.key}: {error}") from error
        if len(data) < want.length:
            raise SourceChangedError(
                f"{self.location.key}: the reader ends at byte {want.start + len(data)}"
            )
        return bytes(data)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:  # noqa: ARG002 - of the port
        """Yield the bytes of `want` in pieces of a MiB."""
        for start in range(want.start, want.stop, PIECE):
            yield self._read(ByteRange(start, min(start + PIECE, want.stop)))


class MemoryRunStore:
    """A run store whose objects are bytes in this process; threads may share it."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects  # by name
        self._lock = threading.Lock()

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        data = self.objects[name] = b"".join(pieces)
        return len(data)

    def create(self, name: str, body: bytes) -> None:
        """Write a small object, unless it exists."""
        with self._lock:
            if name in self.objects:
                raise ConflictError(f"{name}: it exists")
            self.objects[name] = body

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Replace `old` by a small object; `ConflictError`: another object is stored there."""
        with self._lock:
            if self.objects.get(name) != old:
                raise ConflictError(f"{name}: it has changed")
            self.objects[name] = new

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it."""
        data = self.objects.get(name)
        if data is None:
            raise NotFoundError(f"{name}: no such object")
        if span is None:
            return data
        start, stop = span
        if stop > max(len(data), start):  # an empty range may be anywhere
            raise UnreadableRecordError(f"{name}: it ends before byte {stop:,}")
        return data[start:stop]

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in one piece."""
        yield self.read(name)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with `prefix`, in order."""
        yield from (name for name in sorted(self.objects) if name.startswith(prefix))

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        for name in names:
            self.objects.pop(name, None)


class _SourceWithTail:
    """A source of one archive, whose tail is in memory."""

    def __init__(self, source: Source, tail: Tail) -> None:
        self._source = source
        self._tail = tail
        # The other methods are those of `source`.
        self.stat = source.stat
        self.stream = source.stream
        self.delete = source.delete
        self.tag = source.tag
        self.tags = source.tags

    def tail(self, location: Location, length: int) -> Tail:  # noqa: ARG002 - all is in memory
        return self._tail

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> PinnedArchive:
        return self._source.pinned(location, pin, end or self._tail.data)


class SmallRunStores:
    """The stores of a small run: the tail of its archive and its records are in memory."""

    def __init__(self, stores: Stores, tail: Tail, records: MemoryRunStore) -> None:
        self._stores = stores
        self._tail = tail
        self._records = records
        self.destination = stores.destination
        self.end_startup = stores.end_startup

    def source(self, location: Location) -> Source:
        """Return the source of the archive, with its tail in memory."""
        return _SourceWithTail(self._stores.source(location), self._tail)

    def run_store(self, run: str, calls: Calls | None = None) -> MemoryRunStore:  # noqa: ARG002 - of the port
        """Return the records in memory: they are of one run, so `run` is not needed."""
        return self._records
