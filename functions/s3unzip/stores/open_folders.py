"""Folders below a root that are kept open, and the system calls for files in open folders.

Checking a path before using it is not safe: another user who can write below the root can replace a
folder by a symbolic link between the check and the use. The rules:

1. A folder is opened name by name, each relative to the descriptor of the one above it, and never
   through a link (openat(2), O_NOFOLLOW). Only links in the root's own path are followed.
2. Folders stay open, within a bound. An open folder is used again only if its path still leads to
   it. If another program moves the folder right after this check, a file goes into the moved
   folder, and never through the link that has taken its place.
3. A descriptor is closed when no thread holds its `OpenFolder` any more. `close` closes all,
   even those that the traceback of an error still holds; no thread may use a folder by then.
4. The root is opened once. If it was deleted or replaced, a write fails, `forget` is called, and
   the next attempt opens everything anew.
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

# O_PATH (Linux) needs no right to read the folder; elsewhere folders are opened for reading.
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
MAX_OPEN = 16  # folders that are kept open: macOS lets a process open 256 files
CLOSED = -1  # stands for the descriptor after `close`
NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
# The name of renameat2(2) and its flag RENAME_NOREPLACE; macOS has the same call by another name.
_EXCLUSIVE_RENAME = {"darwin": ("renameatx_np", 4)}.get(sys.platform, ("renameat2", 1))


class OpenFolder:
    """The descriptor of a folder; it is closed when nothing refers to this object any more."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.facts = os.fstat(file)

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
        mode: the mode of new folders.
    """

    def __init__(self, root: str, mode: int) -> None:
        self._path = root
        self._mode = mode
        self._root: OpenFolder | None = None
        self._is_made = False  # whether `_root` was opened with `create`, which makes the folder
        self._open: dict[str, OpenFolder] = {}  # by path
        # Including those that only threads or errors hold.
        self._all: WeakSet[OpenFolder] = WeakSet()

    def get(self, path: str, *, create: bool = False) -> OpenFolder:
        """Return the folder `path`, relative to the root; "" is the root.

        Args:
            path: names joined by "/", none of them empty, "." or "..".
            create: whether to make the folders that are missing.
        """
        root = self._open_root(create=create)
        if not path:
            return root
        folder = self._open.get(path)
        if folder is not None and _leads_to(root, path, folder):
            return folder
        folder = self._walk(root, path, create=create)
        if len(self._open) >= MAX_OPEN:
            # An archive lists its members folder by folder, so an earlier folder is seldom needed.
            self._open.clear()
        self._open[path] = folder
        return folder

    def forget(self) -> None:
        """Close the folders that no thread uses; the next `get` opens the root anew."""
        self._root = None
        self._is_made = False
        self._open.clear()

    def close(self) -> None:
        """Close every folder; no thread may still be using one. `get` opens them anew."""
        self.forget()
        for folder in list(self._all):
            folder.close()

    def _open_root(self, *, create: bool) -> OpenFolder:
        """Return the open root; the first call with `create` makes it if it is missing."""
        root = self._root
        if root is not None and (self._is_made or not create):
            return root
        with explaining(self._path):
            if create:
                make_folders(Path(self._path), self._mode)
            root = OpenFolder(os.open(self._path, FOLDER_FLAGS))
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
            if name in NO_NAMES:  # ".." would lead out of the root
                raise errors.StorageError(f"{whole}: not a path below {self._path}")
            try:
                folder = OpenFolder(self._open_below(folder, name, whole, create=create))
                self._all.add(folder)
            except OSError as error:
                if create and error.errno == errno.ENOENT:  # a folder was deleted meanwhile
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
        except NotADirectoryError:  # on Linux also for a link; other systems answer ELOOP
            if stat.S_ISLNK(os.lstat(name, dir_fd=parent.file).st_mode):
                raise errors.StorageError(
                    f"{path}: a symbolic link ({name!r}) would lead out of the folder"
                ) from None
            raise
        with suppress(FileExistsError):  # another process may be faster
            os.mkdir(name, self._mode, dir_fd=parent.file)
        return os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent.file)


def _leads_to(root: OpenFolder, path: str, folder: OpenFolder) -> bool:
    """Return whether a path below the root still leads to an open folder."""
    try:
        facts = os.stat(path, dir_fd=root.file, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(facts, folder.facts)


def explain_folder(error: OSError, path: str, *, create: bool) -> errors.S3UnzipError:
    """Return the error of this package for an error of the system about a folder at `path`.

    With `create`, ENOENT means a race: the folder was made, and another program removed it.
    Without `create`, a file in place of a folder means that the folder does not exist.
    """
    if create and error.errno == errno.ENOENT:
        return errors.ServiceFaultError(f"{path}: its folder was deleted or replaced meanwhile")
    if not create and error.errno == errno.ENOTDIR:
        return errors.NotFoundError(f"{path}: a file is where a folder is needed")
    return translate_error(error, path)


def rename(old: str, old_folder: int, new: str, new_folder: int, *, if_absent: bool) -> None:
    """Move the file `old` in one open folder to `new` in another.

    With `if_absent`, a hard link is made first, because a link fails where `new` exists. A plain
    rename replaces the file of that name.

    Args:
        old_folder: the descriptor of the folder that has the file.
        new_folder: the descriptor of the folder that gets the file.
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
    """Do what `rename` does with `if_absent`, on a file system without hard links.

    A few file systems (FUSE) cannot rename exclusively either. There, a file that another program
    makes between the check and the rename is replaced.
    """
    import ctypes  # noqa: PLC0415 - rare

    function, flag = _EXCLUSIVE_RENAME
    call = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    code = errno.ENOSYS
    if call is not None:
        paths = (old_folder, os.fsencode(old), new_folder, os.fsencode(new))
        if not call(*paths, flag):  # 0 is success
            return
        code = ctypes.get_errno()
    # These two codes mean that the system or the file system lacks the call or its flag.
    if code not in {errno.ENOSYS, errno.EINVAL}:
        raise OSError(code, os.strerror(code))
    with suppress(FileNotFoundError):  # the name is free
        os.stat(new, dir_fd=new_folder, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.replace(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)


def clear_mode_bits(file: int, mode: int) -> None:
    """Clear the bits of an open file's mode that are not in `mode`; no bit is added."""
    bits = stat.S_IMODE(os.fstat(file).st_mode)
    if bits & mode != bits:
        with suppress(PermissionError):  # a file system without modes
            os.fchmod(file, bits & mode)


def restore_time(file: int, metadata: Mapping[str, str]) -> None:
    """Give an open file the modification time that the archive records for it."""
    mtime = metadata.get(MTIME_KEY)
    if mtime is not None:
        os.utime(file, (int(mtime), int(mtime)))


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:  # one call may write fewer bytes
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written
