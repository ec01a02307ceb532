"""Stores in memory: records, an archive in an open reader, and a destination that keeps nothing."""

from __future__ import annotations

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
from s3unzip.stores.archives import ArchiveSource
from s3unzip.stores.ports import (
    PIECE,
    Buffer,
    ListPage,
    ObjectFacts,
    PartLimits,
    Tail,
    Upload,
)
from s3unzip.zip import ByteRange

READER_SCHEME = "reader"
NOWHERE = Location("nowhere", "", "")


class NowhereDestination:
    """Takes every object and forgets it."""

    keeps_metadata = True

    def _ignore(self, *_: object, **__: object) -> None:
        """Do nothing: there are no objects."""

    check_reachable = check_ready = sync = release = _ignore
    put = replace = delete = complete_upload = abort_upload = _ignore

    def head(self, key: str) -> None:
        """Return None: there is no object."""
        del key

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return nothing."""
        del prefix, first, last, token
        return [], None

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:  # noqa: ARG002 - of the port
        """Raise `NotFoundError`: nothing is here."""
        raise NotFoundError(f"{key}: nothing is kept")

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Return an id that stands for nothing."""
        del facts
        return key

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Forget the part."""
        del upload, offset
        return Part(number, "", memoryview(body).nbytes, crc32)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield nothing."""
        del prefix
        yield from ()

    @property
    def part_limits(self) -> PartLimits:
        """Amazon S3's limits, so that members are cut as for S3."""
        return PartLimits()


class BinaryReader(Protocol):
    """What is needed of a reader: the methods of a seekable binary file."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to `offset` and return the position from the start."""
        ...

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""
        ...


class ReaderSource(ArchiveSource):
    """The one archive of a reader, as a source and as its only version.

    The reader stays open and belongs to the caller. Only one thread at a time uses it.
    """

    def __init__(self, reader: BinaryReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.location = Location(READER_SCHEME, "", str(getattr(reader, "name", "") or "archive"))

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the size."""
        return self.tail_by_size(location, length)

    def stat(self, location: Location) -> Tail:  # noqa: ARG002 - there is only one
        """Return the size of the archive."""
        with self._lock:
            try:
                return Tail(b"", Pin(self._reader.seek(0, os.SEEK_END)))
            except (OSError, ValueError) as error:
                cause = f"{self.location.key}: the reader cannot seek: {error}"
                raise StorageError(cause) from error

    def open(self, location: Location, pin: Pin) -> ReaderSource:  # noqa: ARG002 - of the port
        """Return itself."""
        return self

    def _read(self, want: ByteRange) -> bytes:
        """Return the bytes of `want`; `SourceChangedError`: the reader ends before they do."""
        data = bytearray()
        with self._lock:
            try:
                self._reader.seek(want.start)
                while len(data) < want.length:
                    chunk = self._reader.read(want.length - len(data))
                    if not chunk:
                        break
                    data += chunk
            except (OSError, ValueError) as error:
                raise StorageError(f"{self.location.key}: {error}") from error
        if len(data) < want.length:
            end = want.start + len(data)
            raise SourceChangedError(f"{self.location.key}: the reader ends at byte {end}")
        return bytes(data)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
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
        """Replace `old` by a small object; `ConflictError`: something else is there."""
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
        if stop > max(len(data), start):
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
