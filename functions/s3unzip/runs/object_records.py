"""How records are read and written: a value as JSON, or values as JSON lines, in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from s3unzip import rates
from s3unzip.errors import NotFoundError
from s3unzip.model import Requests, decode, encode
from s3unzip.stores.readahead import map_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import RunStore

T = TypeVar("T")
PIECE = 1024 * 1024  # bytes of lines that are gathered before they are handed on
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

    def _lines_if_any(self, name: str, kind: type[T]) -> Iterator[T]:
        try:
            yield from self._lines(name, kind)
        except NotFoundError:
            return

    def _find_bytes(self, name: str) -> bytes | None:
        try:
            return self._store.read(name)
        except NotFoundError:
            return None

    @staticmethod
    def _read_all(names: Collection[str], read: Callable[[str], T]) -> list[T]:
        """Return what `read` returns of each name, several at once."""
        return list(map_ahead(read, names, rates.RECORDS_AT_ONCE))


def join_lines(values: Iterable[object]) -> Iterator[bytes]:
    """Yield `values` as JSON lines, in pieces that are worth a write."""
    gathered: list[bytes] = []
    pending = 0
    for value in values:
        line = encode(value)
        gathered.append(line)
        pending += len(line) + 1
        if pending >= PIECE:
            yield b"\n".join(gathered) + b"\n"
            gathered.clear()
            pending = 0
    if gathered:
        yield b"\n".join(gathered) + b"\n"


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a stream of pieces into its lines, empty ones left out; memory: a piece and a line."""
    rest = b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        yield from filter(None, lines)
    if rest:
        yield rest


def read_lines(pieces: Iterable[bytes], kind: type[T]) -> Iterator[T]:
    """Yield the value of each line.

    Raises:
        UsageError: a line is not a `kind`.
    """
    for line in split_lines(pieces):
        yield decode(line, kind)
