"""What is special about folders: links, names that clash, rights, full disks, time and mode."""

import contextlib
import ctypes
import errno
import itertools
import os
import resource
import socket
import stat
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    ConflictError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    StoreFullError,
)
from s3unzip.model import Location, Part
from s3unzip.stores import config, files, open_folders, run_store
from s3unzip.stores.folder import OWN, FolderDestination, own_prefix
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import ObjectFacts, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.contract.conftest import FACTS, list_all


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def target(folder: Path) -> FolderDestination:
    return FolderDestination(str(folder))


def _refusing(error: OSError) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


def _put(folder: Path, key: str, *, if_absent: bool = False) -> None:
    FolderDestination(str(folder)).put(key, b"body", FACTS, if_absent=if_absent)


def _act_after_writes(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    write = os.pwrite

    def write_and_act(file: int, data: bytes, offset: int) -> int:
        written = write(file, data, offset)
        act()
        return written

    monkeypatch.setattr(os, "pwrite", write_and_act)


def _mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _begin(target: FolderDestination, key: str, facts: ObjectFacts = FACTS) -> tuple[Upload, Part]:
    upload = Upload(key, target.create_upload(key, facts))
    return upload, target.upload_part(upload, 1, 0, b"body", zlib.crc32(b"body"))


def _swap(folder: Path, outside: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # it is not made yet
        (folder / "a").rename(folder / "aside")
    (folder / "a").symlink_to(outside)


def _swap_in_turn(
    turns: Iterator[int], folder: Path, outside: Path, _: object, event: str, __: object
) -> None:
    if event == "c_call" and next(turns) == 0:
        _swap(folder, outside)


def _records(home: Path, run: str = "run-1") -> run_store.RunStore:
    return OpenedStores(config.StoreConfig(Location("file", "", str(home)))).run_store(run)


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("mode", "umask", "restored"),
    [
        ("4751", 0o022, 0o751),
        ("777", 0o022, 0o755),
        ("666", 0o002, 0o664),
        ("600", 0o000, 0o600),
        ("400", 0o022, 0o400),
        ("0", 0o022, 0o644),
        ("0", 0o000, 0o666),  # nobody may execute it
    ],
)
def test_time_and_mode_are_restored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    umask: int,
    restored: int,
    *,
    in_parts: bool,
) -> None:
    """A file has the time and the permission bits of the archive that the umask allows.

    Many writers leave the bits zero. While a file is written, it gives others no right that the
    whole file does not give.
    """
    key = f"{tmp_path}/a"
    facts = ObjectFacts("text/plain", {"mtime": "1000000000", "mode": mode})
    target = FolderDestination(str(tmp_path))
    seen: list[int] = []

    def look() -> None:
        seen.extend(_mode_of(path) for path in tmp_path.iterdir())

    _act_after_writes(monkeypatch, look)
    os.umask(umask)
    if in_parts:
        upload, part = _begin(target, key, facts)
        target.complete_upload(upload, [part], if_absent=False)
    else:
        target.put(key, b"body", facts, if_absent=False)
    assert (_mode_of(tmp_path / "a"), (tmp_path / "a").stat().st_mtime) == (restored, 1_000_000_000)
    assert seen
    assert all(not bits & 0o077 & ~restored for bits in seen)


@pytest.mark.parametrize(
    "key", ["../x", "a/../../x", "/etc/x", "a//b", "a/./b", "", "a/", "nul\0l", ".s3unzip-x"]
)
def test_keys_that_leave_the_folder(folder: Path, tmp_path: Path, key: str) -> None:
    """A folder destination writes below itself only, even for keys that lead out of it."""
    with pytest.raises(StorageError):
        _put(folder, key if key.startswith("/") else f"{folder}/{key}")
    assert not list(tmp_path.rglob("x"))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the destination ``out``, with a file in it; no test may change it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_bytes(b"mine")
    (tmp_path / "out").mkdir()
    yield tmp_path / "outside"
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "outside").iterdir()] == [
        ("f", b"mine")
    ]


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Forbid new files nothing, until the test ends."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_links_are_not_followed(folder: Path, outside: Path) -> None:
    """A link in the folder leads no write out of it; in the place of a file it is replaced."""
    (folder / "link").symlink_to(outside)
    (folder / "f").symlink_to(outside / "f")
    for name in ("link", "link/deeper"):
        with pytest.raises(StorageError, match="symbolic link"):
            _put(folder, f"{folder}/{name}/x")
    _put(folder, f"{folder}/f")
    assert (folder / "f").read_bytes() == b"body"


