"""Members and a run's records as files below a folder.

Rules:

* A file is written under a name of our own in its own folder, then renamed. So it appears whole or
  not at all. The name says which run made the file, so that the run can remove what a killed worker
  left.
* A multipart upload is a file of our own at the top of the folder. Its parts are written in place,
  at their offsets, in any order and more than once.
* A file of our own is never more open than the member: it is created with the member's mode, from
  which the system takes the bits of the umask.
* What S3 keeps as metadata a folder keeps as the file's time and mode. The CRC-32 is computed from
  the bytes.
* Files are created, renamed and deleted relative to folders that `open_folders` has open, because a
  path that was checked may lead elsewhere when it is used.
* Nothing is synced to disk. After a loss of power `resume` looks again at what is on record as done
  (`local.recovery`).
"""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import FileIO
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from s3unzip import errors
from s3unzip.model import Part, decode, encode
from s3unzip.object_properties import MODE_KEY, RUN_KEY
from s3unzip.stores.file_calls import rename, restore_mode, restore_time, write_at
from s3unzip.stores.files import PRIVATE, explaining, translate_error
from s3unzip.stores.listing import cut_page
from s3unzip.stores.open_folders import OpenFolders, explain_folder
from s3unzip.stores.ports import (
    PIECE,
    Buffer,
    ListedObject,
    ListPage,
    ObjectFacts,
    PartLimits,
    StoredObject,
    Upload,
)

OWN = ".s3unzip-"  # begins the names of our own files; no member's name may begin so
NOTE = ".note"  # beside an upload's file: its key and facts
NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
_OWNER_WRITES = 0o600
_FILE = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FILE


class FilePath(NamedTuple):
    """Where one file is: its folder relative to the root, and its name there."""

    folder: str
    name: str
    whole: str  # for messages


class _UploadFiles(NamedTuple):
    """The files of our own that make an upload."""

    file: FilePath
    note: FilePath


class _Listed(NamedTuple):
    """One file or folder of a folder, by its path below the root."""

    path: str  # of a folder it ends in "/"
    size: int | None  # None: a folder


