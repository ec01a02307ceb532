"""Messages for system errors, and sources for archives in files and in open readers."""

import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Literal, Protocol

from s3unzip import errors
from s3unzip.model import Location, Pin
from s3unzip.stores.archives import Source
from s3unzip.stores.ports import PIECE, Buffer, Tail
from s3unzip.zip import ByteRange

PRIVATE = 0o700  # mode of a folder that only its owner can access
FILE_IN_THE_WAY = "a file is where a folder is needed"
# The class of the error, and the message to append to the path, by `errno`.
KINDS: dict[int, tuple[type[errors.S3UnzipError], str]] = {
    errno.ENOENT: (errors.NotFoundError, "no such file or folder"),
    errno.EACCES: (
        errors.AccessDeniedError,
        "permission denied: change its rights, or use another place",
    ),
    errno.EPERM: (
        errors.AccessDeniedError,
        "not permitted: change its rights, or use another place",
    ),
    errno.EROFS: (errors.AccessDeniedError, "the file system is read-only: use another place"),
    errno.ENOSPC: (errors.StoreFullError, "no space left: make room, or use another disk"),
    errno.EDQUOT: (
        errors.StoreFullError,
        "the disk quota is reached: make room, or use another disk",
    ),
    errno.EFBIG: (
        errors.StoreFullError,
        "too large for this file system, or for the limit (ulimit -f)",
    ),
    errno.ENAMETOOLONG: (errors.NameRefusedError, "the name is too long for this file system"),
    errno.EISDIR: (errors.StorageError, "a folder is where a file is needed"),
    errno.ENOTDIR: (errors.StorageError, FILE_IN_THE_WAY),
    errno.EEXIST: (errors.StorageError, FILE_IN_THE_WAY),
    errno.ENOTEMPTY: (errors.StorageError, "a folder is where a file is needed"),
    errno.EILSEQ: (errors.NameRefusedError, "the name is not allowed on this file system"),
    errno.EINVAL: (errors.NameRefusedError, "the name is not allowed on this file system"),
    errno.ELOOP: (errors.StorageError, "a symbolic link is in the way"),
    errno.EXDEV: (
        errors.StorageError,
        "another file system is mounted below DEST: give a folder in that file system as DEST",
    ),
    errno.EMFILE: (errors.ServiceFaultError, "too many open files: raise `ulimit -n`"),
    errno.ENFILE: (errors.ServiceFaultError, "too many open files on this machine"),
}


def translate_error(error: OSError, path: str) -> errors.S3UnzipError:
    """Return the `S3UnzipError` for a system error at `path`."""
    # An error that is not in `KINDS` may be temporary, so it is treated as a fault.
    kind, text = KINDS.get(
        error.errno or 0, (errors.ServiceFaultError, error.strerror or str(error))
    )
    if text == FILE_IN_THE_WAY:
        path = _file_in_the_way(path)
    return kind(f"{path}: {text}")


@contextmanager
def explaining(path: str) -> Iterator[None]:
    """Translate any `OSError` in the block into an `S3UnzipError`."""
    try:
        yield
    except OSError as error:
        raise translate_error(error, path) from error


def _file_in_the_way(path: str) -> str:
    """Return the first parent of `path` that is a file, or `path` if no parent is a file."""
    whole = Path(path)
    for part in (*reversed(whole.parents), whole):
        if os.path.lexists(part) and not part.is_dir():
            return str(part)
    return path


def _explain_archive(error: OSError, path: str) -> errors.S3UnzipError:
    """Return the error for an archive that cannot be read; if it is missing, list similar names."""
    if error.errno == errno.EISDIR:
        return errors.StorageError(
            f"{path}: is a folder; name an archive in it (s3unzip run takes folders too)"
        )
    explained = translate_error(error, path)
    if error.errno == errno.ENOENT and (near := _near_names(Path(path))):
        return errors.NotFoundError(f"{explained}; near: {near}")
    return explained


def _near_names(path: Path) -> str:
    """Return up to three similar names from the same folder, in quotes, or "" if there are none."""
    import difflib  # noqa: PLC0415 - needed only after a user's mistake

    try:
        # Comparing all the names in a huge folder would take too long.
        with os.scandir(path.parent) as folder:
            entries = list(itertools.islice(folder, 10_000))
    except OSError:
        return ""
    # If `path` is a symbolic link to a missing file, the link itself is left out.
    names = {entry.name.lower(): entry.name for entry in entries if entry.name != path.name}
    # The cutoff is the minimum similarity; equal names have similarity 1.
    near = difflib.get_close_matches(path.name.lower(), names, n=3, cutoff=0.77)
    return ", ".join(repr(names[name]) for name in near)


