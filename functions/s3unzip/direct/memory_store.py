"""The records of one run in memory, until they are written as one object or one by one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from s3unzip.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class MemoryRunStore:
    """A run store whose objects are bytes in this process; threads may share it."""

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self._objects = dict(objects or {})
        self._lock = threading.Lock()

    @property
    def objects(self) -> dict[str, bytes]:
        """The objects by name, in the order in which they were first written."""
        with self._lock:
            return dict(self._objects)

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        data = b"".join(pieces)
        with self._lock:
            self._objects[name] = data
        return len(data)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it.

        Raises:
            NotFoundError: there is no such object.
        """
        with self._lock:
            data = self._objects.get(name)
        if data is None:
            raise NotFoundError(f"{name}: no such object")
        return data if span is None else data[span[0] : span[1]]

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in one piece."""
        yield self.read(name)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with `prefix`, in order."""
        yield from sorted(name for name in self.objects if name.startswith(prefix))

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        with self._lock:
            for name in names:
                self._objects.pop(name, None)
