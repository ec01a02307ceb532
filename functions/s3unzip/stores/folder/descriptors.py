"""The folders below one folder, each held by a descriptor and reached without following a link.

Checking a path before using it is not safe: another user who can write below the folder can replace
a folder by a symbolic link between the check and the use. So the folder itself is opened once.
Everything below it is opened name by name, relative to a descriptor and with O_NOFOLLOW
(openat(2)). Files are created, renamed and deleted relative to descriptors.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections import OrderedDict
from pathlib import Path

from s3unzip.errors import StorageError

MAX_OPEN = 128  # descriptors that are kept open besides those in use
# O_PATH (Linux) needs no right to read the folder; elsewhere folders are opened for reading.
_OPEN_ROOT = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_BELOW = _OPEN_ROOT | os.O_NOFOLLOW
PRIVATE = 0o700


class Directory:
    """One open directory; its descriptor is closed with the last reference to it."""

    __slots__ = ("_pid", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._pid = os.getpid()

    def __del__(self) -> None:
        # In a forked process the number may be that of another file.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                os.close(self.fd)


class Directories:
    """The folder `root` and what is below it; threads may share it.

    Args:
        root: absolute path of the folder; links in this path are followed.
        mode: of folders that are made, before the umask.
        max_open: descriptors that are kept for later, the latest used.
    """

    def __init__(self, root: str, mode: int = 0o777, max_open: int = MAX_OPEN) -> None:
        self._root_path = root
        self._mode = mode
        self._max_open = max_open
        self._root: Directory | None = None
        self._kept: OrderedDict[str, Directory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def kept(self) -> int:
        """How many descriptors are kept, without that of the folder itself."""
        return len(self._kept)

    def open(self, path: str, *, create: bool) -> Directory:
        """Return the directory `path`, relative to the root; "" is the root.

        Args:
            path: names joined by "/", none of them empty, "." or "..".
            create: whether to make the directories that are missing.

        Raises:
            StorageError: a symbolic link or a file is in the way.
            OSError: the system refuses, or the directory does not exist.
        """
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
        found, below = self._nearest(path, create=create)
        while below:
            name, _, below = below.partition("/")
            opened = Directory(self._open_child(found, name, path, create=create))
            found = self._keep(path.removesuffix(below).rstrip("/"), opened)
        return found

    def forget(self) -> None:
        """Forget all kept descriptors, because a folder was deleted or replaced."""
        with self._lock:
            self._kept.clear()
            self._root = None

    def _nearest(self, path: str, *, create: bool) -> tuple[Directory, str]:
        """Return the nearest directory above `path` that is kept, and the rest of the path."""
        above = path
        with self._lock:
            while above:
                above = above.rpartition("/")[0]
                found = self._kept.get(above)
                if found is not None:
                    return found, path[len(above) + 1 :]
            if self._root is None:
                self._root = Directory(self._open_root(create=create))
            return self._root, path

    def _keep(self, path: str, opened: Directory) -> Directory:
        with self._lock:
            found = self._kept.setdefault(path, opened)
            self._kept.move_to_end(path)
            while len(self._kept) > self._max_open:
                self._kept.popitem(last=False)
            return found

    def _open_root(self, *, create: bool) -> int:
        if create:
            make_folders(Path(self._root_path), self._mode)
        return os.open(self._root_path, _OPEN_ROOT)

    def _open_child(self, parent: Directory, name: str, path: str, *, create: bool) -> int:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, self._mode, dir_fd=parent.fd)
        try:
            return os.open(name, _OPEN_BELOW, dir_fd=parent.fd)
        except NotADirectoryError:  # Linux's word for a link, too; others say ELOOP
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent.fd).st_mode):
                where = f"{self._root_path}/{path}"
                raise StorageError(
                    f"{where}: a symbolic link ({name!r}) would lead out of the folder"
                ) from None
            raise


def make_folders(path: Path, mode: int) -> None:
    """Make a folder and those above it that are missing, each with `mode`.

    If the folder exists, is ours and is to be private (mode 0700), its mode is changed. Those above
    it that exist are left as they are: `path` may be below ``/tmp`` or a folder that others use.
    """
    if not path.is_dir():
        for missing in reversed(
            list(itertools.takewhile(lambda one: not one.is_dir(), path.parents))
        ):
            with contextlib.suppress(FileExistsError):
                missing.mkdir(mode)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode)
    elif mode == PRIVATE:
        found = path.stat()
        if found.st_mode & 0o077 and found.st_uid == os.geteuid():
            path.chmod(PRIVATE)
