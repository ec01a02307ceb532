"""A temporary file for an archive that cannot be read in ranges where it is.

Where other processes can open a file by its descriptor, the file has no name, so it disappears with
this process, however that ends. Elsewhere it has a name, only its owner can open it, and it is
deleted when the command ends.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from s3unzip.errors import StorageError, StoreFullError, UsageError
from s3unzip.model import Pin
from s3unzip.stores.spool.spooled_archive import SpooledArchive

if TYPE_CHECKING:
    from types import TracebackType

    from s3unzip.model import Location

DESCRIPTORS = "/proc/self/fd"  # where it exists, other processes can open this one's files, too
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
DIGEST_BYTES = 16


class Spool:
    """Takes the bytes of one archive; other processes of this user may read them.

    Args:
        name: of the archive, for messages.
        max_bytes: more of them are refused.

    Raises:
        StorageError: no temporary file can be made.
    """

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._size = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        try:
            self._file, self._path = _open_file()
        except OSError as error:
            raise StorageError(f"no temporary file: {error}; set TMPDIR to a folder") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def expect(self, size: int) -> None:
        """Refuse an archive that will be too large, before its first byte.

        Raises:
            UsageError: it is.
        """
        if size > self._max_bytes:
            raise UsageError(
                f"{self._name}: larger than {self._max_bytes:,} bytes, the limit of a temporary "
                f"copy: raise --max-spool, or save the archive first"
            )

    def restart(self) -> None:
        """Forget what was written.

        Raises:
            StoreFullError, StorageError: the file cannot be written.
        """
        self._size = 0
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise self._fault(error) from error

    def write(self, piece: bytes) -> None:
        """Append bytes.

        Raises:
            UsageError: it has become too large.
            StoreFullError, StorageError: the file cannot be written.
        """
        self.expect(self._size + len(piece))
        try:
            left = memoryview(piece)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._fault(error) from error
        self._size += len(piece)
        self._digest.update(piece)

    def finish(self, location: Location, etag: str | None = None) -> SpooledArchive:
        """Return the archive that was written.

        Args:
            location: of the archive.
            etag: how its server names the version; None: a hash of its content does.
        """
        pin = Pin(self._size, etag or f'"{self._digest.hexdigest()}"')
        return SpooledArchive(location, self._path, pin, self._max_bytes)

    def _fault(self, error: OSError) -> StorageError:
        folder = tempfile.gettempdir()
        if error.errno in FULL:
            return StoreFullError(
                f"{folder}: no space left after {self._size:,} bytes of {self._name}; set TMPDIR "
                f"to a folder with more"
            )
        return StorageError(f"{folder}: {error.strerror}")


def _open_file() -> tuple[IO[bytes], str]:
    """Return a new file without buffer, and the path by which all processes open it."""
    if Path(DESCRIPTORS).is_dir():
        unnamed = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
        return unnamed, f"/proc/{os.getpid()}/fd/{unnamed.fileno()}"
    named = tempfile.NamedTemporaryFile(buffering=0, prefix="s3unzip-")  # noqa: SIM115 - likewise
    return named, named.name
