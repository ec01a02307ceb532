"""Independent readers, to compare the labels of sound archives with what they extract."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.corpus.labels import Archive
from tests.encrypting import AES_METHOD
from tests.patience import HANG_SECONDS
from tests.zips import BZIP2, DEFLATE, DEFLATE64, LZMA, STORED, XZ, ZSTD

Reader = Callable[[Archive, Path, Path], None]  # an archive, its file, an empty folder


def _extract_by_zipfile(archive: Archive, file: Path, folder: Path) -> None:
    with zipfile.ZipFile(file) as opened:
        opened.extractall(folder, pwd=archive.policy.password)


def _extract_by_program(archive: Archive, file: Path, folder: Path, *, command: str) -> None:
    password = (archive.policy.password or b"none").decode()
    places = {"password": password, "file": file, "folder": folder}
    words = [word.format(**places) for word in command.split()]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        words, env=environment, capture_output=True, check=False, timeout=HANG_SECONDS
    )
    if ended.returncode > 1:  # 1: with warnings
        raise ValueError(f"{words[0]}: {ended.returncode}: {ended.stdout!r} {ended.stderr!r}")


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
READERS: dict[str, Reader] = {"zipfile": _extract_by_zipfile}
READERS |= {
    name: partial(_extract_by_program, command=command)
    for name, command in COMMANDS.items()
    if shutil.which(name)
}
ABSENT = sorted(COMMANDS.keys() - READERS.keys())


def can_read(reader: str, archive: Archive) -> bool:
    """Return whether a reader must agree with the label of an archive."""
    methods = {member.method for member in archive.members}
    is_one_file = not archive.sizes and not archive.piece
    is_read = reader not in archive.unread.split() and methods <= METHODS[reader]
    is_plain = archive.is_sound and not archive.policy.lenient and not archive.is_large
    return is_plain and is_one_file and is_read


def compare(archive: Archive, reader: str, folder: Path) -> str:
    """Return how a reader differs from the label of a sound archive; empty if it does not.

    Names are compared where all of them are ASCII: readers decode others in their own ways.
    """
    file = folder / "archive.zip"
    file.write_bytes(archive.whole)
    out = folder / "out"
    out.mkdir()
    try:
        READERS[reader](archive, file, out)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        return repr(error)
    files = {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }
    expected = {m.result.key: m.content for m in archive.members if m.listed and m.result}
    if not "".join(expected).isascii():
        return "" if sorted(files.values()) == sorted(expected.values()) else f"{files}"
    return "" if files == expected else f"{files}"
