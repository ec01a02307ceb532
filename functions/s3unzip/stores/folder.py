"""Members and the records of runs as files below a folder.

Rules:

* A file is written under a temporary name in its folder and then renamed, so that it appears either
  whole or not at all. The temporary name identifies the run, so that the files of a killed worker
  can be removed.
* A multipart upload is a temporary file at the top of the folder. Its parts are written at their
  offsets, in any order, and possibly more than once.
* A temporary file grants no more rights than the member: it is created with the mode of the member,
  and the system clears the bits set in the umask.
* In S3, the time and mode of a member are metadata. In a folder, the file has the time and mode of
  the member. The CRC-32 of a file is computed from its bytes.
* Files are created, renamed and deleted relative to folders that `open_folders` keeps open, because
  a path may lead elsewhere after it was checked. A variable must refer to the open folder until the
  system call returns, because a folder without references is closed.
* Nothing is synced to disk. After a power failure, `resume` compares the files with the records
  (`local.recovery`).
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

from s3unzip import errors
from s3unzip.model import NO_NAMES, Part, decode, encode
from s3unzip.object_properties import MODE_KEY, RUN_KEY
from s3unzip.stores.files import PRIVATE, explaining, translate_error
from s3unzip.stores.listing import cut_page
from s3unzip.stores.open_folders import (
    OpenFolder,
    OpenFolders,
    explain_folder,
    rename,
    restore_time,
    restrict_mode,
    write_at,
)
from s3unzip.stores.ports import (
    PIECE,
    Buffer,
    Destination,
    ListPage,
    ObjectFacts,
    PartLimits,
    StoredObject,
    Upload,
)

OWN = ".s3unzip-"  # temporary files have this prefix; members may not have it
NOTE = ".note"  # suffix of the temporary file with the key and facts of an upload
# For each warning: two endings of names that some disks treat as equal, and their difference.
COLLISIONS = {
    "case-collision": ("a", "A", "upper and lower case"),
    "unicode-collision": ("\u00e9", "e\u0301", "the Unicode form of names"),
}
_FILE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_NEW_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FILE_FLAGS
# Opening a file fails with one of these errors if no regular file has the name.
_NO_FILE: dict[int | None, str] = {
    errno.ELOOP: "not a file",  # a symbolic link
    errno.ENXIO: "not a file",  # a socket or a FIFO
    errno.ENAMETOOLONG: "no file has this name",
    errno.EILSEQ: "no file has this name",
    errno.EINVAL: "no file has this name",
}


class FolderDestination(Destination):
    """A folder below which members are written; threads and processes may share it.

    A key is the absolute path of a file.

    Args:
        root: absolute path of the folder. Symbolic links in this path are followed.
        private: whether only this user can access new folders (0700) and files (0600).
    """

    keeps_metadata = False
    part_limits = PartLimits(min_bytes=1)  # parts may be small; their number is limited as in S3

    def __init__(self, root: str, *, private: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        self.root_prefix = root.rstrip("/") + "/"  # prefix of all keys
        self._folders = OpenFolders(self.root, PRIVATE if private else 0o777)
        self._is_private = private

    def _check_key(self, key: str) -> str:
        """Return `key`; raise `StorageError` if no member below the folder can have it."""
        below = key[len(self.root_prefix) :]
        parts = below.split("/")
        if not key.startswith(self.root_prefix) or NO_NAMES.intersection(parts) or "\0" in key:
            raise errors.StorageError(f"{key!r}: not a path below {self.root}")
        # `OWN in below` is a quick test, which nearly all keys fail.
        if OWN in below and any(part.startswith(OWN) for part in parts):
            raise errors.StorageError(
                f"{key!r}: names that begin with {OWN} are reserved for s3unzip's own files"
            )
        return key

    def _locate(self, key: str, *, create: bool = False) -> tuple[OpenFolder, str]:
        """Return the open folder that contains a file, and the name of the file in that folder.

        Args:
            key: absolute path of the file.
            create: whether to create missing folders.
        """
        folder, _, name = key.removeprefix(self.root_prefix).rpartition("/")
        return self._folders.get(folder, create=create), name

    def _open_file(self, key: str, flags: int = os.O_RDONLY) -> FileIO:
        """Open an existing regular file without truncating it.

        Raises:
            NotFoundError: there is no regular file with this key.
        """
        try:
            folder, name = self._locate(key)
            # Without O_NONBLOCK, opening a FIFO would wait for a writer.
            file = os.open(name, flags | _FILE_FLAGS | os.O_NONBLOCK, dir_fd=folder.file)
        except errors.NotFoundError as error:
            raise errors.NotFoundError(f"{key}: no such file or folder") from error
        except OSError as error:
            if error.errno in _NO_FILE:
                raise errors.NotFoundError(f"{key}: {_NO_FILE[error.errno]}") from error
            raise translate_error(error, key) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise errors.NotFoundError(f"{key}: not a file")
        return FileIO(file)  # closes the descriptor, which `write_at` may also use

    def _unlink(self, key: str) -> None:
        """Delete a file; do nothing if it no longer exists."""
        with contextlib.suppress(errors.NotFoundError), explaining(key):
            folder, name = self._locate(key)
            os.unlink(name, dir_fd=folder.file)

    def _write(
        self,
        key: str,
        body: Buffer,
        metadata: Mapping[str, str],
        *,
        if_absent: bool = False,
    ) -> None:
        """Write a file under a temporary name and rename it, so that it is whole or absent."""
        folder, name = self._locate(key, create=True)
        temporary_name = own_prefix(metadata.get(RUN_KEY, "")) + _draw_id()
        try:
            file = os.open(
                temporary_name, _NEW_FLAGS, self._choose_mode(metadata), dir_fd=folder.file
            )
        except OSError as error:
            # The temporary name means nothing to the user, so the message names the folder.
            raise self._explain_write(error, key.rpartition("/")[0]) from error
        try:
            with FileIO(file, "w"):  # over a network, `close` may be the call that reports an error
                write_at(file, body, 0)
                restore_time(file, metadata)
            rename(temporary_name, folder.file, name, folder.file, if_absent=if_absent)
        except BaseException as error:
            with contextlib.suppress(OSError):  # the first error is more important
                os.unlink(temporary_name, dir_fd=folder.file)
            if not isinstance(error, OSError):
                raise
            raise self._explain_write(error, key, if_absent=if_absent) from error

    def _choose_mode(self, metadata: Mapping[str, str]) -> int:
        """Return the mode for creating a file; the system clears the bits set in the umask.

        The mode has the permission bits from the archive, but never the set-user-ID bit. Many
        programs that write archives leave all bits zero. Because only root could read a file with
        mode 0, such a file gets the default mode of new files.
        """
        if self._is_private:
            return 0o600
        return (int(metadata.get(MODE_KEY, "0"), 8) & 0o777) or 0o666

    def _explain_write(
        self, error: OSError, path: str, *, if_absent: bool = False
    ) -> errors.S3UnzipError:
        """Return the error for a failed write. If a folder is gone, forget the open folders."""
        if if_absent and isinstance(error, FileExistsError):
            return errors.ConflictError(f"{path}: exists already")
        if error.errno == errno.ENOENT:
            self._folders.forget()
        return explain_folder(error, path, create=True)

    def size(self, key: str) -> int | None:
        """Return the size of a file, or None if `key` is missing, a symbolic link or a folder."""
        with contextlib.suppress(errors.NotFoundError), explaining(key):
            folder, name = self._locate(self._check_key(key))
            facts = os.stat(name, dir_fd=folder.file, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                return facts.st_size
        return None

    def remove_own(self, folder: str, run: str) -> int:
        """Delete the temporary files that a run left in a folder; return the number of files.

        Args:
            folder: destination, or a folder below it, ending in "/".
            run: id of the run.
        """
        prefix = own_prefix(run)
        # `_scan` takes a path relative to the root, but `_unlink` takes a whole key.
        path = folder[len(self.root_prefix) : -1]
        names = [entry.name for entry in self._scan(path) if entry.name.startswith(prefix)]
        for name in names:
            self._unlink(folder + name)
        return len(names)

    def _scan(self, path: str) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of the folder at `path`; yield nothing if there is no folder."""
        try:
            with explaining(f"{self.root}/{path}"):
                folder = self._folders.get(path)
                # `folder` may have been opened with O_PATH, which does not allow listing.
                file = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder.file)
                try:
                    with os.scandir(file) as entries:
                        yield from entries
                finally:
                    os.close(file)
        except errors.AccessDeniedError:  # the folder may contain entries
            raise
        except errors.StorageError:  # missing, a file or a link; I/O errors have another class
            return

    def check_ready(self, size: int, warnings: Collection[str] = ()) -> None:
        """Check that files can be created and, if the folder is empty, that `size` bytes fit.

        If there is a warning about collisions, also check that the disk distinguishes such names.
        """
        # If the folder is not empty, an earlier attempt may have written some of the `size` bytes.
        if next(self._scan(""), None) is None:
            root = Path(self.root)
            # The root may not exist yet; it will be on the same disk as its nearest existing
            # parent.
            folder = next(path for path in (root, *root.parents) if path.is_dir())
            free = shutil.disk_usage(folder).free
            if size > free:
                raise errors.StoreFullError(
                    f"{root}: {size:,} bytes are needed, and {free:,} are free: make room, or use "
                    "another disk"
                )
        probe = self._own_key(_draw_id())
        self._write(probe, b"", {})
        self._unlink(probe)
        for warning, (ending, other_ending, ignored) in COLLISIONS.items():
            if warning in warnings and self._is_one_file(probe + ending, probe + other_ending):
                raise errors.StorageError(
                    f"{self.root}: this disk ignores {ignored}, so members whose names differ only "
                    "in that would replace each other: use another disk, --exclude all but one of "
                    "them, or give --lenient to keep the last (not with --after-success delete)"
                )

    def _is_one_file(self, key: str, other_key: str) -> bool:
        self._write(key, b"", {})
        is_one_file = os.path.lexists(other_key)
        self._unlink(key)
        return is_one_file

    def release(self) -> None:
        self._folders.close()

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        self._write(self._check_key(key), body, facts.metadata, if_absent=if_absent)

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:  # noqa: ARG002 - required by the interface
        """Write one file; no ETag is compared, because the caller holds the lock of the run."""
        self.put(key, body, facts, if_absent=False)

    def make_folder(self, key: str) -> None:
        """Create a folder and its parent folders if they are missing."""
        self._folders.get(self._check_key(key).removeprefix(self.root_prefix), create=True)

    def head(self, key: str) -> StoredObject | None:
        """Return the size of a file and the CRC-32 of its bytes, or None if it is missing."""
        size = crc = 0
        with contextlib.suppress(errors.NotFoundError):
            for data in self.read(key):
                size += len(data)
                crc = zlib.crc32(data, crc)
            return StoredObject(key, size, crc)
        return None

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        """Return up to 1,000 files; the token is the smallest possible key on the next page."""
        return cut_page(self._list_objects(prefix, token or first, last))

    def _list_objects(self, prefix: str, first: str, last: str) -> Iterator[StoredObject]:
        """Yield the files below `prefix` with keys from `first` to `last`, in UTF-8 order.

        ``a.txt`` comes before ``a/b``, as in S3. Symbolic links are neither followed nor listed.
        """
        top = prefix[: prefix.rfind("/") + 1]  # a folder that contains all keys with this prefix
        stack = [self._list_folder(top)]  # the folders being listed, from `top` to the deepest
        while stack:
            key, size = next(stack[-1], ("", None))
            if not key:  # the whole folder is listed
                stack.pop()
            elif key > last:  # all further keys also come after `last`
                return
            elif size is None:  # a folder; all keys in it begin with `key`
                # If this is false, all keys in the folder come before `first`.
                if key >= first or first.startswith(key):
                    stack.append(self._list_folder(key))
            elif key >= first and key.startswith(prefix):
                yield StoredObject(key, size)

    def _list_folder(self, folder: str) -> Iterator[tuple[str, int | None]]:
        """Yield the key and size of each file in a folder, ordered by key.

        Subfolders are listed too: their size is None, and their keys end in "/".

        Args:
            folder: key of the folder, ending in "/".
        """
        listed: list[tuple[str, int | None]] = []
        for entry in self._scan(folder[len(self.root_prefix) : -1]):
            if entry.name.startswith(OWN):  # a temporary file of s3unzip
                continue
            if entry.is_dir(follow_symlinks=False):
                listed.append((f"{folder}{entry.name}/", None))
            elif entry.is_file(follow_symlinks=False):
                listed.append((folder + entry.name, entry.stat(follow_symlinks=False).st_size))
        return iter(sorted(listed))

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        with explaining(key), self._open_file(self._check_key(key)) as file:
            position, stop = span or (0, sys.maxsize)
            file.seek(position)
            # At `stop`, `read` returns no bytes, which ends the loop.
            while data := file.read(min(PIECE, stop - position)):
                position += len(data)
                yield data

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._unlink(self._check_key(key))

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Create a note (key and facts) and an empty file for the parts; return the upload id."""
        upload_id = _draw_id()
        self._locate(self._check_key(key), create=True)  # create the folder for the file
        # The note is written first: `uploads` finds an upload by its note. Only this user needs the
        # note, so its mode is 0600.
        note_metadata = {RUN_KEY: facts.metadata.get(RUN_KEY, ""), MODE_KEY: "600"}
        self._write(self._own_key(upload_id, NOTE), encode((key, facts)), note_metadata)
        parts_key = self._own_key(upload_id)
        mode = self._choose_mode(facts.metadata) | 0o200  # the owner must be able to write parts
        with explaining(parts_key):
            root, parts_name = self._locate(parts_key, create=True)
            os.close(os.open(parts_name, _NEW_FLAGS, mode, dir_fd=root.file))
        return upload_id

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        parts_key = self._own_key(upload.upload_id)
        with explaining(parts_key), self._open_own(parts_key, os.O_WRONLY) as file:
            write_at(file.fileno(), body, offset)
        # Files have no ETags, so nothing compares this value.
        return Part(number, f'"{crc32:08x}"', len(body), crc32)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Check the size of the file, and set its final mode, time and name."""
        parts_key = self._own_key(upload.upload_id)
        note_key = self._own_key(upload.upload_id, NOTE)  # contains the facts of the object
        key = self._check_key(upload.key)
        try:
            with self._open_own(parts_key, os.O_WRONLY) as file:
                written = os.fstat(file.fileno()).st_size
                size = sum(part.size for part in parts)
                if written != size:
                    raise errors.StorageError(
                        f"{key}: the parts have {size} bytes, but the file has {written} bytes"
                    )
                _, facts = self._read_note(note_key)
                restrict_mode(file.fileno(), self._choose_mode(facts.metadata))
                restore_time(file.fileno(), facts.metadata)
            folder, name = self._locate(key, create=True)
            root, parts_name = self._locate(parts_key)
            rename(parts_name, root.file, name, folder.file, if_absent=if_absent)
            self._unlink(note_key)
        except OSError as error:
            raise self._explain_write(error, key, if_absent=if_absent) from error

    def abort_upload(self, upload: Upload) -> None:
        self._unlink(self._own_key(upload.upload_id))
        self._unlink(self._own_key(upload.upload_id, NOTE))

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix` whose notes (keys and facts) are readable."""
        for name in sorted(entry.name for entry in self._scan("")):
            if name.startswith(OWN) and name.endswith(NOTE):
                # The note is missing if the upload has just been completed, and may be damaged
                # after a power failure.
                with contextlib.suppress(errors.NotFoundError, errors.UsageError):
                    key, _ = self._read_note(self.root_prefix + name)
                    if key.startswith(prefix):
                        yield Upload(key, name.removeprefix(OWN).removesuffix(NOTE))

    def _own_key(self, upload_id: str, ending: str = "") -> str:
        """Return the key of the file for an upload, or of its note if `ending` is `NOTE`."""
        if not upload_id.isalnum():
            raise errors.StorageError(f"{upload_id!r}: not an upload of {self.root}")
        return f"{self.root_prefix}{OWN}{upload_id}{ending}"

    def _open_own(self, key: str, flags: int) -> FileIO:
        """Open a temporary file, but refuse a hard link to another file."""
        file = self._open_file(key, flags)
        if os.fstat(file.fileno()).st_nlink != 1:
            file.close()
            raise errors.StorageError(
                f"{key}: this file has a second name (a hard link), so s3unzip did not make it"
            )
        return file

    def _read_note(self, key: str) -> tuple[str, ObjectFacts]:
        """Return the key and facts of the upload whose note is stored at `key`."""
        with self._open_own(key, os.O_RDONLY) as file:
            return decode(file.readall(), tuple[str, ObjectFacts])


def own_prefix(run: str) -> str:
    """Return the prefix of the temporary names under which a run writes members."""
    return f"{OWN}{zlib.crc32(run.encode()):08x}-"


def _draw_id() -> str:
    return os.urandom(8).hex()  # 64 random bits, so that ids do not collide
