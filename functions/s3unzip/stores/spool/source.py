"""A source of the one archive that is kept in a temporary file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import SourceChangedError, UsageError
from s3unzip.model import Location
from s3unzip.stores.folder.source import FileSource

if TYPE_CHECKING:
    from s3unzip.model import Pin
    from s3unzip.stores.folder.source import FileArchive
    from s3unzip.stores.ports import Tail
    from s3unzip.stores.spool.spooled_archive import SpooledArchive


class SpooledSource:
    """Reads the archive of `kept` and no other."""

    def __init__(self, kept: SpooledArchive) -> None:
        self._kept = kept
        self._files = FileSource()
        self._place = Location("file", "", kept.path)

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin."""
        return self._files.tail(self._place, length)._replace(pin=self.head(location))

    def head(self, location: Location) -> Pin:
        """Return what is kept.

        Raises:
            UsageError: that is another archive: a part of a split one.
        """
        if location != self._kept.location:
            raise UsageError(
                f"{location}: the server sends archives only whole, so the parts of a split one "
                f"must be downloaded first"
            )
        return self._kept.pin

    def pinned(self, location: Location, pin: Pin) -> FileArchive:
        """Return a reader of exactly that version.

        Raises:
            SourceChangedError: another one was kept.
        """
        if pin != self._kept.pin:
            raise SourceChangedError(f"{location}: changed since it was planned")
        return self._files.pinned(self._place, self._files.head(self._place))
