"""The members of an archive as fsspec files: ``s3unzip://``.

>>> import fsspec, tempfile, zipfile
>>> from pathlib import Path
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name, "a.zip")
>>> with zipfile.ZipFile(path, "w") as new:
...     new.writestr("notes/today.txt", "Buy milk.")
>>> with fsspec.open(f"s3unzip://notes/today.txt::{path}") as file:
...     file.read()
b'Buy milk.'
>>> folder.cleanup()

pandas, Dask and DuckDB accept such URLs or file systems. A member is read from the archive in
ranges, and checked before the caller receives it.
"""

import os
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import IO, Any

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from s3unzip.api.archive import open_archive
from s3unzip.errors import UsageError


class ArchiveFileSystem(AbstractArchiveFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """One version of an archive, as a read-only file system.

    Refused members do not appear as files.

    Args:
        fo: the archive, as a path, an ``s3://``, ``http://`` or ``https://`` URL, another
            URL that fsspec can open, the result of `fsspec.open`, or a seekable binary file.
        target_protocol: the file system of `fo` in a chained URL.
        target_options: options of that file system; for files, S3 and the web, arguments of
            `open_archive`.
        asynchronous: ignored. zarr passes this argument, but calls the methods in threads.
        arguments: arguments of `open_archive`: options, password, limits, endpoint_url, stores,
            pin.

    Raises:
        UsageError, RejectedError, StorageError, ServiceFaultError: as for `open_archive`.
    """

    protocol = "s3unzip"
    cachable = False

    def __init__(
        self,
        fo: str | os.PathLike[str] | IO[bytes] | fsspec.core.OpenFile | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        *,
        asynchronous: bool = False,
        **arguments: Any,
    ) -> None:
        if fo is None:
            raise UsageError("no archive is named; use s3unzip://MEMBER::ARCHIVE or fo=ARCHIVE")
        super().__init__(asynchronous=asynchronous, **arguments)
        self.fo = fo
        options = target_options or {}
        source: Any = fo
        if isinstance(fo, (str, os.PathLike)):
            source = os.fspath(fo).removeprefix("file://").removeprefix("local://")
            protocol = target_protocol or fsspec.utils.get_protocol(source).lower()
            if "::" in source or protocol not in {"file", "local", "s3", "http", "https"}:
                # s3unzip cannot read this location, but fsspec may be able to. `_target` keeps
                # fsspec's file system alive: some file systems close their files when freed.
                self._target = fsspec.open(source, "rb", protocol=target_protocol, **options)
                source = self._target.open()
                options = {}  # fsspec has used the options
            elif protocol == "s3" and "://" not in source:
                source = f"s3://{source}"
        elif isinstance(fo, fsspec.core.OpenFile):
            source = fo.open()
        self.archive = open_archive(source, **options, **arguments)

    def __reduce__(self) -> tuple[partial["ArchiveFileSystem"], tuple[()]]:
        """Let another process, such as a Dask worker, open the same version again."""
        return partial(
            type(self), *self.storage_args, **self.storage_options | {"pin": self.archive.pin}
        ), ()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path)).lstrip("/")

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:  # noqa: FBT001, FBT002 - of fsspec
        """List a folder or a file. In all methods, `path` may include the protocol."""
        folder = self._strip_protocol(path)
        listed = self._folders.get(folder)
        if listed is None:  # not a folder: `info` describes the file, or raises an error
            listed = [self.info(folder)]
        if detail:
            return list(listed)
        return [facts["name"] for facts in listed]

    def _get_dirs(self) -> None:
        """Do nothing here: `dir_cache`, which the base class reads, is created on first use."""

    @cached_property
    def dir_cache(self) -> dict[str, dict[str, Any]]:
        """The facts about each file, keyed by name, and each folder, keyed by name and a slash.

        A folder and a file may have the same name.
        """
        files = [member for member in self.archive.members() if member.problem is None]
        return {
            f"{name}/": {"name": name, "size": 0, "type": "directory"}
            for name in self._all_dirnames({member.name for member in files})
        } | {
            member.name: {
                "name": member.name,
                "size": member.size,
                "type": "file",
                "compressed_size": member.compressed_size,
                "crc32": member.crc32,
                "mtime": member.mtime,
            }
            for member in files
        }

    @cached_property
    def _folders(self) -> dict[str, list[dict[str, Any]]]:
        """The facts about the contents of each folder, sorted by name and keyed by folder."""
        folders: dict[str, list[dict[str, Any]]] = {self.root_marker: []}
        for facts in sorted(self.dir_cache.values(), key=lambda facts: str(facts["name"])):
            folders.setdefault(self._parent(facts["name"]), []).append(facts)
        return folders

    def _open(self, path: str, mode: str = "rb", **_: object) -> IO[bytes]:
        if mode != "rb":
            raise NotImplementedError(f"{path}: archives can only be read")
        if path not in self.archive:
            raise FileNotFoundError(path)
        file = self.archive.open(path)
        # fsspec reads `size` to seek from the end, and `original` to detect a compressed tar file.
        file.size = self.archive[path].size  # type: ignore[attr-defined]
        file.original = path  # type: ignore[attr-defined]
        return file

    def modified(self, path: str) -> datetime:
        """Return the modification time of a member; 1970-01-01 if it is unknown."""
        return datetime.fromtimestamp(self.info(path).get("mtime") or 0, UTC)
