"""The interface of what is done with an archive after its extraction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.model import Location, Pin


class Disposal(Protocol):
    """What becomes of archives that are extracted: only the pinned version is touched.

    Each method may be repeated: it finds what an earlier attempt has done. The first request of
    each is a HEAD; `calls.count_request` counts the others.
    """

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version; nothing happens if it is gone.

        Raises:
            SourceChangedError: another version is there; it is left.
        """
        ...

    def move(self, location: Location, pin: Pin, target: Location, run: str) -> None:
        """Copy the version to `target`, which tells its `run`, then delete it.

        Raises:
            SourceChangedError: another version is there, or none, and `target` is not of this run.
            ConflictError: `target` exists, and is not of this run.
            StorageError: the store cannot copy it.
        """
        ...

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add `tags` to those of the version.

        Raises:
            SourceChangedError: the version is gone.
            StorageError: the store cannot tag one version.
        """
        ...