class FolderDestination:
    """One folder that members are written below; threads and processes may share it.

    A key is a whole path, as a key of S3 is a whole key of its bucket.

    Args:
        root: absolute path; links in this path are followed.
        private: whether what is made is for this user only: folders 0700, files 0600.
    """

    keeps_metadata = False

    def __init__(self, root: str, *, private: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        self.start = root.rstrip("/") + "/"
        self._folders = OpenFolders(self.root, PRIVATE if private else 0o777)
        self._is_private = private
        self._serial = os.urandom(6).hex()  # of this process: no other one uses its names
        self._numbers = itertools.count()

    def locate(self, key: str) -> FilePath:
        """Return where `key` is; check that it lies below the folder."""
        below = key[len(self.start) :]
        parts = below.split("/")
        if not key.startswith(self.start) or {"", ".", ".."}.intersection(parts) or "\0" in key:
            raise errors.StorageError(f"{key!r}: not a path below {self.root}")
        if OWN in below and any(part.startswith(OWN) for part in parts):
            raise errors.StorageError(
                f"{key!r}: names that begin with {OWN} are for s3unzip's own files"
            )
        return FilePath(below.rpartition("/")[0], parts[-1], key)

    def locate_own(self, name: str) -> FilePath:
        """Return where our own file `name` is: at the top of the folder."""
        return FilePath("", OWN + name, f"{self.start}{OWN}{name}")

    def open_file(self, target: FilePath, flags: int = os.O_RDONLY) -> FileIO:
        """Open a regular file that exists; it is not truncated. `NotFoundError`: there is none."""
        try:
            folder = self._folders.get(target.folder)
            # A FIFO would let the caller wait for a writer.
            file = os.open(target.name, flags | _FILE | os.O_NONBLOCK, dir_fd=folder.file)
        except errors.NotFoundError as error:
            raise errors.NotFoundError(f"{target.whole}: no such file or folder") from error
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENXIO}:
                raise errors.NotFoundError(f"{target.whole}: not a file") from error
            if error.errno in NO_NAME:
                raise errors.NotFoundError(f"{target.whole}: no file has this name") from error
            raise translate_error(error, target.whole) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise errors.NotFoundError(f"{target.whole}: not a file")
        mode = "rb" if flags == os.O_RDONLY else "wb"
        return FileIO(file, mode)

    def unlink(self, target: FilePath) -> None:
        """Delete a file or a link; nothing happens if it is gone."""
        with contextlib.suppress(errors.NotFoundError), explaining(target.whole):
            folder = self._folders.get(target.folder)
            os.unlink(target.name, dir_fd=folder.file)

    def write(
        self,
        target: FilePath,
        pieces: Iterable[Buffer],
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
    ) -> int:
        """Write a file whole or not at all; return its size.

        The bytes go to a file of our own, which is then renamed.
        """
        metadata = metadata or {}
        folder = self._folders.get(target.folder, create=True)
        run = metadata.get(RUN_KEY, "")
        own = f"{own_prefix(run)}{self._serial}{next(self._numbers):x}"
        try:
            file = os.open(own, _NEW, self._choose_mode(metadata), dir_fd=folder.file)
        except OSError as error:
            raise self._explain_write(error, target.whole.rpartition("/")[0]) from error
        try:
            size = 0
            for body in pieces:
                write_at(file, body, size)
                size += len(body)
            restore_time(file, metadata)
            rename(own, folder.file, target.name, folder.file, if_absent=if_absent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(own, dir_fd=folder.file)
            if not isinstance(error, OSError):
                raise
            if if_absent and isinstance(error, FileExistsError):
                raise errors.ConflictError(f"{target.whole}: exists already") from error
            raise self._explain_write(error, target.whole) from error
        finally:
            os.close(file)
        return size

    def _choose_mode(self, metadata: Mapping[str, str]) -> int:
        """Return the mode to create a file with; the system clears the bits of the umask.

        These are the permission bits of the archive, never set-user-id. Many writers leave them
        zero. Only root could read such a file, so it has the mode of any new file.
        """
        if self._is_private:
            return 0o600
        bits = int(metadata.get(MODE_KEY, "0"), 8) & 0o777
        return bits or 0o666

    def _explain_write(self, error: OSError, path: str) -> errors.S3UnzipError:
        """Return the error of a write; if a folder is gone, the next attempt opens all anew."""
        if error.errno == errno.ENOENT:
            self._folders.forget()
        return explain_folder(error, path, create=True)

    def size(self, key: str) -> int | None:
        """Return the size of a file, None if there is none; a link is no file."""
        target = self.locate(key)
        with contextlib.suppress(errors.NotFoundError), explaining(target.whole):
            folder = self._folders.get(target.folder)
            facts = os.stat(target.name, dir_fd=folder.file, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                return facts.st_size
        return None

    def remove_own(self, folder: str, run: str) -> int:
        """Delete the files of our own that a run left in a folder; return how many there were."""
        prefix = own_prefix(run)
        names = [entry.name for entry in self.scan(folder) if entry.name.startswith(prefix)]
        for name in names:
            self.unlink(FilePath(folder, name, f"{self.start}{folder}/{name}"))
        return len(names)

    def _list_folder(self, path: str) -> Iterator[_Listed]:
        """Yield what is in a folder, in order.

        Args:
            path: of the folder, relative, empty or ending in "/".
        """
        listed: list[_Listed] = []
        for entry in self.scan(path.rstrip("/")):
            if entry.name.startswith(OWN):
                continue
            if entry.is_dir(follow_symlinks=False):
                listed.append(_Listed(f"{path}{entry.name}/", None))
            elif entry.is_file(follow_symlinks=False):
                size = entry.stat(follow_symlinks=False).st_size
                listed.append(_Listed(path + entry.name, size))
        return iter(sorted(listed, key=attrgetter("path")))

    def scan(self, path: str) -> Iterator[os.DirEntry[str]]:
        """Yield what is in a folder; nothing where there is none, or a link is in the way."""
        try:
            with explaining(f"{self.root}/{path}"):
                folder = self._folders.get(path)
                file = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder.file)
                try:
                    with os.scandir(file) as entries:
                        yield from entries
                finally:
                    os.close(file)
        except errors.AccessDeniedError:
            raise
        except errors.StorageError:
            return

    # The port

    @property
    def part_limits(self) -> PartLimits:
        """Any size of part, and as many as S3 takes."""
        return PartLimits(min_bytes=1)

    def check_reachable(self) -> None:
        """Do nothing: `check_ready` tries it."""

    def check_ready(self, size: int) -> None:
        """Check that files can be made, and that an empty folder has room for `size` bytes."""
        if next(self.scan(""), None) is None:
            root = Path(self.root)
            folder = next(path for path in (root, *root.parents) if path.is_dir())
            free = shutil.disk_usage(folder).free
            if size > free:
                raise errors.StoreFullError(
                    f"{root}: {size:,} bytes are to be written, {free:,} are free: make room, or "
                    f"use another place"
                )
        probe = self.locate_own(uuid.uuid4().hex[:16])
        self.write(probe, ())
        self.unlink(probe)

    def sync(self) -> None:
        """Write all file systems to their disks: a member may be on any of them."""
        os.sync()

    def release(self) -> None:
        """Close the folders that are open."""
        self._folders.close()

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Write one file whole, with its time and mode."""
        self.write(self.locate(key), (body,), facts.metadata, if_absent=if_absent)

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:  # noqa: ARG002 - of the port
        """Write one file; whoever replaces one has its run's lock, and files have no ETag."""
        self.put(key, body, facts, if_absent=False)

    def make_folder(self, key: str) -> None:
        """Create a folder, and those above it, if they are missing."""
        target = self.locate(key)
        self._folders.get(f"{target.folder}/{target.name}".lstrip("/"), create=True)

    def head(self, key: str) -> StoredObject | None:
        """Return size and CRC-32 of a file, None if there is none; reads all of it."""
        size = crc = 0
        with contextlib.suppress(errors.NotFoundError):
            for data in self.read(key):
                size += len(data)
                crc = zlib.crc32(data, crc)
            return StoredObject(key, size, crc)
        return None

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return up to 1,000 files; the token is the first key that the next page may have."""
        return cut_page(self.list_objects(prefix, token or first, last))

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield the files below `prefix` with keys from `first` to `last`, in UTF-8 order.

        ``a.txt`` is before ``a/b``, as in S3. Symbolic links are not followed and not listed.
        """
        top = prefix[: prefix.rfind("/") + 1]
        if not top.startswith(self.start):
            top = self.start
        stack = [self._list_folder(top[len(self.start) :])]
        while stack:
            listed = next(stack[-1], None)
            if listed is None:
                stack.pop()
                continue
            key = self.start + listed.path
            if listed.size is None:  # a folder; `key` begins all keys in it
                if key >= first or first.startswith(key):
                    stack.append(self._list_folder(listed.path))
            elif key > last:
                return
            elif key >= first and key.startswith(prefix):
                yield ListedObject(key, listed.size)

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        """Yield a file's bytes, or its bytes [start, stop), in pieces."""
        target = self.locate(key)
        with explaining(target.whole), self.open_file(target) as file:
            start, stop = span or (0, sys.maxsize)
            file.seek(start)
            while data := file.read(min(PIECE, stop - start)):
                start += len(data)
                yield data

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the files; nothing happens if they are gone."""
        for key in keys:
            self.unlink(self.locate(key))

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a file that is written in parts; return its id."""
        upload_id = uuid.uuid4().hex[:16]
        self._folders.get(self.locate(key).folder, create=True)
        # The note first: with it the upload is found and dropped.
        note = self.locate_own(upload_id + NOTE)
        owner = {RUN_KEY: facts.metadata.get(RUN_KEY, ""), MODE_KEY: "600"}
        self.write(note, (encode((key, facts)),), owner)
        root = self._folders.get("", create=True)
        file = self.locate_own(upload_id)
        mode = self._choose_mode(facts.metadata) | _OWNER_WRITES
        with explaining(file.whole):
            os.close(os.open(file.name, _NEW, mode, dir_fd=root.file))
        return upload_id

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Write the part in place."""
        own = self._locate_upload(upload).file
        with explaining(own.whole), self._open_own(own, os.O_WRONLY) as file:
            write_at(file.fileno(), body, offset)
        return Part(number, f'"{crc32:08x}"', len(body), crc32)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Give the file its name."""
        own = self._locate_upload(upload)
        target = self.locate(upload.key)
        try:
            self._finish_file(own, target, sum(part.size for part in parts))
            folder = self._folders.get(target.folder, create=True)
            root = self._folders.get("")
            rename(own.file.name, root.file, target.name, folder.file, if_absent=if_absent)
            self.unlink(own.note)
        except FileExistsError as error:
            if not if_absent:
                raise translate_error(error, target.whole) from error
            self.abort_upload(upload)
            raise errors.ConflictError(f"{target.whole}: exists already") from error
        except OSError as error:
            raise translate_error(error, target.whole) from error

    def _finish_file(self, own: _UploadFiles, target: FilePath, size: int) -> None:
        """Check that an upload has `size` bytes; give its file the mode and time of its facts."""
        with self._open_own(own.file, os.O_WRONLY) as file:
            written = os.fstat(file.fileno()).st_size
            if written != size:
                raise errors.StorageError(
                    f"{target.whole}: its parts make {size} bytes, {written} are there"
                )
            metadata = self._read_note(own.note)[1].metadata
            restore_mode(file.fileno(), self._choose_mode(metadata))
            restore_time(file.fileno(), metadata)

    def abort_upload(self, upload: Upload) -> None:
        """Drop the file; nothing happens if it is gone."""
        for path in self._locate_upload(upload):
            self.unlink(path)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""
        for name in sorted(entry.name for entry in self.scan("")):
            if name.startswith(OWN) and name.endswith(NOTE):
                upload_id = name.removeprefix(OWN).removesuffix(NOTE)
                # The upload was completed just now, or the note was lost in a power failure.
                with contextlib.suppress(errors.NotFoundError, errors.UsageError):
                    key = self._read_note(self.locate_own(upload_id + NOTE))[0]
                    if key.startswith(prefix):
                        yield Upload(key, upload_id)

    def _locate_upload(self, upload: Upload) -> _UploadFiles:
        """Return where the files of an upload are."""
        if not upload.upload_id.isalnum():
            raise errors.StorageError(f"{upload.upload_id!r}: not an upload of {self.root}")
        return _UploadFiles(
            self.locate_own(upload.upload_id), self.locate_own(upload.upload_id + NOTE)
        )

    def _open_own(self, path: FilePath, flags: int) -> FileIO:
        """Open a file of our own."""
        file = self.open_file(path, flags)
        if os.fstat(file.fileno()).st_nlink != 1:  # somebody laid a link to another file there
            file.close()
            raise errors.StorageError(
                f"{path.whole}: this file has another name, too; it is not ours"
            )
        return file

    def _read_note(self, path: FilePath) -> tuple[str, ObjectFacts]:
        """Return the key and the facts in an upload's note."""
        with self._open_own(path, os.O_RDONLY) as file:
            return decode(file.readall(), tuple[str, ObjectFacts])


def own_prefix(run: str) -> str:
    """Return what the names of our own files begin with that a run writes beside its members."""
    return f"{OWN}{zlib.crc32(run.encode()):08x}-"
