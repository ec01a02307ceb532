"""What is below a folder, in the order in which S3 lists keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from s3unzip.errors import StorageError
from s3unzip.stores.folder.files import OWN
from s3unzip.stores.folder.os_errors import translate_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.stores.folder.placing import Folder

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def list_files(folder: Folder, prefix: str, first: str) -> Iterator[tuple[str, int]]:
    """Yield (key, size) of the files whose keys begin with `prefix`, in UTF-8 order.

    Folders whose keys are all below `first` are left out. ``a.txt`` is before
    ``a/b``, as in S3. Symbolic links are not followed and not listed.
    """
    start = folder.root.rstrip("/") + "/"
    above = prefix[: prefix.rfind("/") + 1]
    top = above if above.startswith(start) else start
    stack = [_entries(folder, top[len(start) :])]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        path, size = entry
        key = start + path
        if size is not None:
            if key.startswith(prefix):
                yield key, size
        elif key >= first or first.startswith(key):
            stack.append(_entries(folder, path))


def own_names(folder: Folder, ending: str) -> list[str]:
    """Return the names of our own files at the top of the folder that end with `ending`."""
    return sorted(
        entry.name
        for entry in _scan(folder, "")
        if entry.name.startswith(OWN) and entry.name.endswith(ending)
    )


def _entries(folder: Folder, path: str) -> Iterator[tuple[str, int | None]]:
    """Return (path, size) of what is in a folder; a folder ends in "/" and has no size.

    Args:
        folder: the whole.
        path: of the folder, relative, empty or ending in "/".
    """
    found: list[tuple[str, int | None]] = []
    for entry in _scan(folder, path.rstrip("/")):
        if entry.name.startswith(OWN):
            continue
        if entry.is_dir(follow_symlinks=False):
            found.append((f"{path}{entry.name}/", None))
        elif entry.is_file(follow_symlinks=False):
            found.append((path + entry.name, entry.stat(follow_symlinks=False).st_size))
    found.sort(key=lambda pair: pair[0])
    return iter(found)


def _scan(folder: Folder, path: str) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a folder; nothing where there is none, or a link is in the way."""
    try:
        directory = folder.directories.open(path, create=False)
        file = os.open(".", _OPEN, dir_fd=directory.fd)
        try:
            with os.scandir(file) as entries:
                yield from entries
        finally:
            os.close(file)
    except (FileNotFoundError, NotADirectoryError, StorageError):
        return
    except OSError as error:
        raise translate_error(error, f"{folder.root}/{path}") from error
