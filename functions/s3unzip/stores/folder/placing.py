"""Files that appear whole or not at all, and never outside their folder.

A file is written under a name of our own in its own folder, then renamed.
Nothing is synced to disk: what a crash of the machine takes, the next run
writes again.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import ConflictError, StorageError
from s3unzip.stores.folder.errors import fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from s3unzip.stores.ports import Buffer

OWN = ".s3unzip-"  # how names of our own begin; members may not be called so
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Folder:
    """One folder, and the whole paths below it that are keys; threads may share it."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        self._start = root.rstrip("/") + "/"
        self._made: set[str] = set()

    def path(self, key: str) -> str:
        """Return the path that `key` is, once it is sure that it lies below the folder.

        Raises:
            StorageError: the path would leave the folder, or is ours.
        """
        parts = key[len(self.root) :].lstrip("/").split("/")
        inside = key.startswith(self._start) and not {"", ".", ".."}.intersection(parts)
        if not inside or "\0" in key:
            raise StorageError(f"{key!r}: not a path below {self.root}")
        if any(part.startswith(OWN) for part in parts):
            raise StorageError(f"{key!r}: names that begin with {OWN} are for s3unzip's own files")
        return key

    def make_parent(self, path: str) -> None:
        """Make the folder of `path`, and check that no link leads out on the way.

        Raises:
            StorageError: a file or a symbolic link is where a folder is needed.
        """
        parent = path.rpartition("/")[0]
        if parent in self._made:
            return
        if len(parent) > len(self.root):
            self.make_parent(parent)
        try:
            if parent == self.root:
                Path(parent).mkdir(parents=True, exist_ok=True)
            else:
                self._make_one(parent)
        except OSError as error:
            raise fault(error, parent) from error
        if len(self._made) < 100_000:  # names come from the archive: bound what is remembered
            self._made.add(parent)

    def forget(self) -> None:
        """Forget which folders exist: somebody deleted one."""
        self._made.clear()

    def _make_one(self, parent: str) -> None:
        try:
            os.mkdir(parent)  # noqa: PTH102 - once a folder of a million members
        except FileExistsError:
            mode = os.lstat(parent).st_mode
            if stat.S_ISLNK(mode):
                raise StorageError(
                    f"{parent}: a symbolic link would lead out of the folder"
                ) from None
            if not stat.S_ISDIR(mode):
                raise StorageError(f"{parent}: a file is where a folder is needed") from None


def own_path(parent: str) -> str:
    """Return a new path of our own in `parent`."""
    return f"{parent}/{OWN}{uuid.uuid4().hex[:16]}"


def write_file(
    folder: Folder,
    path: str,
    pieces: Iterable[Buffer],
    metadata: Mapping[str, str] | None = None,
    *,
    if_absent: bool = False,
) -> int:
    """Write a file whole or not at all; return its size.

    Raises:
        ConflictError: `if_absent`, and there is a file.
        StoreFullError: no space is left.
    """
    folder.make_parent(path)
    temporary = own_path(path.rpartition("/")[0])
    try:
        try:
            size = _write_new(temporary, pieces, metadata or {})
            place(temporary, path, if_absent=if_absent)
        except BaseException:
            _unlink(temporary)
            raise
    except OSError as error:
        if error.errno == errno.ENOENT:
            folder.forget()
        raise fault(error, path) from error
    return size


def place(temporary: str, path: str, *, if_absent: bool) -> None:
    """Give a finished file its name; an `OSError` says why it cannot have it."""
    if not if_absent:
        os.replace(temporary, path)  # noqa: PTH105 - str in, str out
        return
    try:
        try:
            os.link(temporary, path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            # No hard links here: claim the name, then put the file in its place.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.replace(temporary, path)  # noqa: PTH105 - str in, str out
            return
    except FileExistsError as error:
        raise ConflictError(f"{path}: exists already") from error
    os.unlink(temporary)  # noqa: PTH108 - str in


def restore(file: int, metadata: Mapping[str, str]) -> None:
    """Give an open file the time and the permission bits of the archive."""
    mode, mtime = metadata.get("mode"), metadata.get("mtime")
    if mode is not None:
        os.fchmod(file, int(mode, 8) & 0o777)  # never set-user-id
    if mtime is not None:
        os.utime(file, (int(mtime), int(mtime)))


def _write_new(path: str, pieces: Iterable[Buffer], metadata: Mapping[str, str]) -> int:
    size = 0
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        for piece in pieces:
            write_at(file, piece, size)
            size += len(piece)
        restore(file, metadata)
    finally:
        os.close(file)
    return size


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:
        done = os.pwrite(file, view, offset)
        view = view[done:]
        offset += done


def _unlink(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108 - str in
    except OSError:
        return
