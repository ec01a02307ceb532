"""The ports of `s3unzip.stores.ports` over memory, with the schedule's faults at each call."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, TypeVar

from s3unzip.errors import ConflictError, ServiceFaultError
from s3unzip.stores.calls import Calls
from tests.disposal import MemoryDisposal
from tests.memory import MemorySource, MemoryWork
from tests.model.facts import OVERWRITE
from tests.model.nested import learn_nested
from tests.simulation.faults import Fault
from tests.simulation.threads import ClockOf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from s3unzip.model import Location, Part, Pin
    from s3unzip.stores.calls import Kind
    from s3unzip.stores.ports import (
        Buffer,
        ListedObject,
        ObjectFacts,
        PartLimits,
        StoredObject,
        Tail,
        Upload,
    )
    from s3unzip.zip import ByteRange
    from tests.memory import MemoryArchive, MemoryBucket
    from tests.model.run import Model
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

        def effect() -> Tail:
            tail = self._source.tail(location, length)
            function = self._world.function()
            if function is not None:
                function.etag = tail.pin.etag or ""
            return tail._replace(modified=self._world.modified)

        return self._world.call("tail", READ, effect)

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


class SimulatedDestination:
    """The bucket that members are written to; the model is told what becomes visible."""

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

        def effect() -> str:
            upload = self._bucket.create_upload(key, facts)
            self._world.model.upload_begun(upload, facts.metadata["s3unzip-run"])
            return upload

        return self._world.call(f"create {key}", WRITE, effect)

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
        self._world.model.object_visible(key, stored.body, run, self._world.attempt())
        learn_nested(self._world.model, run, key, stored.etag)


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
            self._tell(name, data)
            return size

        return self._call("put", f"write {name}", effect)

    def create(self, name: str, body: bytes) -> None:
        """Write an object where there is none."""

        def effect() -> None:
            if name in self._memory.objects:
                raise ConflictError(f"{name} exists")
            self._memory.write(name, [body])
            self._tell(name, body)

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
                if name.startswith("outcomes/"):  # a run on one machine that begins anew
                    task = name.removeprefix("outcomes/").removesuffix(".jsonl")
                    self._world.model.runs[self._run].outcomes.pop(task, None)
            if "stop.json" in names:
                self._world.model.stop_changed(self._run, there=False)

        self._call("delete", f"delete {names}", effect)

    def _call(self, kind: Kind, name: str, effect: Callable[[], T]) -> T:
        return self._calls.run(kind, lambda: self._world.call(name, WORK, effect))

    def _tell(self, name: str, data: bytes) -> None:
        """Tell the model of the records that docs/run-files.md describes."""
        model = self._world.model
        if name.endswith(".zip"):  # in a folder of its own, in place of a run's id
            self._tell_claim(data)
        elif name == "run.json":
            _tell_run(model, self._run, json.loads(data))
        elif name == "stop.json":
            model.stop_changed(self._run, there=True)
        elif name == "report.json":
            model.report_written(self._run, json.loads(data))
        elif name.startswith("outcomes/"):
            _tell_outcomes(model, self._run, data)

    def _tell_claim(self, data: bytes) -> None:
        """Tell of a claim, which is JSON, or of the records of a direct run that replace it."""
        model, function = self._world.model, self._world.function()
        assert function is not None
        if data.startswith(b"{"):
            model.run_planned(json.loads(data)["run"], function.etag)
            return
        with zipfile.ZipFile(io.BytesIO(data)) as records:
            told = json.loads(records.read("run.json"))
            run = told["id"]
            _tell_run(model, run, told)
            for found in records.namelist():
                if found.startswith("outcomes/"):
                    _tell_outcomes(model, run, records.read(found))


def _tell_run(model: Model, run: str, told: dict[str, Any]) -> None:
    model.run_planned(run, told["pin"]["etag"])
    rule = told["options"].get("on_conflict", OVERWRITE)
    model.run_compares(run, compares=rule != OVERWRITE)


def _tell_outcomes(model: Model, run: str, data: bytes) -> None:
    lines = [json.loads(line) for line in data.splitlines()]
    model.outcomes_recorded(run, lines[0]["task"], lines)


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

    def disposal(self, location: Location) -> MemoryDisposal:
        """Return what deletes, moves and tags the archive at `location`."""
        bucket = self._world.members if location.bucket == "members" else self._world.ingest
        return MemoryDisposal(lambda _: bucket)

    def run_store(self, run: str, calls: Calls | None = None) -> SimulatedWork:
        """Return the records of one run."""
        return SimulatedWork(self._world, run, calls)
