"""Stores of a worker that is killed: after so many calls nothing of it reaches the world."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.model import Location, Part, Pin
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import (
        Archive,
        Buffer,
        ListedObject,
        ObjectFacts,
        PartLimits,
        Source,
        StoredObject,
        Tail,
        Upload,
    )
    from s3unzip.zip import ByteRange
    from tests.disposal import MemoryDisposal
    from tests.memory import (
        MemoryBucket,
        MemoryStores,
        MemoryWork,
    )


class KilledError(BaseException):
    """The worker is gone: no handler of the pipeline may take it for a fault."""


class Lifetime:
    """So many calls, and no more.

    `answered` is whether the last call takes effect: a worker can be killed
    before its request is out, or before the answer is in.
    """

    def __init__(self, calls: float = float("inf"), *, answered: bool = False) -> None:
        self.calls = 0
        self._most = calls
        self._answered = answered
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Count one call; say whether the worker dies after it has taken effect.

        Raises:
            KilledError: the worker is dead already, or dies now.
        """
        with self._lock:
            self.calls += 1
            if self.calls < self._most:
                return False
            if self.calls == self._most and self._answered:
                return True
        raise KilledError

    def read(self) -> None:
        """Count one call that changes nothing: whether it is answered makes no difference.

        Raises:
            KilledError: the worker is dead already, or dies now.
        """
        end(now=self.spend())


class FailsAfter:
    """The stores of a worker with a lifetime."""

    def __init__(self, stores: MemoryStores, lifetime: Lifetime) -> None:
        self._stores = stores
        self._life = lifetime

    def source(self, location: Location) -> DyingSource:
        """Return the reading side."""
        return DyingSource(self._stores.source(location), self._life)

    def destination(self, location: Location) -> DyingDestination:
        """Return the writing side."""
        return DyingDestination(self._stores.destination(location), self._life)

    def disposal(self, location: Location) -> MemoryDisposal:
        """Return what deletes, moves and tags archives; a worker does none of it."""
        return self._stores.disposal(location)

    def run_store(self, run: str, calls: Calls | None = None) -> DyingWork:
        """Return a run's own objects."""
        return DyingWork(self._stores.run_store(run, calls), self._life)


def end(*, now: bool) -> None:
    """Die after the call took effect."""
    if now:
        raise KilledError


class DyingSource:
    """The reading side."""

    def __init__(self, source: Source, life: Lifetime) -> None:
        self._source, self._life = source, life

    def tail(self, location: Location, length: int) -> Tail:
        """Return the end of an object."""
        self._life.read()
        return self._source.tail(location, length)

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        self._life.read()
        return self._source.head(location)

    def pinned(self, location: Location, pin: Pin) -> DyingArchive:
        """Return a reader of one version."""
        return DyingArchive(self._source.pinned(location, pin), self._life)


class DyingArchive:
    """One pinned version."""

    def __init__(self, archive: Archive, life: Lifetime) -> None:
        self._archive, self._life = archive, life

    def read(self, want: ByteRange) -> bytes:
        """Return a range."""
        self._life.read()
        return self._archive.read(want)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield a range in pieces."""
        for piece in self._archive.stream(want):
            self._life.read()
            yield piece


class DyingDestination:
    """The writing side."""

    def __init__(self, bucket: MemoryBucket, life: Lifetime) -> None:
        self._bucket, self._life = bucket, life

    @property
    def part_limits(self) -> PartLimits:
        """The bucket's limits."""
        return self._bucket.part_limits

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write one object."""
        last = self._life.spend()
        etag = self._bucket.put(key, body, facts, if_absent=if_absent)
        end(now=last)
        return etag

    def head(self, key: str) -> StoredObject | None:
        """Return what is stored."""
        self._life.read()
        return self._bucket.head(key)

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield keys, sizes and ETags."""
        self._life.read()
        return self._bucket.list_objects(prefix, first, last)

    def read(self, key: str) -> Iterator[Buffer]:
        """Yield an object's bytes."""
        self._life.read()
        return self._bucket.read(key)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._life.read()
        self._bucket.delete(keys)

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload."""
        last = self._life.spend()
        upload = self._bucket.create_upload(key, facts)
        end(now=last)
        return upload

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Upload one part."""
        last = self._life.spend()
        part = self._bucket.upload_part(upload, number, offset, body, crc32)
        end(now=last)
        return part

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        """Copy one part."""
        last = self._life.spend()
        part = self._bucket.copy_part(upload, number, offset, source, pin, span)
        end(now=last)
        return part

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        """Make the object visible."""
        last = self._life.spend()
        etag = self._bucket.complete_upload(upload, parts, if_absent=if_absent)
        end(now=last)
        return etag

    def abort_upload(self, upload: Upload) -> None:
        """Drop an upload."""
        last = self._life.spend()
        self._bucket.abort_upload(upload)
        end(now=last)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield incomplete uploads."""
        self._life.read()
        return self._bucket.uploads(prefix)

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Say whether parts can be copied."""
        return self._bucket.copies_from(source, pin)


class DyingWork:
    """A run's own objects."""

    def __init__(self, work: MemoryWork, life: Lifetime) -> None:
        self._work, self._life = work, life

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object."""
        last = self._life.spend()
        size = self._work.write(name, pieces)
        end(now=last)
        return size

    def create(self, name: str, body: bytes) -> None:
        """Write an object, unless it exists."""
        last = self._life.spend()
        self._work.create(name, body)
        end(now=last)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return an object or a range of it."""
        self._life.read()
        return self._work.read(name, span)

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces."""
        self._life.read()
        return self._work.stream(name)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield names."""
        self._life.read()
        return self._work.names(prefix)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects."""
        last = self._life.spend()
        self._work.delete(names)
        end(now=last)
