"""An archive whose last bytes are held in memory: reading those needs no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import rates
from s3unzip.context import Context
from s3unzip.stores.calls import Calls, Store
from s3unzip.zip import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.direct.memory_store import MemoryRunStore
    from s3unzip.model import Location, Pin
    from s3unzip.stores.ports import Archive, Buffer, Destination, Disposal, Source, Stores, Tail


class HeldArchive:
    """One pinned version of an archive, read from memory as far as it is held."""

    def __init__(self, archive: Archive, tail: Tail) -> None:
        self._archive = archive
        self._data = memoryview(tail.data)
        self._start = tail.pin.size - len(tail.data)

    def holds(self, want: ByteRange) -> bool:
        """Say whether all of `want` is in memory."""
        return want.start >= self._start

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request at most."""
        if self.holds(want):
            return bytes(self._held(want))
        return self._archive.read(want)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces, with one request at most."""
        if not self.holds(want):
            yield from self._archive.stream(want._replace(stop=min(want.stop, self._start)))
        if want.stop > self._start:
            yield self._held(ByteRange(max(want.start, self._start), want.stop))

    def _held(self, want: ByteRange) -> memoryview:
        return self._data[want.start - self._start : want.stop - self._start]


class HeldSource:
    """A source of one archive whose tail was read before."""

    def __init__(self, source: Source, tail: Tail) -> None:
        self._source = source
        self._tail = tail

    def tail(self, location: Location, length: int) -> Tail:  # noqa: ARG002 - of the port
        """Return the tail that is held, however long it is."""
        return self._tail

    def head(self, location: Location) -> Pin:
        """Return what is there now, with one request."""
        return self._source.head(location)

    def pinned(self, location: Location, pin: Pin) -> HeldArchive:
        """Return a reader of exactly that version."""
        return HeldArchive(self._source.pinned(location, pin), self._tail)


class HeldCalls(Calls):
    """Calls of a step that does not count what is read from memory."""

    def stream(
        self, archive: Archive, want: ByteRange, store: Store | None = None
    ) -> Iterator[Buffer]:
        """Yield the bytes of `want`."""
        if isinstance(archive, HeldArchive) and archive.holds(want):
            yield from archive.stream(want)
        else:
            yield from super().stream(archive, want, store)


class DirectStores:
    """The stores of one direct run: its archive's tail and its records are in memory."""

    def __init__(self, stores: Stores, tail: Tail, records: MemoryRunStore) -> None:
        self._stores = stores
        self._tail = tail
        self._records = records

    def source(self, location: Location) -> HeldSource:
        """Return the adapter that reads the archive."""
        return HeldSource(self._stores.source(location), self._tail)

    def destination(self, location: Location) -> Destination:
        """Return the adapter that writes below `location`."""
        return self._stores.destination(location)

    def disposal(self, location: Location) -> Disposal:
        """Return the adapter that deletes or tags the archive."""
        return self._stores.disposal(location)

    def run_store(self, run: str, calls: Calls | None = None) -> MemoryRunStore:  # noqa: ARG002 - of the port
        """Return the records of the run, whatever its name: there is one."""
        return self._records


class DirectContext(Context, frozen=True):
    """The context of a direct run."""

    def calls(self) -> HeldCalls:
        """Return the counted, retried calls of one step."""
        tuning = self.tuning
        # One worker writes, and not a thousand that begin together.
        first = rates.DIRECT_FIRST_PUTS
        return HeldCalls(
            self.clock, tuning.retry_seconds, tuning.puts_in_flight, first, self.faults
        )
