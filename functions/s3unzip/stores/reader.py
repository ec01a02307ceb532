"""Archives in an open binary reader: a file object, or anything that can seek and read."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

from s3unzip.errors import SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.ports import Tail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.stores.ports import Buffer
    from s3unzip.zip import ByteRange

PIECE = 1024**2
SCHEME = "reader"


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
