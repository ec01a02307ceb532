"""Members as files below a folder.

What S3 keeps as metadata a folder keeps as the file's own time and mode; the
CRC-32 is computed from the bytes. A multipart upload is a file of our own at
the top of the folder, its parts written in place at their offsets.
"""

from __future__ import annotations

import os
import stat
import zlib
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import ConflictError, NotFoundError, StorageError
from s3unzip.model import Part, decode, encode
from s3unzip.stores.folder.errors import fault
from s3unzip.stores.folder.placing import (
    OWN,
    Folder,
    own_path,
    place,
    restore,
    write_at,
    write_file,
)
from s3unzip.stores.ports import ObjectFacts, PartLimits, StoredObject, Upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.model import Location, Pin
    from s3unzip.stores.ports import Buffer
    from s3unzip.zipformat.ranges import ByteRange

PIECE = 1024**2
NOTE = ".note"  # beside an upload's file: its key and facts, then its parts, a line each


def _opened(path: str, flags: int) -> FileIO:
    """Open an existing file for writing, neither truncated nor buffered."""
    return FileIO(os.open(path, flags | os.O_CLOEXEC), "wb", closefd=True)


class UploadNote(Struct, frozen=True):
    """The first line of an upload's note."""

    key: str
    facts: ObjectFacts


