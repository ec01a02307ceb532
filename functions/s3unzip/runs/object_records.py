"""How a record is read and written: a value as JSON, or values as JSON lines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from s3unzip.errors import NotFoundError
from s3unzip.model import Requests, decode, encode
from s3unzip.runs.jsonl import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import RunStore

T = TypeVar("T")
READERS = 16  # records read at once
MAX_WRITES = 8  # of one report, until its counts hold


class ObjectRecords:
    """Records as objects of one run store; what each holds is for the classes above to say."""

    def __init__(self, store: RunStore, calls: Calls | None = None) -> None:
        self._store = store
        self._calls = calls  # that count the requests of `store`
        self._is_remote: bool | None = None  # whether they count any; known after the first

    def _read(self, name: str, kind: type[T]) -> T:
        return decode(self._watched(lambda: self._store.read(name)), kind)

    def _find(self, name: str, kind: type[T]) -> T | None:
        try:
            return self._read(name, kind)
        except NotFoundError:
            return None

    def _write(self, name: str, value: object) -> None:
        self._watched(lambda: self._store.write(name, [encode(value)]))

    def _watched(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; learn from the first one whether requests are made."""
        if self._calls is None or self._is_remote is not None:
            return call()
        before = self._calls.requests
        try:
            return call()
        finally:
            self._is_remote = self._calls.requests != before

    def _write_counted(
        self, make: Callable[[Requests], T], write: Callable[[T], None], puts: int = 1
    ) -> T:
        """Write a report whose counts hold the requests of writing it; return it.

        Whether a PUT was refused and tried again is only known after it: then the report is
        written once more.

        Args:
            make: gives the report by the requests of its step, those of writing it included.
            write: writes it.
            puts: requests that `write` takes if all goes well.
        """
        calls = self._calls
        if calls is None:
            report = make(Requests())
            write(report)
            return report
        cost = Requests(put=puts) if self._is_remote else Requests()
        for _ in range(MAX_WRITES):
            before = calls.requests
            report = make(before + cost)
            write(report)
            took = calls.requests - before
            if took == cost:
                break
            if not took.retries:  # it takes more requests than one: a large record
                cost = took
        return report

    def _lines(self, name: str, kind: type[T]) -> Iterator[T]:
        return read_lines(self._store.stream(name), kind)

    @staticmethod
    def _read_all(names: Collection[str], read: Callable[[str], T]) -> list[T]:
        """Return what `read` returns of each name, several at once."""
        if not names:
            return []
        with ThreadPoolExecutor(READERS, thread_name_prefix="records") as pool:
            return list(pool.map(read, names))
