"""The ports of `s3unzip.stores.ports` over memory, with the schedule's faults at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls, Kind
from s3unzip.stores.memory import MemoryRunStore
from s3unzip.stores.ports import Buffer, Upload
from s3unzip.zip.values import ByteRange
from tests.memory import MemoryArchive, MemorySource
from tests.simulation.faults import Fault
from tests.simulation.threads import ClockOf
from tests.simulation.world import World

READ, WRITE, DROP, WORK = "GetObject", "PutObject", "AbortMultipartUpload", "work"
# The right that each request needs; a method that is not here makes none.
SOURCE = {"tail": READ, "head": READ, "delete": WRITE, "tag": WRITE}
ARCHIVE = {"read": READ}
DESTINATION = {
    **dict.fromkeys(("head", "list_objects", "read"), READ),
    **dict.fromkeys(("put", "delete", "create_upload", "upload_part", "copy_part"), WRITE),
    "complete_upload": WRITE,
    **dict.fromkeys(("abort_upload", "uploads"), DROP),
}
RETRY_SECONDS = 60.0
T = TypeVar("T")


class Simulated:
    """An adapter over memory whose requests meet the faults of the schedule."""

    def __init__(self, world: World, inner: object, rights: Mapping[str, str]) -> None:
        self._world = world
        self._inner = inner
        self._rights = rights

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._rights:
            return method

        def request(*given: Any, **more: Any) -> Any:
            def effect() -> Any:
                value = method(*given, **more)
                value = list(value) if isinstance(value, Iterator) else value
                self.tell(name, given, value)
                return value

            shown = " ".join(str(one) for one in given if isinstance(one, str | int | Upload))
            return self._world.call(f"{name} {shown}".rstrip(), self._rights[name], effect)

        return request

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        """Tell the promises what a request did."""


class SimulatedSource(Simulated):
    """Archives in the ingest bucket, or at the destination where they are nested."""

    def pinned(self, location: Location, pin: Pin) -> SimulatedArchive:
        """Return a reader of one version."""
        return SimulatedArchive(self._world, self._inner.open(location, pin))  # type: ignore[attr-defined]  # a MemorySource

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        """Tell of an archive that is deleted."""
        if name == "delete":
            self._world.promises.archive_deleted(str(given[1].etag))


class SimulatedArchive(Simulated):
    """One version of an archive."""

    def __init__(self, world: World, archive: MemoryArchive) -> None:
        super().__init__(world, archive, ARCHIVE)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield a range in two pieces, between which the body may break."""
        data = self.read(want)
        half = len(data) // 2
        yield memoryview(data)[:half]
        if self._world.faults.injects(Fault.REFUSE, "body"):
            raise ServiceFaultError("the body broke")
        yield memoryview(data)[half:]


class SimulatedDestination(Simulated):
    """The bucket that members are written to."""

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        """Tell of objects that become visible, and of uploads."""
        world = self._world
        if name == "create_upload":
            world.promises.uploads[value] = world.scheduler.steps
        if name in {"put", "complete_upload"}:
            key = given[0] if name == "put" else given[0].key
            stored = world.members.objects[key]
            run = stored.facts.metadata["s3unzip-run"]
            world.promises.object_visible(key, stored.body, stored.etag, run, world.attempt())


class SimulatedWork:
    """The records of one run; each request is retried by the calls of its step."""

    def __init__(self, world: World, run: str, calls: Calls | None) -> None:
        self._world = world
        self._run = run
        self._memory = MemoryRunStore(world.records.setdefault(run, {}))
        self._calls = calls or Calls(ClockOf(world.scheduler), RETRY_SECONDS, 8)

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object."""
        data = b"".join(pieces)

        def effect() -> int:
            size = self._memory.write(name, [data])
            self._world.promises.recorded(self._run, name, data, self._world.began())
            return size

        return self._call("put", f"write {name}", effect)

    def create(self, name: str, body: bytes) -> None:
        """Write an object where there is none."""

        def effect() -> None:
            self._memory.create(name, body)
            self._world.promises.recorded(self._run, name, body, self._world.began())

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

    def source(self, location: Location) -> Any:
        """Return the adapter that reads `location`."""
        world = self._world
        bucket = world.members if location.bucket == "members" else world.ingest
        return SimulatedSource(world, MemorySource(bucket), SOURCE)

    def destination(self, location: Location) -> Any:
        """Return the adapter that writes."""
        return SimulatedDestination(self._world, self._world.members, DESTINATION)

    def run_store(self, run: str, calls: Calls | None = None) -> SimulatedWork:
        """Return the records of one run."""
        return SimulatedWork(self._world, run, calls)
