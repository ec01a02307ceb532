"""A run's own objects as files, below ``<folder>/runs/<run>/``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from s3unzip.errors import AccessDeniedError, ServiceFaultError
from s3unzip.stores.folder.destination import FolderDestination
from s3unzip.stores.folder.os_errors import HOME_ADVICE, translate_error
from s3unzip.stores.folder.placing import Folder, write_file
from s3unzip.stores.ports import ObjectFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class FolderRunStore:
    """The work store of one run; threads and processes may share it.

    It may hold secrets (a presigned URL), so only this user may read it: folders
    have mode 0700, files 0600.
    """

    def __init__(self, root: str, run: str) -> None:
        self._folder = Folder(f"{root.rstrip('/')}/runs/{run}", private=True)
        self._store = FolderDestination(self._folder.root, private=True)

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a file whole or not at all; return its size in bytes.

        Raises:
            AccessDeniedError: the folder of runs may not be written.
            StorageError: the file cannot be written.
        """
        try:
            return write_file(self._folder, self._folder.place(self._key(name)), pieces)
        except AccessDeniedError as denied:
            raise AccessDeniedError(f"{denied}; {HOME_ADVICE}") from denied

    def create(self, name: str, body: bytes) -> None:
        """Write a small file, unless it exists.

        Raises:
            ConflictError: it exists.
        """
        self._store.put(self._key(name), body, ObjectFacts("application/json", {}), if_absent=True)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the file, or bytes [start, stop) of it.

        Raises:
            NotFoundError: there is no such file.
        """
        place = self._folder.place(self._key(name))
        try:
            with open(self._folder.open_file(place, os.O_RDONLY), "rb") as file:  # noqa: PTH123 - a descriptor
                if span is None:
                    return file.read()
                file.seek(span[0])
                data = file.read(max(0, span[1] - span[0]))
        except OSError as error:
            raise translate_error(error, place.path) from error
        if len(data) != max(0, span[1] - span[0]):
            raise ServiceFaultError(f"{place.path}: {len(data)} bytes of {span} came")
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the file in pieces."""
        for piece in self._store.read(self._key(name)):
            yield bytes(piece)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's files that begin with `prefix`, in order."""
        start = f"{self._folder.root}/"
        for found in self._store.list_objects(start + prefix, "", start + prefix + "\U0010ffff"):
            yield found.key.removeprefix(start)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the files; nothing happens if they are gone."""
        self._store.delete([self._key(name) for name in names])

    def _key(self, name: str) -> str:
        return f"{self._folder.root}/{name}"