@pytest.mark.parametrize("call", ["exclusive rename", "no exclusive rename", "unsupported rename"])
def test_never_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A file appears whole under its name, or not at all: a killed run leaves no empty file."""
    refuse = _refusing(OSError(errno.EPERM, "no hard links"))
    monkeypatch.setattr(os, "link", refuse)
    if call.startswith("no"):
        monkeypatch.setattr("s3unzip.stores.open_folders._EXCLUSIVE_RENAME", ("no_such_call", 1))
    elif call.startswith("unsupported"):  # as macOS says of such disks; Linux says EINVAL
        monkeypatch.setattr("s3unzip.stores.open_folders._EXCLUSIVE_RENAME", ("renameat2", 1 << 20))
        monkeypatch.setattr(ctypes, "get_errno", lambda: errno.ENOTSUP)
    else:
        monkeypatch.setattr(os, "replace", refuse)
    _put(tmp_path, f"{tmp_path}/a", if_absent=True)
    with pytest.raises(ConflictError):
        _put(tmp_path, f"{tmp_path}/a", if_absent=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"body"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EEXIST, "a file is where a folder is needed"),
        (errno.EXDEV, "another file system is mounted below DEST"),
    ],
)
def test_a_file_system_that_does_not_replace(
    target: FolderDestination, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    """Without a condition, that is a refusal of the store, and not a conflict."""
    key = f"{target.root}/a"
    upload = Upload(key, target.create_upload(key, FACTS))
    monkeypatch.setattr(os, "replace", _refusing(OSError(code, os.strerror(code))))
    for write in (
        partial(target.put, key, b"", FACTS),
        partial(target.complete_upload, upload, []),
    ):
        with pytest.raises(StorageError, match=words):
            write(if_absent=False)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_keeps_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """FAT lets nobody but the user of the mount set a time; the bytes are written all the same."""
    monkeypatch.setattr(os, "utime", _refusing(OSError(code, os.strerror(code))))
    _put(tmp_path, f"{tmp_path}/a")
    assert (tmp_path / "a").read_bytes() == b"body"


def test_an_error_when_a_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS and FUSE may report only then that a write failed; no file gets its name before."""
    monkeypatch.setattr(os, "utime", lambda file, _: os.close(file))  # the second `close` fails
    with pytest.raises(ServiceFaultError, match=rf"\A{tmp_path}/a: "):
        _put(tmp_path, f"{tmp_path}/a")
    assert not list(tmp_path.iterdir())


def test_names_that_clash(tmp_path: Path) -> None:
    """A file cannot be a folder, too; the message says what is where."""
    _put(tmp_path, f"{tmp_path}/a")
    _put(tmp_path, f"{tmp_path}/b/c")
    for key, words in (
        ("a/x", "a file is where a folder is needed"),
        ("b", "a folder is where a file is needed"),
        ("n" * 256, "too long"),
    ):
        with pytest.raises(StorageError, match=words):
            _put(tmp_path, f"{tmp_path}/{key}")
    with pytest.raises(ConflictError):
        _put(tmp_path, f"{tmp_path}/b", if_absent=True)
    assert set(tmp_path.rglob("*")) == {tmp_path / name for name in ("a", "b", "b/c")}


def test_a_folder_that_somebody_deletes_meanwhile(folder: Path, target: FolderDestination) -> None:
    """The next write makes it again."""
    for _ in range(2):
        target.put(f"{folder}/a/b", b"1", FACTS, if_absent=True)
        (folder / "a/b").unlink()
        (folder / "a").rmdir()


