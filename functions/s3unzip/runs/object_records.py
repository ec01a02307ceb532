"""How a record is read and written: a value as JSON, or values as JSON lines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from s3unzip.errors import NotFoundError
from s3unzip.model import decode, encode
from s3unzip.runs.jsonl import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from s3unzip.stores.ports import RunStore

T = TypeVar("T")
READERS = 16  # records read at once


class ObjectRecords:
    """Records as objects of one run store; what each holds is for the classes above to say."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def _read(self, name: str, kind: type[T]) -> T:
        return decode(self._store.read(name), kind)

    def _find(self, name: str, kind: type[T]) -> T | None:
        try:
            return self._read(name, kind)
        except NotFoundError:
            return None

    def _write(self, name: str, value: object) -> None:
        self._store.write(name, [encode(value)])

    def _lines(self, name: str, kind: type[T]) -> Iterator[T]:
        return read_lines(self._store.stream(name), kind)

    @staticmethod
    def _read_all(names: Collection[str], read: Callable[[str], T]) -> list[T]:
        """Return what `read` returns of each name, several at once."""
        if not names:
            return []
        with ThreadPoolExecutor(READERS, thread_name_prefix="records") as pool:
            return list(pool.map(read, names))
