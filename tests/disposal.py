"""Deleting, moving and tagging archives in the buckets of `tests.memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import ConflictError, SourceChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from s3unzip.model import Location, Pin
    from tests.memory import MemoryBucket, Stored

MOVED_BY = "moved-by"


class MemoryDisposal:
    """What becomes of archives in memory; a bucket knows one version of each."""

    def __init__(self, bucket: Callable[[str], MemoryBucket]) -> None:
        self._bucket = bucket

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version."""
        if self._find(location, pin) is not None:
            del self._bucket(location.bucket).objects[location.key]

    def move(self, location: Location, pin: Pin, target: Location, run: str) -> None:
        """Move the version, and note the run in the metadata."""
        found = self._find(location, pin)
        there = self._bucket(target.bucket).objects.get(target.key)
        is_ours = there is not None and there.facts.metadata.get(MOVED_BY) == run
        if there is not None and not is_ours:
            raise ConflictError(f"{target}: exists already")
        if found is None:
            if not is_ours:
                raise SourceChangedError(f"{location}: is gone")
            return
        facts = replace(found.facts, metadata={**found.facts.metadata, MOVED_BY: run})
        self._bucket(target.bucket).put(target.key, found.body, facts, if_absent=False)
        self.delete(location, pin)

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add tags; they are kept as metadata."""
        found = self._find(location, pin)
        if found is None:
            raise SourceChangedError(f"{location}: is gone")
        found.facts.metadata.update(tags)

    def _find(self, location: Location, pin: Pin) -> Stored | None:
        found = self._bucket(location.bucket).objects.get(location.key)
        if found is not None and found.etag != pin.etag:
            raise SourceChangedError(f"{location}: a newer archive is there")
        return found
