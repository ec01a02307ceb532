"""Translate an `OSError` into the tree of `errors`, with the path and advice."""

from __future__ import annotations

import errno

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    StoreFullError,
)

HOME_ADVICE = "records of runs are kept there: S3UNZIP_HOME names another folder"
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
    errno.ENOTDIR: (StorageError, "a file is where a folder is needed"),
    errno.EEXIST: (StorageError, "a file is where a folder is needed"),
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
    return kind(f"{path}: {text}")
