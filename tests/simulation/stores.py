"""The ports of `s3unzip.stores.ports` over memory, with the schedule's faults at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, Kind, LocalClock, PinnedArchive, Upload
from s3unzip.stores.run_store import MemoryRunStore
from s3unzip.zip.values import ByteRange
from tests.simulation.world import Fault, World, current
from tests.support.memory import MemoryArchive, MemorySource

READ, WRITE, DROP = "GetObject", "PutObject", "AbortMultipartUpload"
# The right that each request needs; a method that is not here makes none.
SOURCE = {"tail": READ, "stat": READ, "delete": WRITE, "tag": WRITE}
ARCHIVE = {"read": READ}
DESTINATION = {
    **dict.fromkeys(("head", "list_page", "read"), READ),
    **dict.fromkeys(("put", "delete", "create_upload", "upload_part", "copy_part"), WRITE),
    "complete_upload": WRITE,
    **dict.fromkeys(("abort_upload", "uploads"), DROP),
}
RECORDS: dict[str, Kind] = {  # what a request is counted as
    "write": "put",
    "create": "put",
    "replace": "put",
    "read": "get",
    "stream": "get",
    "names": "list",
    "delete": "delete",
}
RETRY_SECONDS = 60.0


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
            again = tuple(list(one) if isinstance(one, Iterator) else one for one in given)

            def effect() -> Any:
                value = method(*again, **more)
                value = list(value) if isinstance(value, Iterator) else value
                self.tell(name, again, value)
                return value

            shown = " ".join(str(one) for one in again if isinstance(one, str | int | Upload))
            return self.ask(name, f"{name} {shown}".rstrip(), effect)

        return request

    def ask(self, name: str, shown: str, effect: Callable[[], Any]) -> Any:
        return self._world.call(shown, self._rights[name], effect)

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        """Tell the promises what a request did."""


class SimulatedSource(Simulated):
    """Archives in the ingest bucket, or at the destination where they are nested."""

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> PinnedArchive:
        reader = SimulatedArchive(self._world, self._inner.bucket.pinned(location, pin))  # type: ignore[attr-defined]  # a MemorySource
        return PinnedArchive([reader.stream], [pin.size], end)

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
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
        world = self._world
        if name == "create_upload":
            world.promises.uploads[value] = world.scheduler.steps
        if name in {"put", "complete_upload"}:
            key = given[0] if name == "put" else given[0].key
            stored = world.members.objects[key]
            run = stored.facts.metadata["s3unzip-run"]
            world.promises.object_visible(
                key, stored.body, stored.etag, run, current().process.attempt
            )


class SimulatedWork(Simulated):
    """The records of one run; each request is retried by the calls of its step."""

    def __init__(self, world: World, run: str, calls: Calls | None) -> None:
        day = f"{run}/"  # or all runs of a day are looked through
        memory = MemoryRunStore(
            world.records.setdefault(run, {})
            if "/" in run
            else {
                f"{one.removeprefix(day)}/{name}": data
                for one, objects in world.records.items()
                for name, data in objects.items()
                if one.startswith(day)
            }
        )
        super().__init__(world, memory, dict.fromkeys(RECORDS, "work"))
        self._run = run
        self._calls = calls or Calls(LocalClock(), RETRY_SECONDS, 8)

    def ask(self, name: str, shown: str, effect: Callable[[], Any]) -> Any:
        return self._calls.run(RECORDS[name], partial(super().ask, name, shown, effect))

    def tell(self, name: str, given: tuple[Any, ...], value: Any) -> None:
        world = self._world
        if name in {"write", "create", "replace"}:
            world.promises.recorded(
                self._run, given[0], world.records[self._run][given[0]], current().process.began
            )
        for deleted in given[0] if name == "delete" else ():
            world.promises.record_deleted(self._run, deleted)


class SimulatedStores:
    """Opens the stores of one account."""

    def __init__(self, world: World) -> None:
        self._world = world

    def end_startup(self) -> None:
        """Do nothing: no program begins here."""

    def source(self, location: Location) -> Any:
        world = self._world
        bucket = world.members if location.bucket == "members" else world.ingest
        return SimulatedSource(world, MemorySource(bucket), SOURCE)

    def destination(self, location: Location) -> Any:
        return SimulatedDestination(self._world, self._world.members, DESTINATION)

    def run_store(self, run: str, calls: Calls | None = None) -> SimulatedWork:
        return SimulatedWork(self._world, run, calls)
