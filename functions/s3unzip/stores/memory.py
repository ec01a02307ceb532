"""Stores without a place: an open binary reader as an archive, and a destination of nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from s3unzip.errors import NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Part, Pin
from s3unzip.stores.ports import (
    Buffer,
    ListedObject,
    ObjectFacts,
    PartLimits,
    StoredObject,
    Tail,
    Upload,
)
from s3unzip.zip import ByteRange

PIECE = 1024**2
SCHEME = "reader"
NOWHERE = Location("nowhere", "", "")


class NowhereDestination:
    """Takes every object and forgets it."""

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Forget the object."""

    def head(self, key: str) -> StoredObject | None:
        """Return None: nothing is here."""

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield nothing."""
        del prefix, first, last
        yield from ()

    def read(self, key: str) -> Iterator[Buffer]:
        """Raise `NotFoundError`: nothing is here."""
        raise NotFoundError(f"{key}: nothing is kept")

    def delete(self, keys: Sequence[str]) -> None:
        """Do nothing."""

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

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Forget the object."""

    def abort_upload(self, upload: Upload) -> None:
        """Do nothing."""

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield nothing."""
        del prefix
        yield from ()

    @property
    def part_limits(self) -> PartLimits:
        """Those of Amazon S3, so that members are cut as they would be."""
        return PartLimits()


class BinaryReader(Protocol):
    """What is needed of a reader: the methods of a seekable binary file."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to `offset` and return the position from the start."""
        ...

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""
        ...


class ReaderSource:
    """The one archive of a reader, as a source and as its only version.

    The reader stays open and belongs to the caller. Only one thread at a time uses it.
    """

    def __init__(self, reader: BinaryReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.location = Location(SCHEME, "", str(getattr(reader, "name", "") or "archive"))

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the size."""
        pin = self.head(location)
        start = max(0, pin.size - length)
        return Tail(self._read(start, pin.size), pin)

    def head(self, location: Location) -> Pin:  # noqa: ARG002 - there is only one
        """Return the size of the archive.

        Raises:
            StorageError: the reader cannot seek.
        """
        with self._lock:
            try:
                return Pin(self._reader.seek(0, os.SEEK_END))
            except (OSError, ValueError) as error:
                raise StorageError(
                    f"{self.location.key}: the reader cannot seek: {error}"
                ) from error

    def pinned(self, location: Location, pin: Pin) -> ReaderSource:  # noqa: ARG002 - likewise
        """Return itself."""
        return self

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`.

        Raises:
            SourceChangedError: the reader has fewer bytes than before.
        """
        return self._read(want.start, want.stop)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of a MiB."""
        for start in range(want.start, want.stop, PIECE):
            yield self._read(start, min(start + PIECE, want.stop))

    def _read(self, start: int, stop: int) -> bytes:
        pieces = []
        with self._lock:
            try:
                self._reader.seek(start)
                while start < stop and (piece := self._reader.read(stop - start)):
                    pieces.append(piece)
                    start += len(piece)
            except (OSError, ValueError) as error:
                raise StorageError(f"{self.location.key}: {error}") from error
        if start < stop:
            raise SourceChangedError(f"{self.location.key}: the reader ends at byte {start}")
        return b"".join(pieces)
