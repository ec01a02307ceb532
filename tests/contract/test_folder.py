"""What is special about folders: links, names that clash, rights, full disks, time and mode."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    ConflictError,
    S3UnzipError,
    SourceChangedError,
    StorageError,
)
from s3unzip.model import Location
from s3unzip.stores.folder.destination import FolderDestination
from s3unzip.stores.folder.source import FileSource
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zipformat.ranges import ByteRange
from tests.contract.places import FACTS

if TYPE_CHECKING:
    from pathlib import Path


def put(folder: Path, key: str, *, if_absent: bool = False) -> None:
    """Write one small file."""
    FolderDestination(str(folder)).put(key, b"body", FACTS, if_absent=if_absent)


def test_time_and_mode_are_restored(tmp_path: Path) -> None:
    """A file has the archive's time and permission bits, and never more than those."""
    facts = ObjectFacts("text/plain", {"mtime": "1000000000", "mode": "4751"})
    target = FolderDestination(str(tmp_path))
    target.put(f"{tmp_path}/a", b"1", facts, if_absent=False)
    found = (tmp_path / "a").stat()
    assert found.st_mtime == 1_000_000_000
    assert stat.S_IMODE(found.st_mode) == 0o751


@pytest.mark.parametrize(
    "key", ["../x", "a/../../x", "/etc/x", "a//b", "a/./b", "", "a/", "nul\0l", ".s3unzip-x"]
)
def test_keys_that_leave_the_folder(tmp_path: Path, key: str) -> None:
    """Whatever the pipeline lets through, a folder writes below itself only."""
    folder = tmp_path / "out"
    whole = key if key.startswith("/") else f"{folder}/{key}"
    with pytest.raises(StorageError):
        put(folder, whole)
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize("name", ["link", "link/deeper"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    """A link that lies in the folder already leads nothing out of it."""
    outside = tmp_path / "outside"
    folder = tmp_path / "out"
    outside.mkdir()
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    with pytest.raises(StorageError, match="symbolic link"):
        put(folder, f"{folder}/{name}/x")
    assert not list(outside.iterdir())


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    """The link goes, what it led to stays."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "a").symlink_to(outside)
    put(folder, f"{folder}/a")
    assert outside.read_bytes() == b"mine"
    assert (folder / "a").read_bytes() == b"body"


def test_names_that_clash(tmp_path: Path) -> None:
    """A file cannot be a folder, too; the message says what is where."""
    put(tmp_path, f"{tmp_path}/a")
    put(tmp_path, f"{tmp_path}/b/c")
    with pytest.raises(StorageError, match="a file is where a folder is needed"):
        put(tmp_path, f"{tmp_path}/a/x")
    with pytest.raises(StorageError, match="a folder is where a file is needed"):
        put(tmp_path, f"{tmp_path}/b")
    with pytest.raises(ConflictError):
        put(tmp_path, f"{tmp_path}/b", if_absent=True)
    with pytest.raises(StorageError, match="too long"):
        put(tmp_path, f"{tmp_path}/{'n' * 256}")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["a", "b", "b/c"]


def test_a_folder_that_somebody_deletes_meanwhile(tmp_path: Path) -> None:
    """The next attempt makes it again."""
    target = FolderDestination(str(tmp_path))
    target.put(f"{tmp_path}/a/b", b"1", FACTS, if_absent=False)
    (tmp_path / "a" / "b").unlink()
    (tmp_path / "a").rmdir()
    with pytest.raises(S3UnzipError):
        target.put(f"{tmp_path}/a/b", b"1", FACTS, if_absent=False)
    target.put(f"{tmp_path}/a/b", b"1", FACTS, if_absent=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    """The message names the path."""
    tmp_path.chmod(0o500)
    with pytest.raises(AccessDeniedError, match=str(tmp_path)):
        put(tmp_path, f"{tmp_path}/a")


def test_no_room(tmp_path: Path) -> None:
    """A write that the system cuts short leaves no half file, and says so in one line."""
    script = f"""
import resource
from s3unzip.errors import StoreFullError
from s3unzip.stores.folder.destination import FolderDestination
from s3unzip.stores.ports import ObjectFacts
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    FolderDestination({str(tmp_path)!r}).put(
        {f"{tmp_path}/a"!r}, bytes(2000), ObjectFacts("a/b", {{}}), if_absent=False)
except StoreFullError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{tmp_path}/a: too large")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["rewritten", "replaced", "grown", "deleted"])
def test_a_source_that_changes(tmp_path: Path, way: str) -> None:
    """Size, time and inode tell; each way of changing a file is seen."""
    path = tmp_path / "a.zip"
    path.write_bytes(b"0123456789")
    where = Location("file", "", str(path))
    source = FileSource()
    archive = source.pinned(where, source.head(where))
    assert archive.read(ByteRange(2, 4)) == b"23"
    pieces = archive.stream(ByteRange(0, 10))
    if way == "rewritten":
        path.write_bytes(b"9876543210")
        os.utime(path, (1, 1))
    elif way == "replaced":
        (tmp_path / "new").write_bytes(b"0123456789")
        (tmp_path / "new").rename(path)
    elif way == "grown":
        path.write_bytes(b"0123456789+")
    else:
        path.unlink()
    with pytest.raises(SourceChangedError):
        archive.read(ByteRange(4, 6))
    with pytest.raises(SourceChangedError):
        list(pieces)
