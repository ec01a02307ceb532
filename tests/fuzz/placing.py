"""Target `placing`: odd keys and operations of a folder destination, in a folder with traps.

The oracle is the file system: what lies outside of the folder stays as it is, and a file that is
said to be written is there, under its own name, with its bytes.
"""

import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from zlib import crc32

from s3unzip.errors import ConflictError, S3UnzipError
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.ports import ObjectFacts, Upload

PARTS = (
    "a", "b", "c", "d", "file", "link", "out", "loop", "fifo", "..", ".", "", " ", "...", "\\",
    "a\\b", "~", "-", "*", "\n", "\x00", "\x7f", "e\u0301", "\u00e9", "\u202e",
    "\U0001f4e6", "a" * 255, "a" * 256, "\u00e4" * 130, ".s3unzip-x", ".s3unzip-0123456789abcdef",
    ".s3unzip-x.note", "C:",
)  # fmt: skip
MTIMES = ("0", "-11644473600", "1833029933770")  # to the ends of what an NTFS field can say
OPERATIONS = 6  # on one folder


def lay(parent: Path) -> Path:
    """Make a folder with links out of it and files where folders are wanted; return it."""
    inside, outside = parent / "in", parent / "out"
    for folder in (inside / "a" / "b", outside / "d"):
        folder.mkdir(parents=True)
    (outside / "file").write_bytes(b"outside")
    (outside / "d" / "file").write_bytes(b"outside, too")
    (inside / "file").write_bytes(b"a file")
    (inside / "link").symlink_to("../out/file")
    (inside / "out").symlink_to(outside)
    (inside / "a" / "out").symlink_to("../../out/d")
    (inside / "a" / "loop").symlink_to("loop")
    os.mkfifo(inside / "a" / "fifo")
    return inside


def _around(inside: Path) -> list[tuple[str, bytes, int]]:
    paths = (path for path in sorted(inside.parent.rglob("*")) if path.is_file())
    return [
        (str(path), path.read_bytes(), path.stat().st_mode)
        for path in paths
        if not path.is_relative_to(inside)
    ]


def run_placing(data: bytes, chance: Random) -> bool:
    """Do some operations with odd keys; return whether most were refused.

    Args:
        data: the content of what is written.
        chance: chooses the keys and the operations.
    """
    parent = Path(tempfile.mkdtemp(prefix="s3unzip-fuzz-"))
    try:
        inside = lay(parent)
        before = _around(inside)
        target = FolderDestination(str(inside), private=chance.random() < 0.2)
        refused = 0
        for _ in range(OPERATIONS):
            refused += _operate(target, inside, data[: chance.choice((0, 1, 300))], chance)
            assert _around(inside) == before
        return refused > OPERATIONS // 2
    finally:
        shutil.rmtree(parent)


def _operate(target: FolderDestination, root: Path, body: bytes, chance: Random) -> bool:
    key = _odd_key(root, chance)
    facts = ObjectFacts("text/plain", {"mtime": chance.choice(MTIMES)})
    if_absent = chance.random() < 0.5
    try:
        match chance.choice(("put", "put", "upload", "look", "delete", "abort")):
            case "put":
                target.put(key, body, facts, if_absent=if_absent)
                _check_written(root, key, body)
            case "upload":
                upload = Upload(key, target.create_upload(key, facts))
                part = target.upload_part(upload, 1, 0, body, crc32(body))
                target.complete_upload(upload, [part], if_absent=if_absent)
                _check_written(root, key, body)
            case "look":
                found = target.head(key)
                assert found is None or found.size == sum(map(len, target.read(key)))
            case "delete":
                target.delete([key])
            case "abort":
                target.abort_upload(Upload(key, chance.choice(PARTS)))
    except ConflictError:
        assert if_absent
        return True
    except S3UnzipError:
        return True
    return False


def _odd_key(root: Path, chance: Random) -> str:
    parts = chance.choices(PARTS, k=chance.randint(1, 4))
    return chance.choice((f"{root}/", f"{root}/", f"{root}/", f"{root}", "", "/")) + "/".join(parts)


def _check_written(root: Path, key: str, body: bytes) -> None:
    path = Path(key)
    assert ".." not in path.parts
    assert path.resolve() == path
    assert path.is_relative_to(root.resolve())
    assert path.read_bytes() == body