@pytest.mark.parametrize("key", ["closed/a", "closed/b/a"])
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(tmp_path: Path, key: str) -> None:
    """The message names the folder, and no file that is not there."""
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(AccessDeniedError, match=r"/closed: permission denied"):
        _put(tmp_path, f"{tmp_path}/{key}")


@pytest.mark.parametrize("if_absent", [False, True])
def test_no_room(folder: Path, target: FolderDestination, *, if_absent: bool) -> None:
    """A write that the system cuts short leaves no half file, and says so in one line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(StoreFullError, match=rf"\A{folder}/a: too large.*\Z"):
            target.put(f"{folder}/a", bytes(2_000), FACTS, if_absent=if_absent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.utime(path, (2, 2)),  # as writing the same number of bytes into it
        lambda path: path.with_name("new").rename(path),
        lambda path: path.write_bytes(b"0123456789+"),
        Path.unlink,
    ],
    ids=["rewritten", "replaced", "grown", "deleted"],
)
def test_a_source_that_changes(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """Size, time and inode tell; each way of changing a file is seen."""
    for name in ("a.zip", "new"):
        (tmp_path / name).write_bytes(b"0123456789")
        os.utime(tmp_path / name, (1, 1))
    where = Location("file", "", f"{tmp_path}/a.zip")
    source = files.FileSource()
    archive = source.pinned(where, source.stat(where).pin)
    assert b"".join(archive.stream(ByteRange(2, 4))) == b"23"
    pieces = archive.stream(ByteRange(0, 10))
    change(tmp_path / "a.zip")
    for stream in (archive.stream(ByteRange(4, 6)), pieces):
        with pytest.raises(SourceChangedError):
            list(stream)


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, _listen, lambda path: path.symlink_to("/dev/zero")],
    ids=["FIFO", "socket", "device"],
)
def test_an_archive_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    """A shell writes ``<(curl URL)`` as a pipe: it has no end to seek, and is not waited for."""
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    make(Path("a.zip"))
    with pytest.raises(StorageError, match=r"a pipe or a device; .* save it in a file first"):
        files.FileSource().tail(Location("file", "", f"{tmp_path}/a.zip"), 10)


def test_a_link_to_no_archive_is_not_its_own_suggestion(tmp_path: Path) -> None:
    """Only other names are near."""
    (tmp_path / "a.zip").symlink_to("nowhere.zip")
    (tmp_path / "A.zip").touch()
    with pytest.raises(NotFoundError, match=r"a\.zip: no such file or folder; near: 'A\.zip'\Z"):
        files.FileSource().stat(Location("file", "", f"{tmp_path}/a.zip"))


def test_an_archive_that_grows_while_its_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are those of the pinned size, also of an archive that is shorter than its tail."""
    path = tmp_path / "a.zip"
    path.write_bytes(b"0123456789")
    look = os.fstat

    def look_and_grow(file: int) -> os.stat_result:
        facts = look(file)
        path.write_bytes(b"0123456789+")
        return facts

    monkeypatch.setattr(os, "fstat", look_and_grow)
    tail = files.FileSource().tail(Location("file", "", str(path)), 1_000)
    assert (tail.data, tail.pin.size) == (b"0123456789", 10)


@pytest.mark.parametrize(
    ("made", "act"),
    [
        ("a", _put),
        ("", _put),
        ("a", lambda root, key: list(FolderDestination(str(root)).read(key))),
        ("a", lambda root, _: list_all(FolderDestination(str(root)), f"{root}/a/")),
    ],
    ids=["put", "put into a new folder", "read", "list"],
)
def test_a_folder_swapped_for_a_link_at_any_moment(
    folder: Path, outside: Path, made: str, act: Callable[[Path, str], object]
) -> None:
    """Whoever may write in the folder swaps it before any one call: nothing outside is touched.

    Nothing is read there either. Calls are those of Python's own functions, 60 at most.
    """
    for number in range(90):
        inside = folder / str(number)
        (inside / made).mkdir(parents=True)
        sys.setprofile(partial(_swap_in_turn, itertools.count(-number), inside, outside))
        with contextlib.suppress(S3UnzipError):
            assert not act(inside, f"{inside}/a/f")
        sys.setprofile(None)
    assert not (inside / "a").is_symlink()


