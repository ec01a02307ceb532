"""Archives in files that are extracted: deleted or moved, if they are still what was extracted."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import ConflictError, NotFoundError, SourceChangedError, StorageError
from s3unzip.stores.folder.files import OWN
from s3unzip.stores.folder.os_errors import translate_error
from s3unzip.stores.folder.source import FileSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.model import Location, Pin

# The target is on another file system, or that one knows no hard links.
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


class FileDisposal:
    """Deletes and moves files by their absolute path.

    Between the check and the deletion another program can replace the file: a file system has no
    condition on that.
    """

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the file; nothing happens if it is gone.

        Raises:
            SourceChangedError: it is another file, or was written to; it is left.
            AccessDeniedError: the folder cannot be written.
        """
        if not _is_there(location, pin):
            return
        try:
            Path(location.key).unlink(missing_ok=True)
        except OSError as error:
            raise translate_error(error, location.key) from error

    def move(self, location: Location, pin: Pin, target: Location, run: str) -> None:  # noqa: ARG002 - of the port
        """Give the file the path `target`, whose folder is made; never over another file.

        Raises:
            SourceChangedError: it is another file, or gone and not at `target`.
            ConflictError: another file is at `target`.
            StorageError: the system refuses.
        """
        here, there = Path(location.key), Path(target.key)
        is_here = _is_there(location, pin)
        try:
            if not is_here:
                if not there.exists():
                    raise SourceChangedError(f"{here}: is gone, and it is not at {there}")
                return
            there.parent.mkdir(parents=True, exist_ok=True)
            _place(here, there)
        except OSError as error:
            raise translate_error(error, str(there)) from error
        self.delete(location, pin)

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - of the port
        """Refuse: a file has no tags.

        Raises:
            StorageError: always.
        """
        raise StorageError(f"{location.key}: a file has no tags; delete or move it instead")


def _is_there(location: Location, pin: Pin) -> bool:
    """Return whether the file is as it was pinned; False if it is gone.

    Raises:
        SourceChangedError: it is another one.
    """
    try:
        found = FileSource().head(location)
    except NotFoundError:
        return False
    if found != pin:
        raise SourceChangedError(f"{location.key}: a newer file is there")
    return True


def _place(here: Path, there: Path) -> None:
    """Let `there` be the file too, or a copy of it.

    Raises:
        ConflictError: another file is at `there`.
    """
    if os.path.lexists(there):
        if not filecmp.cmp(here, there, shallow=False):
            raise ConflictError(f"{there}: exists already; it is not overwritten")
        return
    try:
        os.link(here, there)
    except FileExistsError:  # it came just now
        _place(here, there)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        _copy(here, there)


def _copy(here: Path, there: Path) -> None:
    """Copy the file whole or not at all, with its times and mode."""
    new = there.with_name(OWN + uuid.uuid4().hex[:16])
    try:
        shutil.copy2(here, new)
        new.rename(there)
    finally:
        with suppress(FileNotFoundError):
            new.unlink()
