"""Translate an `OSError` into the tree of `errors`, with the path and advice."""

from __future__ import annotations

import difflib
import errno
import os
from itertools import islice
from pathlib import Path

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    StoreFullError,
)

HOME_ADVICE = "records of runs are kept there: S3UNZIP_HOME names another folder"
FILE_IN_THE_WAY = "a file is where a folder is needed"
MAX_NAMES = 10_000  # names of a folder that are looked through for near ones
_KINDS: dict[int, tuple[type[S3UnzipError], str]] = {
    errno.ENOENT: (NotFoundError, "no such file or folder"),
    errno.EACCES: (AccessDeniedError, "permission denied: change its rights, or use another place"),
    errno.EPERM: (AccessDeniedError, "not permitted: change its rights, or use another place"),
    errno.EROFS: (AccessDeniedError, "the file system is read-only: use another place"),
    errno.ENOSPC: (StoreFullError, "no space left: make room, or use another place"),
    errno.EDQUOT: (StoreFullError, "the disk quota is reached: make room, or use another place"),
    errno.EFBIG: (StoreFullError, "too large for this file system"),
    errno.ENAMETOOLONG: (StorageError, "the name is too long for this file system"),
    errno.EISDIR: (StorageError, "a folder is where a file is needed"),
    errno.ENOTDIR: (StorageError, FILE_IN_THE_WAY),
    errno.EEXIST: (StorageError, FILE_IN_THE_WAY),
    errno.ENOTEMPTY: (StorageError, "a folder is where a file is needed"),
    errno.EILSEQ: (StorageError, "the name is not allowed on this file system"),
    errno.EINVAL: (StorageError, "the name is not allowed on this file system"),
    errno.ELOOP: (StorageError, "a symbolic link is in the way"),
    errno.EMFILE: (ServiceFaultError, "too many open files: raise `ulimit -n`"),
    errno.ENFILE: (ServiceFaultError, "too many open files on this machine"),
}


def is_known(error: OSError) -> bool:
    """Return whether there are words for what the system refused."""
    return error.errno in _KINDS


def translate_error(error: OSError, path: str) -> S3UnzipError:
    """Return the error that says what `error` means for `path`."""
    kind, text = _KINDS.get(error.errno or 0, (ServiceFaultError, error.strerror or str(error)))
    if text == FILE_IN_THE_WAY:
        path = _file_in_the_way(path)
    return kind(f"{path}: {text}")


def _file_in_the_way(path: str) -> str:
    """Return the part of `path` that is a file; `path` if that cannot be seen."""
    whole = Path(path)
    for part in (*reversed(whole.parents), whole):
        if os.path.lexists(part) and not part.is_dir():
            return str(part)
    return path


def explain_archive(error: OSError, path: str) -> S3UnzipError:
    """Return the error that says why the archive `path` cannot be opened."""
    if error.errno == errno.EISDIR:
        return StorageError(
            f"{path}: is a folder; name an archive in it (s3unzip run takes folders too)"
        )
    explained = translate_error(error, path)
    if error.errno != errno.ENOENT:
        return explained
    near = _near_names(Path(path))
    return NotFoundError(f"{explained}{f'; near: {near}' if near else ''}")


def _near_names(path: Path) -> str:
    """Return names in the folder of `path` that may be meant, quoted."""
    try:
        names = {
            entry.name.lower(): entry.name for entry in islice(os.scandir(path.parent), MAX_NAMES)
        }
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name.lower(), names, 3, 0.77)
    return ", ".join(repr(names[name]) for name in near)
