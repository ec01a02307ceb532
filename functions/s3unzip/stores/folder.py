"""Members and a run's records as files below a folder.

What S3 keeps as metadata a folder keeps as the file's own time and mode; the CRC-32 is computed
from the bytes. A file is written under a name of our own in its own folder, then renamed, so that
it appears whole or not at all. A multipart upload is a file of our own at the top of the folder,
its parts written in place at their offsets. The names of our own say which run made them, so that
the run can remove what a killed worker left.

A file of our own is never more open than the member is: it is created with the member's mode, from
which the system takes the bits of the umask.

Nothing is synced to disk. After a loss of power `resume` looks again at what is on record as done
(`local.recovery`).

Folders are opened by `open_folders`; files are created, renamed and deleted relative to their
descriptors, because a path that was checked may lead elsewhere when it is used.
"""

import contextlib
import errno
import itertools
import math
import os
import shutil
import stat
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from s3unzip import errors
from s3unzip.model import Part, decode, encode
from s3unzip.object_properties import MODE_KEY, MTIME_KEY, RUN_KEY
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

OWN = ".s3unzip-"  # how names of our own begin; members may not be called so
NOTE = ".note"  # beside an upload's file: its key and facts
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
NO_EXCLUSIVE_RENAME = frozenset({errno.ENOSYS, errno.EINVAL})
# renameat2(2) with RENAME_NOREPLACE, and what macOS calls so.
_EXCLUSIVE_RENAME = ("renameatx_np", 4) if sys.platform == "darwin" else ("renameat2", 1)
_OWNER_WRITES = 0o600
_FILE = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FILE


