"""What the system is asked to do with files that are open, or named in open folders."""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Mapping

from s3unzip.object_properties import MTIME_KEY
from s3unzip.stores.ports import Buffer

NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
NO_EXCLUSIVE_RENAME = frozenset({errno.ENOSYS, errno.EINVAL})
# renameat2(2) with RENAME_NOREPLACE, and what macOS calls so.
_EXCLUSIVE_RENAME = ("renameatx_np", 4) if sys.platform == "darwin" else ("renameat2", 1)


def rename(old: str, source: int, name: str, target: int, *, if_absent: bool) -> None:
    """Move the file `old` of the open folder `source` to `name` in the open folder `target`.

    A link fails where the name exists, and a plain rename replaces what has it.
    """
    if not if_absent:
        os.replace(old, name, src_dir_fd=source, dst_dir_fd=target)
        return
    try:
        os.link(old, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        rename_exclusively(old, source, name, target)
    else:
        os.unlink(old, dir_fd=source)


def rename_exclusively(old: str, source: int, name: str, target: int) -> None:
    """Rename a file unless the name exists, on a file system without hard links.

    Few file systems (FUSE) have neither. There another program's file is replaced if it appears
    between the look and the rename.
    """
    import ctypes  # noqa: PLC0415 - rare

    function, flag = _EXCLUSIVE_RENAME
    call = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    code = errno.ENOSYS
    if call is not None:
        names = (source, os.fsencode(old), target, os.fsencode(name))
        if not call(*names, flag):
            return
        code = ctypes.get_errno()
    if code not in NO_EXCLUSIVE_RENAME:
        raise OSError(code, os.strerror(code))
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=target, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.replace(old, name, src_dir_fd=source, dst_dir_fd=target)


def restore_mode(file: int, mode: int) -> None:
    """Clear the mode bits of an open file that are not in `mode`; no bit is added."""
    bits = stat.S_IMODE(os.fstat(file).st_mode)
    if bits & mode != bits:
        with contextlib.suppress(PermissionError):  # a file system without modes
            os.fchmod(file, bits & mode)


def restore_time(file: int, metadata: Mapping[str, str]) -> None:
    """Give an open file the time of the archive."""
    mtime = metadata.get(MTIME_KEY)
    if mtime is not None:
        os.utime(file, (int(mtime), int(mtime)))


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:
        done = os.pwrite(file, view, offset)
        view = view[done:]
        offset += done
