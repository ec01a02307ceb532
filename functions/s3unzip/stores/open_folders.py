"""Folders below a root that are kept open, and system calls for files in open folders.

Checking a path before using it is not safe: another user who can write below the root can replace a
folder with a symbolic link between the check and the use. The following rules apply:

1. A path is opened one folder at a time, each relative to the descriptor of its parent folder, and
   never through a symbolic link (openat(2), O_NOFOLLOW). Only links in the path of the root itself
   are followed.
2. Up to `MAX_OPEN` folders stay open. An open folder is reused only if its path still leads to it.
   If another program moves the folder right after this check, the file is written to the moved
   folder, and never through a link that has taken the place of the folder.
3. A descriptor is closed when nothing refers to its `OpenFolder` any more. `close` closes all
   descriptors, even those of folders to which the traceback of an error still refers. While `close`
   runs, no thread may be using a folder.
4. The root is opened only once. If the root was deleted or replaced, a write fails, `forget` is
   called, and the next attempt reopens everything.
"""

import errno
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from s3unzip import errors
from s3unzip.model import NO_NAMES
from s3unzip.object_properties import MTIME_KEY
from s3unzip.stores.files import explaining, make_folders, translate_error
from s3unzip.stores.ports import Buffer

# O_PATH (Linux) does not require permission to read the folder. On other systems, folders are
# opened for reading.
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
MAX_OPEN = 16  # number of folders kept open: macOS lets a process open 256 files
CLOSED = -1  # value of the descriptor after `close`
# On Linux, ENOTSUP and EOPNOTSUPP are the same number. On macOS, the numbers differ, and link(2)
# sets ENOTSUP.
NOT_SUPPORTED = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
NO_HARD_LINKS = NOT_SUPPORTED | {errno.EPERM, errno.EMLINK}
# The function renameat2(2) and its flag RENAME_NOREPLACE, or the equivalents on macOS.
_EXCLUSIVE_RENAME = {"darwin": ("renameatx_np", 4)}.get(sys.platform, ("renameat2", 1))