class Place(NamedTuple):
    """Where one file is: its folder relative to the root, and its name there."""

    folder: str
    name: str
    path: str  # the whole path, for messages


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

    def place(self, key: str) -> Place:
        """Return where `key` is; check that it lies below the folder."""
        below = key[len(self.start) :]
        parts = below.split("/")
        if not key.startswith(self.start) or {"", ".", ".."}.intersection(parts) or "\0" in key:
            raise errors.StorageError(f"{key!r}: not a path below {self.root}")
        if OWN in below and any(part.startswith(OWN) for part in parts):
            raise errors.StorageError(
                f"{key!r}: names that begin with {OWN} are for s3unzip's own files"
            )
        return Place(below.rpartition("/")[0], parts[-1], key)

    def own_place(self, name: str) -> Place:
        """Return where our own file `name` is: at the top of the folder."""
        return Place("", OWN + name, f"{self.start}{OWN}{name}")

    def open_file(self, place: Place, flags: int = os.O_RDONLY) -> FileIO:
        """Open a regular file that exists, neither truncated nor buffered."""
        try:
            folder = self._folders.get(place.folder)
            # A FIFO would let the caller wait for a writer.
            file = os.open(place.name, flags | _FILE | os.O_NONBLOCK, dir_fd=folder.file)
        except errors.NotFoundError as error:
            raise errors.NotFoundError(f"{place.path}: no such file or folder") from error
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENXIO}:
                raise errors.NotFoundError(f"{place.path}: not a file") from error
            if error.errno in NO_NAME:
                raise errors.NotFoundError(f"{place.path}: no file has this name") from error
            raise translate_error(error, place.path) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise errors.NotFoundError(f"{place.path}: not a file")
        return FileIO(file, "rb" if flags == os.O_RDONLY else "wb")

    def unlink(self, place: Place) -> None:
        """Delete a file or a link; nothing happens if it is gone."""
        with contextlib.suppress(errors.NotFoundError), explaining(place.path):
            folder = self._folders.get(place.folder)
            os.unlink(place.name, dir_fd=folder.file)

    def write(
        self,
        place: Place,
        pieces: Iterable[Buffer],
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
    ) -> int:
        """Write a file whole or not at all; return its size."""
        metadata = metadata or {}
        folder = self._folders.get(place.folder, create=True)
        own = f"{own_prefix(metadata.get(RUN_KEY, ''))}{self._serial}{next(self._numbers):x}"
        try:
            file = os.open(own, _NEW, self._choose_mode(metadata), dir_fd=folder.file)
        except OSError as error:
            raise self._explain_write(error, place.path.rpartition("/")[0]) from error
        try:
            size = 0
            for piece in pieces:
                write_at(file, piece, size)
                size += len(piece)
            restore_time(file, metadata)
            rename(own, folder.file, place.name, folder.file, if_absent=if_absent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(own, dir_fd=folder.file)
            if not isinstance(error, OSError):
                raise
            if if_absent and isinstance(error, FileExistsError):
                raise errors.ConflictError(f"{place.path}: exists already") from error
            raise self._explain_write(error, place.path) from error
        finally:
            os.close(file)
        return size

    def _choose_mode(self, metadata: Mapping[str, str]) -> int:
        """Return the mode that a file is created with; the umask forbids some of it.

        The permission bits of the archive, never set-user-id. Many writers leave them zero: such a
        file has the mode of a new file, or nobody but root could read it.
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
        place = self.place(key)
        with contextlib.suppress(errors.NotFoundError), explaining(place.path):
            folder = self._folders.get(place.folder)
            facts = os.stat(place.name, dir_fd=folder.file, follow_symlinks=False)
            return facts.st_size if stat.S_ISREG(facts.st_mode) else None
        return None

    def remove_own(self, folder: str, run: str) -> int:
        """Delete the files of our own that a run left in a folder; return how many there were."""
        prefix = own_prefix(run)
        names = [entry.name for entry in self.scan(folder) if entry.name.startswith(prefix)]
        for name in names:
            self.unlink(Place(folder, name, f"{self.start}{folder}/{name}"))
        return len(names)

    def _entries(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Return (path, size) of what is in a folder; a folder ends in "/" and has no size.

        Args:
            path: of the folder, relative, empty or ending in "/".
        """
        found: list[tuple[str, int | None]] = []
        for entry in self.scan(path.rstrip("/")):
            if entry.name.startswith(OWN):
                continue
            if entry.is_dir(follow_symlinks=False):
                found.append((f"{path}{entry.name}/", None))
            elif entry.is_file(follow_symlinks=False):
                found.append((path + entry.name, entry.stat(follow_symlinks=False).st_size))
        found.sort(key=lambda pair: pair[0])
        return iter(found)

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

    def check_ready(self, wanted: int) -> None:
        """Check that files can be made, and that an empty folder has room for `wanted` bytes."""
        if next(self.scan(""), None) is None:
            root = Path(self.root)
            there = next(one for one in (root, *root.parents) if one.is_dir())
            free = shutil.disk_usage(there).free
            if wanted > free:
                raise errors.StoreFullError(
                    f"{root}: {wanted:,} bytes are to be written, {free:,} are free: make room, or "
                    f"use another place"
                )
        place = self.own_place(uuid.uuid4().hex[:16])
        self.write(place, ())
        self.unlink(place)

    def sync(self) -> None:
        """Write all file systems to their disks: a member may be on any of them."""
        os.sync()

    def release(self) -> None:
        """Close the folders that are open."""
        self._folders.close()

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Write one file whole, with its time and mode."""
        self.write(self.place(key), (body,), facts.metadata, if_absent=if_absent)

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:  # noqa: ARG002 - of the port
        """Write one file; whoever replaces one has its run's lock, and files have no ETag."""
        self.put(key, body, facts, if_absent=False)

    def make_folder(self, key: str) -> None:
        """Create a folder, and those above it, if they are missing."""
        place = self.place(key)
        self._folders.get(f"{place.folder}/{place.name}".lstrip("/"), create=True)

    def head(self, key: str) -> StoredObject | None:
        """Return size and CRC-32 of a file, None if there is none; reads all of it."""
        size, crc = 0, 0
        with contextlib.suppress(errors.NotFoundError):
            for piece in self.read(key):
                size += len(piece)
                crc = zlib.crc32(piece, crc)
            return StoredObject(key, size, crc)
        return None

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return a thousand files; a token is the key that the next page begins with."""
        return cut_page(self.list_objects(prefix, token or first, last))

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield the files below `prefix` with keys from `first` to `last`, in UTF-8 order.

        ``a.txt`` is before ``a/b``, as in S3. Symbolic links are not followed and not listed.
        """
        above = prefix[: prefix.rfind("/") + 1]
        top = above if above.startswith(self.start) else self.start
        stack = [self._entries(top[len(self.start) :])]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
                continue
            key = self.start + entry[0]
            if entry[1] is None:
                if key >= first or first.startswith(key):
                    stack.append(self._entries(entry[0]))
            elif key > last:
                return
            elif key >= first and key.startswith(prefix):
                yield ListedObject(key, entry[1])

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        """Yield a file's bytes, or its bytes [start, stop), in pieces."""
        place = self.place(key)
        with explaining(place.path), self.open_file(place) as file:
            if span is not None:
                file.seek(span[0])
            left = math.inf if span is None else span[1] - span[0]
            while piece := file.read(int(min(PIECE, left))):
                left -= len(piece)
                yield piece

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the files; nothing happens if they are gone."""
        for key in keys:
            self.unlink(self.place(key))

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a file that is written in parts; return its id."""
        upload_id = uuid.uuid4().hex[:16]
        self._folders.get(self.place(key).folder, create=True)
        # The note first: with it the upload is found and dropped.
        note = self.own_place(upload_id + NOTE)
        owner = {RUN_KEY: facts.metadata.get(RUN_KEY, ""), MODE_KEY: "600"}
        self.write(note, (encode((key, facts)),), owner)
        root = self._folders.get("", create=True)
        place = self.own_place(upload_id)
        mode = self._choose_mode(facts.metadata) | _OWNER_WRITES
        with explaining(place.path):
            os.close(os.open(place.name, _NEW, mode, dir_fd=root.file))
        return upload_id

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Write the part in place."""
        place, _ = self._upload_places(upload)
        with explaining(place.path), self._opened(place, os.O_WRONLY) as file:
            write_at(file.fileno(), body, offset)
        return Part(number, f'"{crc32:08x}"', len(body), crc32)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Give the file its name."""
        place, note = self._upload_places(upload)
        target = self.place(upload.key)
        try:
            with self._opened(place, os.O_WRONLY) as file:
                wanted, size = sum(part.size for part in parts), os.fstat(file.fileno()).st_size
                if size != wanted:
                    raise errors.StorageError(
                        f"{target.path}: its parts make {wanted} bytes, {size} are there"
                    )
                metadata = self._note(note)[1].metadata
                restore_mode(file.fileno(), self._choose_mode(metadata))
                restore_time(file.fileno(), metadata)
            folder = self._folders.get(target.folder, create=True)
            root = self._folders.get("")
            rename(place.name, root.file, target.name, folder.file, if_absent=if_absent)
            self.unlink(note)
        except FileExistsError as error:
            if not if_absent:
                raise translate_error(error, target.path) from error
            self.abort_upload(upload)
            raise errors.ConflictError(f"{target.path}: exists already") from error
        except OSError as error:
            raise translate_error(error, target.path) from error

    def abort_upload(self, upload: Upload) -> None:
        """Drop the file; nothing happens if it is gone."""
        for place in self._upload_places(upload):
            self.unlink(place)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""
        for name in sorted(entry.name for entry in self.scan("")):
            if name.startswith(OWN) and name.endswith(NOTE):
                upload_id = name.removeprefix(OWN).removesuffix(NOTE)
                # It is complete meanwhile, or a loss of power took the note.
                with contextlib.suppress(errors.NotFoundError, errors.UsageError):
                    key = self._note(self.own_place(upload_id + NOTE))[0]
                    if key.startswith(prefix):
                        yield Upload(key, upload_id)

    def _upload_places(self, upload: Upload) -> tuple[Place, Place]:
        """Return where an upload's file is, and where its note is."""
        if not upload.upload_id.isalnum():
            raise errors.StorageError(f"{upload.upload_id!r}: not an upload of {self.root}")
        return self.own_place(upload.upload_id), self.own_place(upload.upload_id + NOTE)

    def _opened(self, place: Place, flags: int) -> FileIO:
        """Open a file of our own."""
        file = self.open_file(place, flags)
        if os.fstat(file.fileno()).st_nlink != 1:  # somebody laid a link to another file there
            file.close()
            raise errors.StorageError(
                f"{place.path}: this file has another name, too; it is not ours"
            )
        return file

    def _note(self, place: Place) -> tuple[str, ObjectFacts]:
        """Return what an upload's note says: its key and facts."""
        with self._opened(place, os.O_RDONLY) as file:
            return decode(file.readall(), tuple[str, ObjectFacts])


def own_prefix(run: str) -> str:
    """Return how the names of our own begin that a run makes beside its members."""
    return f"{OWN}{zlib.crc32(run.encode()):08x}-"


def rename(old: str, source: int, name: str, target: int, *, if_absent: bool) -> None:
    """Move the file `old` of the open folder `source` to `name` in the open folder `target`.

    A link fails where the name exists, and a plain rename replaces what has it.
    """
    if not if_absent:
        os.replace(old, name, src_dir_fd=source, dst_dir_fd=target)
        return
    try:
        os.link(old, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        rename_exclusively(old, source, name, target)
    else:
        os.unlink(old, dir_fd=source)


def rename_exclusively(old: str, source: int, name: str, target: int) -> None:
    """Rename a file unless the name exists, on a file system without hard links.

    Few file systems (FUSE) have neither. There another program's file is replaced if it appears
    between the look and the rename.
    """
    import ctypes  # noqa: PLC0415 - rare

    function, flag = _EXCLUSIVE_RENAME
    call = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    code = errno.ENOSYS
    if call is not None:
        if not call(source, os.fsencode(old), target, os.fsencode(name), flag):
            return
        code = ctypes.get_errno()
    if code not in NO_EXCLUSIVE_RENAME:
        raise OSError(code, os.strerror(code))
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=target, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.replace(old, name, src_dir_fd=source, dst_dir_fd=target)


def restore_mode(file: int, mode: int) -> None:
    """Take the bits from an open file that were given to write it; no bit is added."""
    bits = stat.S_IMODE(os.fstat(file).st_mode)
    if bits & mode != bits:
        with contextlib.suppress(PermissionError):  # a file system without modes
            os.fchmod(file, bits & mode)


def restore_time(file: int, metadata: Mapping[str, str]) -> None:
    """Give an open file the time of the archive."""
    mtime = metadata.get(MTIME_KEY)
    if mtime is not None:
        os.utime(file, (int(mtime), int(mtime)))


def write_at(file: int, body: Buffer, offset: int) -> None:
    """Write all of `body` at `offset`."""
    view = memoryview(body)
    while view:
        done = os.pwrite(file, view, offset)
        view = view[done:]
        offset += done
