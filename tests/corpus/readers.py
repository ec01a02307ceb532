"""Independent readers, to compare the labels of sound archives with what they extract."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from tests.corpus.labels import Archive
from tests.support.servers import HANG_SECONDS
from tests.support.zips import AES_METHOD, BZIP2, DEFLATE, DEFLATE64, LZMA, STORED, XZ, ZSTD

COMMANDS = {
    "unzip": "unzip -qq -o -P {password} {file} -d {folder}",
    "bsdtar": "bsdtar -x -f {file} -C {folder} --passphrase {password}",
    "7zz": "7zz x -tzip -y -bd -p{password} -o{folder} {file}",
}
# The methods that each of them reads; 99 is AES.
METHODS = {
    "zipfile": {STORED, DEFLATE, BZIP2, LZMA},
    "unzip": {STORED, DEFLATE, DEFLATE64, BZIP2},
    "bsdtar": {STORED, DEFLATE, BZIP2, LZMA, XZ, ZSTD, AES_METHOD},
    "7zz": {STORED, DEFLATE, DEFLATE64, BZIP2, LZMA, XZ, ZSTD, AES_METHOD},
}
READERS = ["zipfile", *filter(shutil.which, COMMANDS)]


def can_read(reader: str, archive: Archive) -> bool:
    """Return whether a reader must agree with the label of an archive."""
    return (
        archive.is_sound
        and not archive.is_large
        and not archive.policy.lenient
        and not (archive.sizes or archive.piece)
        and reader not in archive.unread.split()
        and {member.method for member in archive.members} <= METHODS[reader]
    )


def compare(archive: Archive, reader: str, folder: Path) -> str:
    """Return how a reader differs from the label of a sound archive; empty if it does not.

    Names are compared where all of them are ASCII: readers decode others in their own ways.
    """
    file = folder / "archive.zip"
    file.write_bytes(archive.whole)
    out = folder / "out"
    out.mkdir()
    try:
        _extract(reader, file, out, archive.policy.password or b"none")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        return repr(error)
    paths = [path for path in out.rglob("*") if path.is_file()]
    files = {str(path.relative_to(out)): path.read_bytes() for path in paths}
    expected = {m.result.key: m.content for m in archive.members if m.listed and m.result}
    is_equal = files == expected
    if not "".join(expected).isascii():
        is_equal = sorted(files.values()) == sorted(expected.values())
    return "" if is_equal else f"{files}"


def _extract(reader: str, file: Path, folder: Path, password: bytes) -> None:
    if reader == "zipfile":
        with zipfile.ZipFile(file) as opened:
            opened.extractall(folder, pwd=password)
        return
    values = {"password": password.decode(), "file": file, "folder": folder}
    words = [word.format(**values) for word in COMMANDS[reader].split()]
    ended = subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    if ended.returncode > 1:  # 1: with warnings
        raise ValueError(f"{words[0]}: {ended.returncode}: {ended.stdout!r} {ended.stderr!r}")
