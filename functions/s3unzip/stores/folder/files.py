"""One file of a folder that is being written: without a name until it is complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.stores.folder.descriptors import Directory
    from s3unzip.stores.ports import Buffer

OWN = ".s3unzip-"  # how names of our own begin; members may not be called so
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
OWN_FILES = "/proc/self/fd"  # proc(5): a name for each open file, also for one without a name
MAX_TRIES = 100  # to take a name that other processes take, too
PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW


class NewFile:
    """A file that is being written; `close` deletes it unless it was placed."""

    __slots__ = ("_directory", "_temporary", "fd")

    def __init__(self, fd: int, directory: Directory, temporary: str | None = None) -> None:
        self.fd = fd
        self._directory = directory
        self._temporary = temporary  # None: it has no name

    def place(self, name: str, *, if_absent: bool) -> None:
        """Give the finished file its name.

        Raises:
            FileExistsError: `if_absent`, and there is a file.
            OSError: it cannot have the name.
        """
        if self._temporary is None:
            _link_unnamed(self.fd, self._directory, name, if_absent=if_absent)
        else:
            rename(self._temporary, self._directory, name, self._directory, if_absent=if_absent)
            self._temporary = None

    def close(self) -> None:
        """Close the file, and drop it if it was not placed."""
        os.close(self.fd)
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory.fd)


def rename(old: str, source: Directory, name: str, target: Directory, *, if_absent: bool) -> None:
    """Give the file `old` of `source` the name `name` in `target`.

    Raises:
        FileExistsError: `if_absent`, and there is a file.
        OSError: it cannot have the name.
    """
    ends = {"src_dir_fd": source.fd, "dst_dir_fd": target.fd}
    if not if_absent:
        os.replace(old, name, **ends)  # noqa: PTH105 - relative to descriptors
        return
    try:
        os.link(old, name, **ends, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # No hard links here: claim the name, then put the file in its place.
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | PLAIN
        os.close(os.open(name, flags, 0o600, dir_fd=target.fd))
        os.replace(old, name, **ends)  # noqa: PTH105
        return
    os.unlink(old, dir_fd=source.fd)


def _link_unnamed(file: int, directory: Directory, name: str, *, if_absent: bool) -> None:
    """Give a file without a name one, over what has the name unless `if_absent`.

    A link cannot replace a name. So the file gets a name of our own first,
    always the same for one target: what a process leaves that is killed
    between the two calls, the next writer of the target removes.
    """
    source, at = f"{OWN_FILES}/{file}", directory.fd
    try:
        os.link(source, name, dst_dir_fd=at, follow_symlinks=True)
    except FileExistsError:
        if if_absent:
            raise
    else:
        return
    own = OWN + hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
    for _ in range(MAX_TRIES):
        try:
            os.link(source, own, dst_dir_fd=at, follow_symlinks=True)
        except FileExistsError:
            _unlink(own, at)
            continue
        try:
            os.replace(own, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError:
            _unlink(own, at)
            raise
        return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _unlink(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def restore(file: int, metadata: Mapping[str, str]) -> None:
    """Give an open file the time and the permission bits of the archive.

    A mode without any permission is not restored: many writers leave it zero,
    and nobody but root could read the file.
    """
    mode, mtime = metadata.get("mode"), metadata.get("mtime")
    bits = int(mode, 8) & 0o777 if mode is not None else 0  # never set-user-id
    if bits:
        os.fchmod(file, bits)
    if mtime is not None:
        os.utime(file, (int(mtime), int(mtime)))


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:
        done = os.pwrite(file, view, offset)
        view = view[done:]
        offset += done