def make_folders(path: Path, mode: int) -> None:
    """Make a folder and any missing parent folders, each with `mode`.

    If `mode` is 0700, an existing folder also gets this mode if it belongs to this user and others
    can access it. Existing parent folders keep their modes, because they may be ``/tmp`` or folders
    of other users.
    """
    if not path.is_dir():
        missing = list(
            itertools.takewhile(lambda folder: not folder.is_dir(), (path, *path.parents))
        )
        for folder in reversed(missing):
            with suppress(FileExistsError):
                folder.mkdir(mode)
    elif mode == PRIVATE:
        facts = path.stat()
        if facts.st_mode & 0o077 and facts.st_uid == os.geteuid():
            path.chmod(PRIVATE)


class FileSource(Source):
    """Reads archives at absolute paths."""

    def tail(self, location: Location, length: int) -> Tail:
        with _opened(location.key) as file:
            pin = _pin_of(file)
            start = file.seek(max(0, pin.size - length))
            # The file may have grown since the pin was read. The pin does not cover the new bytes,
            # so they are not read.
            return Tail(file.read(pin.size - start), pin, os.fstat(file.fileno()).st_mtime)

    def stat(self, location: Location) -> Tail:
        return self.tail(location, 0)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of one MiB; check the version after each read."""
        path = location.key
        try:
            with _opened(path) as file:
                file.seek(want.start)
                for start in range(want.start, want.stop, PIECE):
                    stop = min(start + PIECE, want.stop)
                    data = file.read(stop - start)
                    if _pin_of(file) != pin:
                        raise errors.SourceChangedError(f"{path}: changed since it was planned")
                    if start + len(data) < stop:
                        raise errors.StorageError(
                            f"{path}: cannot read up to byte {want.stop}: "
                            f"the file has {pin.size} bytes"
                        )
                    yield data
        except errors.NotFoundError as error:
            raise errors.SourceChangedError(f"{path}: deleted since it was planned") from error

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the file; do nothing if it no longer exists.

        Another program can replace the file between the check and the deletion, because file
        systems have no conditional deletion.
        """
        with suppress(errors.NotFoundError):
            if self.stat(location).pin != pin:
                raise errors.SourceChangedError(f"{location.key}: a newer file has replaced it")
            with explaining(location.key):
                Path(location.key).unlink(missing_ok=True)


class BinaryReader(Protocol):
    """The methods of a seekable binary file that are needed to read an archive."""

    def seek(self, offset: int, whence: Literal[0, 1, 2] = ..., /) -> int | None:
        """Move to `offset`; return the new position. Some readers, such as `mmap`, return None."""

    def tell(self) -> int:
        """Return the position in the file. This method is called only if `seek` returns None."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""


class ReaderSource(Source):
    """A source with a single archive: the content of an open reader.

    The caller closes the reader. A lock ensures that one thread at a time uses the reader.
    """

    def __init__(self, reader: BinaryReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        # The key is used only in messages: the name of a file, or "archive".
        self.location = Location("reader", "", str(getattr(reader, "name", "") or "archive"))

    def stat(self, location: Location) -> Tail:  # noqa: ARG002 - there is only one archive
        """Return a tail without bytes that pins only the size, because a reader has no version."""
        with self._lock:
            try:
                # `seek` of some readers returns None.
                size = self._reader.seek(0, os.SEEK_END) or self._reader.tell()
            except (OSError, ValueError) as error:
                raise errors.StorageError(
                    f"{self.location.key}: the reader cannot seek: {error}"
                ) from error
        return Tail(b"", Pin(size))

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:  # noqa: ARG002 - required by the interface
        """Yield the bytes of `want` as the reader returns them, at most one MiB at a time."""
        position = want.start
        while position < want.stop:
            with self._lock:
                try:
                    self._reader.seek(position)
                    data = self._reader.read(min(PIECE, want.stop - position))
                except (OSError, ValueError) as error:
                    raise errors.StorageError(f"{self.location.key}: {error}") from error
            if not data:
                raise errors.SourceChangedError(
                    f"{self.location.key}: the reader returned no data at byte {position:,}"
                )
            position += len(data)
            yield data


@contextmanager
def _opened(path: str) -> Iterator[BufferedReader]:
    """Open an archive; translate any `OSError` in the block into an `S3UnzipError`."""
    try:
        # Opening a FIFO may never return. Opening a folder raises EISDIR, which `_explain_archive`
        # translates.
        if stat.S_IFMT(Path(path).stat().st_mode) not in {stat.S_IFREG, stat.S_IFDIR}:
            raise errors.StorageError(
                f"{path}: is a pipe or a device; an archive is read from its end, so save it in a "
                "file first"
            )
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise _explain_archive(error, path) from error


def _pin_of(file: BufferedReader) -> Pin:
    facts = os.fstat(file.fileno())
    return Pin(facts.st_size, f'"{facts.st_size:x}-{facts.st_mtime_ns:x}-{facts.st_ino:x}"')