class FolderDestination:
    """One folder that members are written below; threads and processes may share it.

    A key is a whole path, as a key of S3 is a whole key of its bucket.
    """

    def __init__(self, root: str) -> None:
        self._folder = Folder(root)
        self.pages = 0  # listings are free here

    @property
    def part_limits(self) -> PartLimits:
        """Any size of part, and as many as S3 takes."""
        return PartLimits(least=1)

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Write one file whole, with its time and mode."""
        path = self._folder.path(key)
        write_file(self._folder, path, (body,), facts.metadata, if_absent=if_absent)

    def head(self, key: str) -> StoredObject | None:
        """Return size and CRC-32 of a file, None if there is none; reads all of it."""
        try:
            size, crc = 0, 0
            for piece in self.read(key):
                size += len(piece)
                crc = zlib.crc32(piece, crc)
        except NotFoundError:
            return None
        return StoredObject(key, size, crc)

    def sizes(self, prefix: str, first: str, last: str) -> Iterator[tuple[str, int]]:
        """Yield (key, size) below `prefix` from `first` to `last`, in UTF-8 order."""
        start = self._folder.root.rstrip("/") + "/"
        folder = prefix[: prefix.rfind("/") + 1]
        for key, size in self._walk(folder if folder.startswith(start) else start, first):
            if key > last:
                return
            if key >= first and key.startswith(prefix):
                yield key, size

    def read(self, key: str) -> Iterator[Buffer]:
        """Yield a file's bytes in pieces."""
        path = self._folder.path(key)
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise NotFoundError(f"{path}: not a file")
            with Path(path).open("rb", buffering=0) as file:
                yield from iter(partial(file.read, PIECE), b"")
        except NotADirectoryError as error:
            raise NotFoundError(f"{path}: no such file") from error
        except OSError as error:
            raise fault(error, path) from error

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the files; nothing happens if they are gone."""
        for key in keys:
            path = self._folder.path(key)
            try:
                Path(path).unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                raise fault(error, path) from error

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a file that is written in parts; return its id."""
        target = self._folder.path(key)
        self._folder.make_parent(target)
        self._folder.make_parent(f"{self._folder.root}/x")
        path = own_path(self._folder.root)
        try:
            Path(path).touch(exist_ok=False)
            Path(path + NOTE).write_bytes(encode(UploadNote(key, facts)) + b"\n")
        except OSError as error:
            raise fault(error, path) from error
        return path.rpartition(OWN)[2]

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Write the part in place."""
        path = self._upload_path(upload)
        part = Part(number, f'"{crc32:08x}"', len(body), crc32)
        try:
            with _opened(path, os.O_WRONLY) as file:
                write_at(file.fileno(), body, offset)
            # One short line in one write: parallel appends do not mix.
            with _opened(path + NOTE, os.O_WRONLY | os.O_APPEND) as note:
                note.write(encode(part) + b"\n")
        except OSError as error:
            raise fault(error, path) from error
        return part

    def copy_part(
        self,
        upload: Upload,
        number: int,  # noqa: ARG002 - the port's
        offset: int,  # noqa: ARG002
        source: Location,
        pin: Pin,  # noqa: ARG002
        span: ByteRange,  # noqa: ARG002
    ) -> Part:
        """Refuse: see `copies_from`."""
        raise StorageError(f"{upload.key}: a folder does not copy from {source}")

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Give the file its name.

        Raises:
            ConflictError: `if_absent`, and there is a file.
            NotFoundError: there is no such upload.
        """
        path = self._upload_path(upload)
        target = self._folder.path(upload.key)
        wanted = sum(part.size for part in parts)
        try:
            with _opened(path, os.O_WRONLY) as file:
                size = os.fstat(file.fileno()).st_size
                if size != wanted:
                    raise StorageError(f"{target}: its parts make {wanted} bytes, {size} are there")
                restore(file.fileno(), self._note(path).facts.metadata)
            self._folder.make_parent(target)
            place(path, target, if_absent=if_absent)
            Path(path + NOTE).unlink()
        except ConflictError:
            self.abort_upload(upload)
            raise
        except OSError as error:
            raise fault(error, target) from error

    def abort_upload(self, upload: Upload) -> None:
        """Drop the file; nothing happens if it is gone."""
        path = self._upload_path(upload)
        try:
            Path(path).unlink(missing_ok=True)
            Path(path + NOTE).unlink(missing_ok=True)
        except OSError as error:
            raise fault(error, path) from error

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""
        for note in sorted(Path(self._folder.root).glob(f"{OWN}*{NOTE}")):
            name = str(note).removesuffix(NOTE)
            key = self._note(name).key
            if key.startswith(prefix):
                yield Upload(key, name.rpartition(OWN)[2])

    def parts(self, upload: Upload) -> Sequence[Part]:
        """Return the parts that were written, the last writing of each."""
        path = self._upload_path(upload) + NOTE
        try:
            lines = Path(path).read_bytes().splitlines()[1:]
        except OSError as error:
            raise fault(error, path) from error
        found = [decode(line, Part) for line in lines]
        return sorted({part.number: part for part in found}.values(), key=lambda p: p.number)

    def copies_from(self, source: Location, pin: Pin) -> bool:  # noqa: ARG002 - the port's
        """Say no: a worker must read the bytes for their CRC-32 anyway."""
        return False

    def _upload_path(self, upload: Upload) -> str:
        if not upload.upload_id.isalnum():
            raise StorageError(f"{upload.upload_id!r}: not an upload of {self._folder.root}")
        return f"{self._folder.root}/{OWN}{upload.upload_id}"

    def _note(self, path: str) -> UploadNote:
        with Path(path + NOTE).open("rb") as note:
            return decode(note.readline(), UploadNote)

    def _walk(self, folder: str, first: str) -> Iterator[tuple[str, int]]:
        """Yield files in the order of their keys: ``a.txt`` is before ``a/b``, as in S3."""
        try:
            with os.scandir(folder) as entries:
                here = [
                    (entry.name + "/" * entry.is_dir(follow_symlinks=False), entry)
                    for entry in entries
                    if not entry.name.startswith(OWN)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise fault(error, folder) from error
        for name, entry in sorted(here, key=lambda pair: pair[0]):
            if name.endswith("/"):
                if folder + name >= first or first.startswith(folder + name):
                    yield from self._walk(folder + name, first)
            elif entry.is_file(follow_symlinks=False):
                yield folder + name, entry.stat(follow_symlinks=False).st_size