def test_an_open_folder_swapped_for_a_link(
    folder: Path, target: FolderDestination, outside: Path
) -> None:
    """A folder that was used before is no way out; the file is written where the folder is."""
    target.put(f"{folder}/a/b/f", b"body", FACTS, if_absent=False)
    (folder / "a").rename(folder / "moved")
    target.put(f"{folder}/a/b/f", b"again", FACTS, if_absent=False)
    assert (folder / "a/b/f").read_bytes() == b"again"
    assert (folder / "moved/b/f").read_bytes() == b"body"
    _swap(folder, outside)
    with pytest.raises(StorageError, match="symbolic link"):
        target.put(f"{folder}/a/b/f", b"body", FACTS, if_absent=False)


def test_a_destination_that_is_replaced_is_opened_anew(
    folder: Path, target: FolderDestination
) -> None:
    """A write into a deleted destination is a fault of the moment: the next attempt is right."""
    target.put(f"{folder}/f", b"body", FACTS, if_absent=False)
    (folder / "f").unlink()
    folder.rmdir()
    with pytest.raises(ServiceFaultError, match="deleted or replaced in the meantime"):
        target.put(f"{folder}/f", b"body", FACTS, if_absent=False)
    target.put(f"{folder}/f", b"body", FACTS, if_absent=False)
    assert (folder / "f").read_bytes() == b"body"


def count_open_folders(root: Path) -> int:
    """Return how many descriptors of this process are of `root` or of folders in it."""
    folders = {path.stat().st_ino for path in (root, *root.iterdir())}
    count = 0
    for descriptor in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            count += os.fstat(int(descriptor.name)).st_ino in folders
    return count


def test_open_folders_are_few_and_closed(tmp_path: Path) -> None:
    """Not more folders stay open than the bound, and none when the destination is gone."""
    target = FolderDestination(str(tmp_path))
    for number in range(3 * open_folders.MAX_OPEN):
        target.put(f"{tmp_path}/{number}/f", b"body", FACTS, if_absent=False)
        assert 1 < count_open_folders(tmp_path) <= 1 + open_folders.MAX_OPEN
    del target
    assert count_open_folders(tmp_path) == 0


def test_leftovers_are_removed_below_the_folder_only(tmp_path: Path) -> None:
    """A damaged record may have any key: a folder above the destination is not even opened."""
    names = [own_prefix("run") + "1", f"out/{own_prefix('run')}2", f"out/a/{own_prefix('run')}3"]
    (tmp_path / "out/a").mkdir(parents=True)
    for name in names:
        (tmp_path / name).touch()
    target = FolderDestination(f"{tmp_path}/out")
    for folder in ("../", "a/../../", "./"):
        assert target.remove_own(f"{target.root_prefix}{folder}", "run") == 0
    assert all((tmp_path / name).exists() for name in names)
    assert target.remove_own(target.root_prefix, "run") == 1
    assert target.remove_own(f"{target.root_prefix}a/", "run") == 1
    assert [(tmp_path / name).exists() for name in names] == [True, False, False]


def test_folders_that_errors_hold_are_closed_with_the_others(
    folder: Path, target: FolderDestination
) -> None:
    """A batch keeps the errors of its members until it ends, and they keep their tracebacks."""
    _put(folder, f"{folder}/a/file")
    errors = []
    for number in range(5):
        with pytest.raises(StorageError, match="a file is where a folder is needed") as refused:
            target.put(f"{folder}/a/file/{number}", b"body", FACTS, if_absent=False)
        errors.append(refused.value)
    assert count_open_folders(folder) > len(errors)
    target.release()
    assert count_open_folders(folder) == 0


