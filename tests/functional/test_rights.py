"""A user without the rights, a folder that is gone, a disk that is full: words and an exit code.

Root may read and write everything, so as root the command runs without the capabilities for that.
docs/mistakes.toml has a folder that may not be written, and an archive that may not be read.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3unzip.errors import S3UnzipError
from s3unzip.local.runs import lock_run
from tests.support import processes, zips

DENIED = "permission denied: change its rights, or use another place"
KEPT = "this folder keeps the records of runs; set S3UNZIP_HOME to use another folder"
ENTRIES = [zips.Entry(f"f{number}", os.urandom(40_000), zips.DEFLATE) for number in range(60)]

pytestmark = pytest.mark.skipif(
    processes.LIMITED is None, reason="root may do everything; no setpriv"
)


class Limited(processes.Program):
    """The command line of a user whom the rights of files bind."""

    command = (*(processes.LIMITED or ()), *processes.COMMAND)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Limited]:
    """Return the command line in a folder with an archive; its folders are closed no longer."""
    program = Limited(tmp_path)
    program.add("a.zip", *ENTRIES)
    (tmp_path / "closed").mkdir(mode=0o555)
    yield program
    for name in ("closed", "out", ".runs/runs"):
        if (tmp_path / name).exists():
            (tmp_path / name).chmod(0o700)


@pytest.mark.parametrize(
    ("home", "code", "cause", "runs_code"),
    [
        ("closed/runs", 6, DENIED, 0),
        ("/dev/null/runs", 6, "/dev/null: a file is where a folder is needed", 6),
        ("~nosuchuser", 2, "~nosuchuser: there is no such home folder; give the whole path", 2),
    ],
)
def test_a_folder_of_runs_that_cannot_be_used(
    program: Limited, home: str, code: int, cause: str, runs_code: int
) -> None:
    """The variable that names another one is told."""
    program.variables["S3UNZIP_HOME"] = home
    ended = program.start("run", "a.zip", "out", "-w", "1").ends(code)
    assert ended.err.splitlines()[-1].endswith(f"{cause}; {KEPT}")
    assert program.start("runs").code == runs_code


def test_a_run_that_may_not_begin_leaves_the_records_of_the_earlier_one(program: Limited) -> None:
    """A folder that takes no file refuses the run before anything of the earlier run is deleted."""
    run = ("run", "a.zip", "out", "-w", "1")
    program.start(*run).ends(0)
    (program.folder / "out").chmod(0o555)
    program.start(*run).ends(6, DENIED)
    program.start("show", "latest").ends(0)


@pytest.mark.parametrize(
    ("function", "number"),
    [("s3unzip.local.runs.make_folders", errno.EROFS), ("fcntl.flock", errno.ENOLCK)],
)
def test_a_home_without_writes_or_locks_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    """A container, or a home on a network, needs another folder for records."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(function, refuse)
    with pytest.raises(S3UnzipError, match=f"{tmp_path}.*(read-only|locks).*{KEPT}"):
        lock_run(str(tmp_path), "2026-11-23/201532-a-00000000")


@pytest.mark.parametrize("words", ["runs", "show", "resume latest", "verify a.zip out"])
def test_a_folder_of_runs_that_may_not_be_read(program: Limited, words: str) -> None:
    """Commands that look for runs say which folder it is."""
    (program.home / "runs").mkdir(parents=True)
    (program.home / "runs").chmod(0)
    assert program.start(*words.split()) == (
        6,
        "",
        f"s3unzip: {program.folder}/.runs/runs: {DENIED}; {KEPT}\n",
    )


@pytest.mark.parametrize(
    "words", ["closed/b.zip out", "a.zip closed/b.zip out", "closed/b.zip out -q"]
)
def test_an_archive_that_may_not_be_deleted(program: Limited, words: str) -> None:
    """It stays, and the exit code says so, also of several archives and of `resume`."""
    (program.folder / "closed").chmod(0o777)
    program.add("closed/b.zip", *ENTRIES[:1])
    (program.folder / "closed").chmod(0o555)
    program.start("run", *words.split(), "--after-success", "delete").ends(6, DENIED)
    program.start("resume", "b").ends(6, DENIED)


def test_a_run_that_another_user_began(program: Limited) -> None:
    """Resuming it says which file may not be opened."""
    program.extract("a.zip", "out")
    (run,) = program.runs()
    kept = program.home / "runs" / run
    (kept / "report.json").unlink()
    kept.chmod(0)
    ended = program.start("resume", run)
    kept.chmod(0o700)
    ended.ends(6, DENIED)


def test_the_current_folder_is_gone(program: Limited) -> None:
    """A path that is not whole means nothing then; one that is does."""
    line = f"cd gone && rmdir ../gone && exec {' '.join(processes.COMMAND)}"
    for typed, code in (
        ("run ../a.zip out", 2),
        ("plan a.zip", 2),
        (f"ls '{program.folder}/a.zip'", 0),
    ):
        (program.folder / "gone").mkdir()
        program.start_as(["sh", "-c", f"{line} {typed}"]).ends(code)


@pytest.fixture
def mounted(program: Limited, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder that is a file system of its own, mounted with options."""
    place = program.folder / "mounted"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", str(request.param), "s3unzip-test", str(place)],
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip("file systems may not be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
@pytest.mark.parametrize("mounted", ["ro"], indirect=True)
def test_a_file_system_that_is_read_only(program: Limited, mounted: Path) -> None:
    """It is told as such."""
    denial = f"s3unzip: {mounted}: the file system is read-only: use another place"
    assert program.extract("a.zip", "mounted").ends(6).err.splitlines()[-1] == denial


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
@pytest.mark.parametrize("mounted", ["size=1m"], indirect=True)
def test_a_disk_that_becomes_full(program: Limited, mounted: Path) -> None:
    """Every file that is there is whole, and `resume` ends the run when there is room."""
    program.extract("a.zip", "mounted").ends(6, "bytes are needed")
    assert not (mounted / "a").exists()
    (mounted / "older").touch()  # how much room older files give back is not known
    program.extract("a.zip", "mounted").ends(
        5, "no space left: make room, or use another disk (store-full)", "next: s3unzip resume 20"
    )
    assert {path.stat().st_size for path in (mounted / "a").iterdir()} == {40_000}
    subprocess.run(["mount", "-o", "remount,size=16m", str(mounted)], check=True)
    program.run("resume", "latest", "-w", "1").ends(0)
    assert program.run("verify", "a.zip", "mounted").code == 0
