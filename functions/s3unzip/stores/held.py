"""The stores of a small run: the tail of its archive and its records are in memory."""

from s3unzip.model import Location, Pin
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.memory import MemoryRunStore
from s3unzip.stores.ports import PinnedArchive, Source, Tail


class HeldSource:
    """A source of one archive whose tail is in memory."""

    def __init__(self, source: Source, tail: Tail) -> None:
        self._source = source
        self._tail = tail
        self.stat = source.stat
        self.head = source.head
        self.delete = source.delete
        self.tag = source.tag
        self.tags = source.tags

    def tail(self, location: Location, length: int) -> Tail:  # noqa: ARG002 - of the port
        """Return the tail that is held, however long it is."""
        return self._tail

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> PinnedArchive:
        """Return a reader of exactly that version."""
        return self._source.pinned(location, pin, end or self._tail.data)


class HeldStores:
    """The stores of one small run."""

    def __init__(self, stores: Stores, tail: Tail, records: MemoryRunStore) -> None:
        self._stores = stores
        self._tail = tail
        self._records = records
        self.destination = stores.destination

    def source(self, location: Location) -> HeldSource:
        """Return the adapter that reads the archive."""
        return HeldSource(self._stores.source(location), self._tail)

    def run_store(self, run: str, calls: Calls | None = None) -> MemoryRunStore:  # noqa: ARG002 - of the port
        """Return the records of the run, whatever its name: there is one."""
        return self._records