def test_a_folder_swapped_for_a_link_within_one_write(
    folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the bytes and the name: the file goes where its folder has gone."""
    _act_after_writes(monkeypatch, partial(_swap, folder, outside))
    _put(folder, f"{folder}/a/f")
    assert (folder / "aside/f").read_bytes() == b"body"


def test_a_folder_swapped_for_a_link_before_an_upload_is_complete(
    folder: Path, target: FolderDestination, outside: Path
) -> None:
    """The folder was checked when the upload began; what counts is where it is completed."""
    upload, part = _begin(target, f"{folder}/a/f")
    _swap(folder, outside)
    with pytest.raises(StorageError, match="symbolic link"):
        target.complete_upload(upload, [part], if_absent=False)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_uploads_file_swapped_for_a_link(
    folder: Path, target: FolderDestination, outside: Path, link: Callable[[Path, Path], None]
) -> None:
    """Neither a symbolic nor a hard link in the place of our own file is written through."""
    upload = Upload(f"{folder}/f", target.create_upload(f"{folder}/f", FACTS))
    own = folder / f"{OWN}{upload.upload_id}"
    own.unlink()
    link(outside / "f", own)
    with pytest.raises(StorageError):
        target.upload_part(upload, 1, 0, b"body", zlib.crc32(b"body"))
    target.abort_upload(upload)
    assert not list(folder.iterdir())


def test_a_long_way_to_the_folder_costs_no_name(tmp_path: Path) -> None:
    """A path may be longer than the system takes in one call: only its parts count."""
    folder = tmp_path / "/".join(["n" * 200] * 15)
    folder.mkdir(parents=True)
    key = f"{folder}/{'/'.join(['m' * 200] * 6)}/f"
    assert len(key) > os.pathconf("/", "PC_PATH_MAX")
    target = FolderDestination(str(folder))
    target.put(key, b"body", FACTS, if_absent=False)
    assert b"".join(target.read(key)) == b"body"
    assert list_all(target, f"{folder}/") == [StoredObject(key, 4)]


@pytest.mark.usefixtures("no_umask")
def test_runs_are_private(tmp_path: Path) -> None:
    """A run's records may hold a presigned URL, so only the owner can read them, with any umask."""
    home = tmp_path / "home"
    for name in ("run.json", "outcomes/task.jsonl"):
        _records(home, "run-1").write(name, [b"{}"])
    (home / "runs/run-2").mkdir(mode=0o755)
    _records(home, "run-2").write("run.json", [b"{}"])
    assert (set(map(_mode_of, home.rglob("*"))), _mode_of(home)) == ({0o700, 0o600}, 0o700)


def test_a_folder_that_runs_are_kept_in_stays_as_it_is(tmp_path: Path) -> None:
    """The folder that S3UNZIP_HOME is in, or names, may be ``/tmp``: only a run's own is closed."""
    (tmp_path / "shared/home").mkdir(parents=True)
    for name in ("shared", "shared/home"):
        (tmp_path / name).chmod(0o777)
    for home in ("shared/home", "shared/new"):
        _records(tmp_path / home).write("run.json", [b"{}"])
    for name, mode in (("", 0o777), ("/home", 0o777), ("/home/runs/run-1", 0o700), ("/new", 0o700)):
        assert _mode_of(tmp_path / f"shared{name}") == mode


@pytest.mark.parametrize(
    ("fold", "warning", "ignored"),
    [
        (str.lower, "case-collision", "upper and lower case"),
        (partial(unicodedata.normalize, "NFC"), "unicode-collision", "the Unicode form of names"),
    ],
)
def test_a_disk_that_ignores_case(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fold: Callable[[str], str],
    warning: str,
    ignored: str,
) -> None:
    """Members whose keys differ only in case, or in Unicode form, would be one file there."""
    target = FolderDestination(str(tmp_path))
    target.check_ready(1, [warning])
    find = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: find(fold(str(path))))
    target.check_ready(1)
    with pytest.raises(StorageError, match=f"this disk ignores {ignored}"):
        target.check_ready(1, [warning])
    assert not list(tmp_path.iterdir())


def test_room_is_checked_before_the_first_byte(tmp_path: Path) -> None:
    """A new folder with less room than all members need is refused, one with files is not."""
    with pytest.raises(StoreFullError, match="bytes are needed"):
        FolderDestination(f"{tmp_path}/new/deep").check_ready(10**18)
    FolderDestination(f"{tmp_path}/new/deep").check_ready(1)
    (tmp_path / "a").write_bytes(b"1")
    FolderDestination(str(tmp_path)).check_ready(10**18)
