"""Folders below a root that are kept open, so that a write opens its own file and nothing else.

Checking a path before using it is not safe: another user who can write below the root can replace a
folder by a symbolic link between the check and the use. The rules:

1. A folder is opened name by name, each relative to the descriptor of the one above it, and never
   through a link (openat(2), O_NOFOLLOW). Only links in the root's own path are followed.
2. The folders that were used last stay open, within a bound. An open folder is used again only if
   its path still leads to it. Somebody may move it right after that look: then a file goes into the
   folder where it is now, and never through the link that has taken its place.
3. A descriptor is closed when no thread holds its `OpenFolder` any more. `close` closes all, also
   those that the traceback of an error still holds; by then no thread uses one.
4. The root is opened once. If it was deleted or replaced, a write fails, `forget` is called, and
   the next attempt opens everything anew.
"""

import errno
import os
import resource
import stat
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from s3unzip import errors
from s3unzip.stores.files import explaining, make_folders, translate_error

# O_PATH (Linux) needs no right to read the folder; elsewhere folders are opened for reading.
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
MAX_OPEN = 64  # folders that are kept open, if the process may open enough files
OPEN_SHARE = 16  # one of so many files that the process may open is a folder
CLOSED = -1


class OpenFolder:
    """The descriptor of a folder; it is closed when nothing refers to this object any more."""

    def __init__(self, file: int) -> None:
        self.file = file
        facts = os.fstat(file)
        self.identity = (facts.st_dev, facts.st_ino)

    def close(self) -> None:
        """Close the descriptor; nothing happens if it is closed."""
        if self.file != CLOSED:
            os.close(self.file)
            self.file = CLOSED

    __del__ = close


class OpenFolders:
    """Opens the folders below one root; threads may share it.

    Args:
        root: absolute path.
        mode: of folders that are made.
    """

    def __init__(self, root: str, mode: int) -> None:
        self._path = root
        self._mode = mode
        self._root: OpenFolder | None = None
        self._is_made = False
        self._open: OrderedDict[str, OpenFolder] = OrderedDict()
        self._all: WeakSet[OpenFolder] = WeakSet()  # also those that threads or errors hold
        self._max_open = choose_max_open()
        self._lock = threading.Lock()

    def get(self, path: str, *, create: bool = False) -> OpenFolder:
        """Return the folder `path`, relative to the root; "" is the root.

        Args:
            path: names joined by "/", none of them empty, "." or "..".
            create: whether to make the folders that are missing.
        """
        root = self._open_root(create=create)
        if not path:
            return root
        with self._lock:
            folder = self._open.get(path)
            if folder is not None:
                self._open.move_to_end(path)
        if folder is not None and leads_to(root, path, folder):
            return folder
        folder = self._walk(root, path, create=create)
        with self._lock:
            self._open[path] = folder
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return folder

    def forget(self) -> None:
        """Keep no folder open that no thread uses; the next `get` opens the root anew."""
        with self._lock:
            self._root = None
            self._is_made = False
            self._open.clear()

    def close(self) -> None:
        """Close every folder, when no thread uses one any more; `get` opens them anew."""
        self.forget()
        for folder in list(self._all):
            folder.close()

    def _open_root(self, *, create: bool) -> OpenFolder:
        """Return the open root; with `create` it is made, once."""
        root = self._root
        if root is not None and (self._is_made or not create):
            return root
        with explaining(self._path):
            if create:
                make_folders(Path(self._path), self._mode)
            root = OpenFolder(os.open(self._path, FOLDER_FLAGS))
        with self._lock:
            self._all.add(root)
            self._root = root
            self._is_made = create
        return root

    def _walk(self, root: OpenFolder, path: str, *, create: bool) -> OpenFolder:
        """Open each folder of `path` in the one above it; return the last one."""
        folder = root
        whole = self._path
        for name in path.split("/"):
            whole = f"{whole.rstrip('/')}/{name}"
            try:
                folder = OpenFolder(self._open_below(folder, name, whole, create=create))
                self._all.add(folder)
            except OSError as error:
                if create and error.errno == errno.ENOENT:
                    self.forget()
                raise explain_folder(error, whole, create=create) from error
        return folder

    def _open_below(self, parent: OpenFolder, name: str, path: str, *, create: bool) -> int:
        """Return a new descriptor of the folder `name` in `parent`; `path` is for messages."""
        try:
            return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent.file)
        except FileNotFoundError:
            if not create:
                raise
        except NotADirectoryError:  # Linux says so of a link, too; other systems say ELOOP
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent.file).st_mode):
                raise errors.StorageError(
                    f"{path}: a symbolic link ({name!r}) would lead out of the folder"
                ) from None
            raise
        with suppress(FileExistsError):
            os.mkdir(name, self._mode, dir_fd=parent.file)
        return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent.file)


def choose_max_open() -> int:
    """Return how many folders stay open: a share of the files that the process may open."""
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if max_files == resource.RLIM_INFINITY:
        return MAX_OPEN
    return max(1, min(MAX_OPEN, max_files // OPEN_SHARE))


def leads_to(root: OpenFolder, path: str, folder: OpenFolder) -> bool:
    """Return whether a path below the root is still the way to an open folder."""
    try:
        facts = os.stat(path, dir_fd=root.file, follow_symlinks=False)
    except OSError:
        return False
    return (facts.st_dev, facts.st_ino) == folder.identity


def explain_folder(error: OSError, path: str, *, create: bool) -> errors.S3UnzipError:
    """Return the error for `path`; a write makes the folders that it needs, so ENOENT is a race."""
    if create and error.errno == errno.ENOENT:
        return errors.ServiceFaultError(f"{path}: its folder was deleted or replaced meanwhile")
    if not create and error.errno == errno.ENOTDIR:
        return errors.NotFoundError(f"{path}: a file is where a folder is needed")
    return translate_error(error, path)
