"""Files that appear whole or not at all, and never outside of their folder.

On Linux a file is written without a name (O_TMPFILE) and gets one when it is
complete, so that a killed process leaves nothing behind. Elsewhere it is
written under a name of our own in its own folder, then renamed. Nothing is synced to disk: the next
run writes again what a crash of the machine lost.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import ConflictError, NotFoundError, ServiceFaultError, StorageError
from s3unzip.stores.folder.descriptors import PRIVATE, Directories
from s3unzip.stores.folder.files import OWN, OWN_FILES, PLAIN, NewFile, restore, write_at
from s3unzip.stores.folder.os_errors import translate_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from s3unzip.stores.folder.descriptors import Directory
    from s3unzip.stores.ports import Buffer

NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


class Place(NamedTuple):
    """Where one file is: its folder relative to the root, and its name there."""

    folder: str
    name: str
    path: str  # the whole path, for messages


class Folder:
    """One folder, and the whole paths below it that are keys; threads may share it.

    Args:
        root: absolute path.
        private: whether what is made is for this user only: folders 0700, files 0600.
    """

    def __init__(self, root: str, *, private: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        self._start = root.rstrip("/") + "/"
        self.directories = Directories(self.root, PRIVATE if private else 0o777)
        self._file_mode = 0o600 if private else 0o666
        self._unnamed = hasattr(os, "O_TMPFILE") and Path(OWN_FILES).is_dir()

    def place(self, key: str) -> Place:
        """Return where `key` is; check that it lies below the folder.

        Raises:
            StorageError: the path would leave the folder, or is ours.
        """
        below = key[len(self._start) :]
        parts = below.split("/")
        inside = key.startswith(self._start) and not {"", ".", ".."}.intersection(parts)
        if not inside or "\0" in key:
            raise StorageError(f"{key!r}: not a path below {self.root}")
        if OWN in below and any(part.startswith(OWN) for part in parts):
            raise StorageError(f"{key!r}: names that begin with {OWN} are for s3unzip's own files")
        return Place(below.rpartition("/")[0], parts[-1], key)

    def own_place(self, name: str) -> Place:
        """Return where our own file `name` is: at the top of the folder."""
        return Place("", OWN + name, f"{self._start}{OWN}{name}")

    def open_file(self, place: Place, flags: int) -> int:
        """Return a descriptor of a regular file that exists; the caller closes it.

        Raises:
            NotFoundError: there is none, or something else.
        """
        try:
            directory = self.directories.open(place.folder, create=False)
            # A FIFO would let the caller wait for a writer.
            file = os.open(place.name, flags | PLAIN | os.O_NONBLOCK, dir_fd=directory.fd)
        except NotADirectoryError as error:
            raise NotFoundError(f"{place.path}: no such file") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotFoundError(f"{place.path}: not a file") from error
            raise self.translate_error(error, place.path) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NotFoundError(f"{place.path}: not a file")
        return file

    def unlink(self, place: Place) -> None:
        """Delete a file or a link; nothing happens if it is gone."""
        try:
            directory = self.directories.open(place.folder, create=False)
            os.unlink(place.name, dir_fd=directory.fd)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self.translate_error(error, place.path) from error

    def new_file(self, directory: Directory) -> NewFile:
        """Return an empty file in `directory` that has no name yet, or one of our own."""
        if self._unnamed:
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            try:
                return NewFile(os.open(".", flags, self._file_mode, dir_fd=directory.fd), directory)
            except OSError as error:
                if os.fstat(directory.fd).st_nlink == 0:  # ext4 says EPERM
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
                if error.errno not in NO_UNNAMED:
                    raise
                self._unnamed = False  # this file system has none
        name = OWN + uuid.uuid4().hex[:16]
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | PLAIN
        return NewFile(os.open(name, flags, self._file_mode, dir_fd=directory.fd), directory, name)

    def translate_error(self, error: OSError, path: str) -> Exception:
        """Return the error that says what `error` means for `path`."""
        if error.errno == errno.ENOENT:
            self.directories.forget()
        return translate_error(error, path)

    def write_fault(self, error: OSError, path: str) -> Exception:
        """Return the same for a write, which makes the folders that it needs."""
        if error.errno == errno.ENOENT:
            self.directories.forget()
            return ServiceFaultError(f"{path}: its folder was deleted or replaced meanwhile")
        return translate_error(error, path)


def write_file(
    folder: Folder,
    place: Place,
    pieces: Iterable[Buffer],
    metadata: Mapping[str, str] | None = None,
    *,
    if_absent: bool = False,
) -> int:
    """Write a file whole or not at all; return its size.

    Raises:
        ConflictError: `if_absent`, and there is a file.
        StoreFullError: no space is left.
        ServiceFaultError: somebody deleted its folder meanwhile.
    """
    try:
        directory = folder.directories.open(place.folder, create=True)
        new = folder.new_file(directory)
        try:
            size = 0
            for piece in pieces:
                write_at(new.fd, piece, size)
                size += len(piece)
            if metadata:
                restore(new.fd, metadata)
            new.place(place.name, if_absent=if_absent)
        finally:
            new.close()
    except OSError as error:
        if if_absent and isinstance(error, FileExistsError):
            raise ConflictError(f"{place.path}: exists already") from error
        raise folder.write_fault(error, place.path) from error
    return size