class OpenFolder:
    """The descriptor of a folder; it is closed when this object is no longer referenced."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.facts = os.fstat(file)  # device and inode identify the folder

    def close(self) -> None:
        """Close the descriptor; do nothing if it is already closed."""
        if self.file != CLOSED:
            os.close(self.file)
            self.file = CLOSED

    __del__ = close


class OpenFolders:
    """Opens folders below a root; threads may share this object.

    Args:
        root: absolute path of the root.
        mode: mode of new folders.
    """

    def __init__(self, root: str, mode: int) -> None:
        self._path = root
        self._mode = mode
        self._root: OpenFolder | None = None
        self._opened_with_create = False  # whether `_root` was opened with `create`
        self._open: dict[str, OpenFolder] = {}  # open folders by path
        # All open folders, including those referenced only by a thread or a traceback.
        self._all_open: WeakSet[OpenFolder] = WeakSet()

    def get(self, path: str, *, create: bool = False) -> OpenFolder:
        """Return the open folder at `path`, relative to the root; "" is the root itself.

        Args:
            path: names joined by "/". No name may be empty, "." or "..".
            create: whether to make missing folders.
        """
        root = self._open_root(create=create)
        if not path:
            return root
        folder = self._open.get(path)
        if folder is not None and _leads_to(root, path, folder):
            return folder
        folder = self._walk(root, path, create=create)
        if len(self._open) >= MAX_OPEN:
            # Archives usually list members folder by folder, so earlier folders are seldom needed.
            self._open.clear()
        self._open[path] = folder
        return folder

    def forget(self) -> None:
        """Close the folders that no thread is using; the next `get` reopens the root."""
        self._root = None
        self._opened_with_create = False
        self._open.clear()

    def close(self) -> None:
        """Close all folders; `get` reopens them. No thread may be using a folder."""
        self.forget()
        for folder in list(self._all_open):
            folder.close()

    def _open_root(self, *, create: bool) -> OpenFolder:
        """Return the open root; the first call with `create` makes the root if it is missing."""
        root = self._root
        # The first call with `create` opens the root again, because the root may have been deleted
        # after an earlier call without `create`.
        if root is not None and (self._opened_with_create or not create):
            return root
        with explaining(self._path):
            if create:
                make_folders(Path(self._path), self._mode)
            root = OpenFolder(os.open(self._path, FOLDER_FLAGS))
        self._all_open.add(root)
        self._root = root
        self._opened_with_create = create
        return root

    def _walk(self, root: OpenFolder, path: str, *, create: bool) -> OpenFolder:
        """Open each folder in `path` relative to its parent; return the last folder."""
        folder = root
        whole = self._path
        for name in path.split("/"):
            whole = f"{whole.rstrip('/')}/{name}"
            if name in NO_NAMES:  # ".." would lead out of the root
                raise errors.StorageError(f"{whole}: not a path below {self._path}")
            try:
                folder = OpenFolder(self._open_below(folder, name, whole, create=create))
                self._all_open.add(folder)
            except OSError as error:
                # With `create`, ENOENT means that the open parent folder was deleted. The next
                # attempt opens all folders again.
                if create and error.errno == errno.ENOENT:
                    self.forget()
                raise explain_folder(error, whole, create=create) from error
        return folder

    def _open_below(self, parent: OpenFolder, name: str, path: str, *, create: bool) -> int:
        """Return a new descriptor for the folder `name` in `parent`; `path` is used in messages."""
        try:
            return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent.file)
        except FileNotFoundError:
            if not create:
                raise
        except NotADirectoryError:
            # On Linux, a symbolic link causes this error. On other systems, a symbolic link causes
            # ELOOP, which `_walk` translates.
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent.file).st_mode):
                raise errors.StorageError(
                    f"{path}: a symbolic link ({name!r}) would lead out of the folder"
                ) from None
            raise
        # The folder is missing, and `create` is set.
        with suppress(FileExistsError):  # another process may have made the folder
            os.mkdir(name, self._mode, dir_fd=parent.file)
        return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent.file)


def _leads_to(root: OpenFolder, path: str, folder: OpenFolder) -> bool:
    """Return whether a path below the root still leads to an open folder."""
    with suppress(OSError):
        return os.path.samestat(
            os.stat(path, dir_fd=root.file, follow_symlinks=False), folder.facts
        )
    return False


def explain_folder(error: OSError, path: str, *, create: bool) -> errors.S3UnzipError:
    """Return the error of this package for a system error about a folder at `path`.

    With `create`, ENOENT means that another program removed the folder after it was made. Without
    `create`, the folder counts as missing if there is a file in its place.
    """
    if create and error.errno == errno.ENOENT:
        return errors.ServiceFaultError(
            f"{path}: its folder was deleted or replaced in the meantime"
        )
    if not create and error.errno == errno.ENOTDIR:
        return errors.NotFoundError(f"{path}: a file is where a folder is needed")
    return translate_error(error, path)


def rename(old: str, old_folder: int, new: str, new_folder: int, *, if_absent: bool) -> None:
    """Move the file `old` in one open folder to `new` in another.

    A plain rename replaces an existing file. With `if_absent`, this function instead links the name
    `new` to the file, then removes the name `old`. Linking fails if `new` exists.

    Args:
        old_folder: descriptor of the folder that contains the file.
        new_folder: descriptor of the folder to move the file to.
    """
    if not if_absent:
        os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
        return
    try:
        os.link(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        _rename_exclusively(old, old_folder, new, new_folder)
    else:
        os.unlink(old, dir_fd=old_folder)


def _rename_exclusively(old: str, old_folder: int, new: str, new_folder: int) -> None:
    """Rename as `rename` does with `if_absent`, on a file system without hard links.

    A few file systems (FUSE) do not support exclusive renames. On such a file system, this function
    checks that `new` is missing, then renames. If another program creates `new` between the check
    and the rename, the rename replaces this new file.
    """
    import ctypes  # noqa: PLC0415 - rarely needed

    function, flag = _EXCLUSIVE_RENAME
    call = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    code = errno.ENOSYS
    if call is not None:
        paths = (old_folder, os.fsencode(old), new_folder, os.fsencode(new))
        if not call(*paths, flag):  # 0 means success
            return
        code = ctypes.get_errno()
    # With one of these codes, the system or the file system does not support the call or the flag.
    if code not in NOT_SUPPORTED | {errno.EINVAL}:
        raise OSError(code, os.strerror(code))
    try:
        os.stat(new, dir_fd=new_folder, follow_symlinks=False)
    except FileNotFoundError:  # the name is free
        os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def restrict_mode(file: int, mode: int) -> None:
    """Remove from an open file all permissions that `mode` does not contain."""
    bits = stat.S_IMODE(os.fstat(file).st_mode)
    with suppress(OSError):  # the file system may not support modes
        os.fchmod(file, bits & mode)


def restore_time(file: int, metadata: Mapping[str, str]) -> None:
    """Set the modification time of an open file to the time recorded in the archive."""
    mtime = metadata.get(MTIME_KEY)
    if mtime is not None:
        # On FAT, only the user who mounted the disk can set times. Some file systems do not store
        # file times.
        with suppress(OSError):
            os.utime(file, (int(mtime), int(mtime)))


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:  # a single call may write fewer bytes
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written
