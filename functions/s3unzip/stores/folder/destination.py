"""Members as files below a folder.

What S3 keeps as metadata a folder keeps as the file's own time and mode; the
CRC-32 is computed from the bytes. A multipart upload is a file of our own at
the top of the folder, its parts written in place at their offsets.
"""

from __future__ import annotations

import os
import uuid
import zlib
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import ConflictError, NotFoundError, ServiceFaultError, StorageError
from s3unzip.model import Part, decode, encode
from s3unzip.stores.folder.files import OWN, rename, restore, write_at
from s3unzip.stores.folder.listing import list_files, own_names
from s3unzip.stores.folder.os_errors import translate_error
from s3unzip.stores.folder.placing import Folder, write_file
from s3unzip.stores.ports import ListedObject, ObjectFacts, PartLimits, StoredObject, Upload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.stores.folder.placing import Place
    from s3unzip.stores.ports import Buffer

PIECE = 1024**2
NOTE = ".note"  # beside an upload's file: its key and facts, then its parts, a line each


class UploadNote(Struct, frozen=True):
    """The first line of an upload's note."""

    key: str
    facts: ObjectFacts


class FolderDestination:
    """One folder that members are written below; threads and processes may share it.

    A key is a whole path, as a key of S3 is a whole key of its bucket.
    """

    def __init__(self, root: str, *, private: bool = False) -> None:
        self._folder = Folder(root, private=private)

    @property
    def part_limits(self) -> PartLimits:
        """Any size of part, and as many as S3 takes."""
        return PartLimits(min_bytes=1)

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Write one file whole, with its time and mode."""
        place = self._folder.place(key)
        write_file(self._folder, place, (body,), facts.metadata, if_absent=if_absent)

    def make_folder(self, key: str) -> None:
        """Create a folder, and those above it, if they are missing.

        Raises:
            StorageError: a file or a symbolic link has the name, or the system refuses.
        """
        place = self._folder.place(key)
        try:
            self._folder.directories.open(f"{place.folder}/{place.name}".lstrip("/"), create=True)
        except OSError as error:
            raise self._folder.write_fault(error, place.path) from error

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

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield the files below `prefix` with keys from `first` to `last`, in UTF-8 order."""
        for key, size in list_files(self._folder, prefix, first):
            if key > last:
                return
            if key >= first:
                yield ListedObject(key, size)

    def read(self, key: str) -> Iterator[Buffer]:
        """Yield a file's bytes in pieces."""
        place = self._folder.place(key)
        try:
            with FileIO(self._folder.open_file(place, os.O_RDONLY), "rb") as file:
                yield from iter(partial(file.read, PIECE), b"")
        except OSError as error:
            raise translate_error(error, place.path) from error

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the files; nothing happens if they are gone."""
        for key in keys:
            self._folder.unlink(self._folder.place(key))

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a file that is written in parts; return its id."""
        upload_id = uuid.uuid4().hex[:16]
        place = self._folder.own_place(upload_id)
        note = self._folder.own_place(upload_id + NOTE)
        target = self._folder.place(key)
        try:
            self._folder.directories.open(target.folder, create=True)
            # The note first: with it the upload is found and dropped.
            write_file(self._folder, note, (encode(UploadNote(key, facts)),))
            write_file(self._folder, place, (), if_absent=True)
        except OSError as error:
            raise translate_error(error, target.path) from error
        return upload_id

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Write the part in place."""
        place, _ = self._upload_places(upload)
        try:
            with self._opened(place, os.O_WRONLY) as file:
                write_at(file.fileno(), body, offset)
        except OSError as error:
            raise translate_error(error, place.path) from error
        return Part(number, f'"{crc32:08x}"', len(body), crc32)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Give the file its name.

        Raises:
            ConflictError: `if_absent`, and there is a file.
            NotFoundError: there is no such upload.
        """
        place, note = self._upload_places(upload)
        target = self._folder.place(upload.key)
        try:
            with self._opened(place, os.O_WRONLY) as file:
                self._check_size(file, target, parts)
                restore(file.fileno(), self._note(note).facts.metadata)
                self._place_upload(file, place, target, if_absent=if_absent)
            self._folder.unlink(note)
        except ConflictError:
            self.abort_upload(upload)
            raise
        except OSError as error:
            raise translate_error(error, target.path) from error

    def abort_upload(self, upload: Upload) -> None:
        """Drop the file; nothing happens if it is gone."""
        for place in self._upload_places(upload):
            self._folder.unlink(place)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""
        for name in own_names(self._folder, NOTE):
            upload_id = name.removeprefix(OWN).removesuffix(NOTE)
            try:
                key = self._note(self._folder.own_place(upload_id + NOTE)).key
            except NotFoundError:  # it is complete meanwhile
                continue
            if key.startswith(prefix):
                yield Upload(key, upload_id)

    def _upload_places(self, upload: Upload) -> tuple[Place, Place]:
        """Return where an upload's file is, and where its note is."""
        if not upload.upload_id.isalnum():
            raise StorageError(f"{upload.upload_id!r}: not an upload of {self._folder.root}")
        folder = self._folder
        return folder.own_place(upload.upload_id), folder.own_place(upload.upload_id + NOTE)

    def _opened(self, place: Place, flags: int) -> FileIO:
        """Open a file of our own, neither truncated nor buffered.

        Raises:
            StorageError: somebody laid a link to another file in its place.
        """
        mode = "rb" if flags == os.O_RDONLY else "wb"
        file = FileIO(self._folder.open_file(place, flags), mode)
        if os.fstat(file.fileno()).st_nlink != 1:
            file.close()
            raise StorageError(f"{place.path}: this file has another name, too; it is not ours")
        return file

    def _check_size(self, file: FileIO, target: Place, parts: Sequence[Part]) -> None:
        wanted, size = sum(part.size for part in parts), os.fstat(file.fileno()).st_size
        if size != wanted:
            raise StorageError(f"{target.path}: its parts make {wanted} bytes, {size} are there")

    def _place_upload(self, file: FileIO, place: Place, target: Place, *, if_absent: bool) -> None:
        """Give an upload's file its name, and make sure that it is this file that has it."""
        source = self._folder.directories.open("", create=False)
        directory = self._folder.directories.open(target.folder, create=True)
        try:
            rename(place.name, source, target.name, directory, if_absent=if_absent)
        except FileExistsError as error:
            if not if_absent:
                raise
            raise ConflictError(f"{target.path}: exists already") from error
        placed = os.lstat(target.name, dir_fd=directory.fd)
        if not os.path.samestat(placed, os.fstat(file.fileno())):
            raise ServiceFaultError(f"{target.path}: another process wrote it at the same time")

    def _note(self, place: Place) -> UploadNote:
        with self._opened(place, os.O_RDONLY) as file:
            return decode(file.readall().partition(b"\n")[0], UploadNote)  # older notes have more
