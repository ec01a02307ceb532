"""The ports of `s3unzip.stores.ports` over memory, with the schedule's faults at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from s3unzip.zip.ranges import ByteRange

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Part, Pin
from s3unzip.stores.calls import Calls, Kind
from s3unzip.stores.ports import (
    Buffer,
    ListedObject,
    ObjectFacts,
    PartLimits,
    StoredObject,
    Tail,
    Upload,
)
from tests.disposal import MemoryDisposal
from tests.memory import MemoryArchive, MemoryBucket, MemorySource, MemoryWork
from tests.simulation.faults import Fault
from tests.simulation.threads import ClockOf
from tests.simulation.world import World

READ, WRITE, DROP, WORK = "GetObject", "PutObject", "AbortMultipartUpload", "work"
RETRY_SECONDS = 60.0
T = TypeVar("T")


class SimulatedSource:
    """Archives in the ingest bucket, or at the destination where they are nested."""

    def __init__(self, world: World, bucket: MemoryBucket) -> None:
        self._world = world
        self._source = MemorySource(bucket)

    def tail(self, location: Location, length: int) -> Tail:
        """Return the end of an archive."""
        return self._world.call("tail", READ, lambda: self._source.tail(location, length))

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        return self._world.call("head archive", READ, lambda: self._source.head(location))

    def pinned(self, location: Location, pin: Pin) -> SimulatedArchive:
        """Return a reader of one version."""
        return SimulatedArchive(self._world, self._source.pinned(location, pin))


class SimulatedArchive:
    """One version of an archive."""

    def __init__(self, world: World, archive: MemoryArchive) -> None:
        self._world = world
        self._archive = archive

    def read(self, want: ByteRange) -> bytes:
        """Return a range."""
        return self._world.call("read", READ, lambda: self._archive.read(want))

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield a range in two pieces, between which the body may break."""
        data = self._world.call("stream", READ, lambda: self._archive.read(want))
        half = len(data) // 2
        yield memoryview(data)[:half]
        if self._world.faults.injects(Fault.REFUSE, "body"):
            raise ServiceFaultError("the body broke")
        yield memoryview(data)[half:]


class SimulatedDisposal:
    """Deletes archives; the promises are told of each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disposal = MemoryDisposal(lambda _: world.ingest)

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version."""

        def effect() -> None:
            there = location.key in self._world.ingest.objects
            self._disposal.delete(location, pin)
            if there:
                self._world.promises.archive_deleted(str(pin.etag))

        self._world.call("delete archive", WRITE, effect)

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add tags."""
        self._world.call("tag", WRITE, lambda: self._disposal.tag(location, pin, tags))


class SimulatedDestination:
    """The bucket that members are written to; the promises are told what becomes visible."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bucket = world.members

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write one object; return its ETag."""

        def effect() -> str:
            etag = self._bucket.put(key, body, facts, if_absent=if_absent)
            self._tell(key)
            return etag

        return self._world.call(f"put {key}", WRITE, effect)

    def head(self, key: str) -> StoredObject | None:
        """Return what is stored."""
        return self._world.call(f"head {key}", READ, lambda: self._bucket.head(key))

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield keys, sizes and ETags."""
        bucket = self._bucket
        yield from self._world.call(
            "list", READ, lambda: list(bucket.list_objects(prefix, first, last))
        )

    def read(self, key: str) -> Iterator[Buffer]:
        """Yield an object's bytes."""
        yield from self._world.call(f"read {key}", READ, lambda: list(self._bucket.read(key)))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._world.call("delete", WRITE, lambda: self._bucket.delete(keys))

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload."""
        bucket = self._bucket
        return self._world.call(f"create {key}", WRITE, lambda: bucket.create_upload(key, facts))

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Upload one part."""
        return self._world.call(
            f"part {number} of {upload.upload_id}",
            WRITE,
            lambda: self._bucket.upload_part(upload, number, offset, body, crc32),
        )

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        """Copy one part."""
        return self._world.call(
            f"copy {number} of {upload.upload_id}",
            WRITE,
            lambda: self._bucket.copy_part(upload, number, offset, source, pin, span),
        )

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        """Make the object visible; return its ETag."""

        def effect() -> str:
            etag = self._bucket.complete_upload(upload, parts, if_absent=if_absent)
            self._tell(upload.key)
            return etag

        return self._world.call(f"complete {upload.upload_id} {upload.key}", WRITE, effect)

    def abort_upload(self, upload: Upload) -> None:
        """Drop an upload."""
        bucket = self._bucket
        self._world.call(f"abort {upload.upload_id}", DROP, lambda: bucket.abort_upload(upload))

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield incomplete uploads."""
        bucket = self._bucket
        yield from self._world.call("list uploads", DROP, lambda: list(bucket.uploads(prefix)))

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Say that parts can be copied."""
        return True

    @property
    def part_limits(self) -> PartLimits:
        """The limits of the bucket."""
        return self._bucket.part_limits

    def _tell(self, key: str) -> None:
        stored = self._bucket.objects[key]
        run = stored.facts.metadata["s3unzip-run"]
        attempt = self._world.attempt()
        self._world.promises.object_visible(key, stored.body, stored.etag, run, attempt)


class SimulatedWork:
    """The records of one run; each request is retried by the calls of its step."""

    def __init__(self, world: World, run: str, calls: Calls | None) -> None:
        self._world = world
        self._run = run
        self._memory = MemoryWork(world.records.setdefault(run, {}))
        self._calls = calls or Calls(ClockOf(world.scheduler), RETRY_SECONDS, 8)

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object."""
        data = b"".join(pieces)

        def effect() -> int:
            size = self._memory.write(name, [data])
            self._world.promises.recorded(self._run, name, data)
            return size

        return self._call("put", f"write {name}", effect)

    def create(self, name: str, body: bytes) -> None:
        """Write an object where there is none."""

        def effect() -> None:
            self._memory.create(name, body)
            self._world.promises.recorded(self._run, name, body)

        self._call("put", f"create {name}", effect)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return an object or a range of it."""
        return self._call("get", f"read {name}", lambda: self._memory.read(name, span))

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces."""
        data = self._call("get", f"stream {name}", lambda: self._memory.read(name))
        for at in range(0, len(data), 1_000):
            yield data[at : at + 1_000]

    def names(self, prefix: str) -> Iterator[str]:
        """Yield names."""
        yield from self._call("list", f"list {prefix}", lambda: list(self._memory.names(prefix)))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects."""

        def effect() -> None:
            self._memory.delete(names)
            for name in names:
                self._world.promises.record_deleted(self._run, name)

        self._call("delete", f"delete {names}", effect)

    def _call(self, kind: Kind, name: str, effect: Callable[[], T]) -> T:
        return self._calls.run(kind, lambda: self._world.call(name, WORK, effect))


class SimulatedStores:
    """Opens the stores of one account."""

    def __init__(self, world: World) -> None:
        self._world = world

    def source(self, location: Location) -> SimulatedSource:
        """Return the adapter that reads `location`."""
        nested = location.bucket == "members"
        return SimulatedSource(self._world, self._world.members if nested else self._world.ingest)

    def destination(self, location: Location) -> SimulatedDestination:
        """Return the adapter that writes."""
        return SimulatedDestination(self._world)

    def disposal(self, location: Location) -> SimulatedDisposal:
        """Return what deletes and tags the archive at `location`."""
        return SimulatedDisposal(self._world)

    def run_store(self, run: str, calls: Calls | None = None) -> SimulatedWork:
        """Return the records of one run."""
        return SimulatedWork(self._world, run, calls)
