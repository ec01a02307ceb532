"""Archives in files: ranges of one file, with a check that it has not changed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Pin
from s3unzip.stores.folder.os_errors import explain_archive
from s3unzip.stores.ports import Tail

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

    from s3unzip.model import Location
    from s3unzip.stores.ports import Buffer
    from s3unzip.zip import ByteRange

PIECE = 1024**2


class FileSource:
    """Reads archives by their absolute path."""

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin."""
        with _opened(location.key) as file:
            pin = _pin_of(file)
            return Tail(_read(file, max(0, pin.size - length), pin.size), pin)

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        with _opened(location.key) as file:
            return _pin_of(file)

    def pinned(self, location: Location, pin: Pin) -> FileArchive:
        """Return a reader of exactly that file as it was."""
        return FileArchive(location.key, pin)


class FileArchive:
    """One file as it was when it was pinned: size, time of change and inode."""

    def __init__(self, path: str, pin: Pin) -> None:
        self._path = path
        self._pin = pin

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`."""
        with self._opened() as file:
            data = _read(file, want.start, want.stop)
            self._check(file)
        if len(data) != want.length:
            raise StorageError(
                f"{self._path}: wanted {want.length} bytes at {want.start}, "
                f"the file is {self._pin.size}"
            )
        return data

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of a MiB."""
        with self._opened() as file:
            for start in range(want.start, want.stop, PIECE):
                piece = _read(file, start, min(start + PIECE, want.stop))
                self._check(file)
                yield piece

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader]:
        try:
            with _opened(self._path) as file:
                self._check(file)
                yield file
        except NotFoundError as error:
            raise SourceChangedError(f"{self._path}: deleted since it was planned") from error

    def _check(self, file: BufferedReader) -> None:
        if _pin_of(file) != self._pin:
            raise SourceChangedError(f"{self._path}: changed since it was planned")


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise explain_archive(error, path) from error


def _pin_of(file: BufferedReader) -> Pin:
    facts = os.fstat(file.fileno())
    return Pin(facts.st_size, f'"{facts.st_size:x}-{facts.st_mtime_ns:x}-{facts.st_ino:x}"')


def _read(file: BufferedReader, start: int, stop: int) -> bytes:
    """Return bytes [start, stop), fewer only at the end of the file."""
    file.seek(start)
    return file.read(stop - start)
