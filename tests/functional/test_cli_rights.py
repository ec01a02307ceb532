"""A user without the rights, a folder that is gone, a disk that is full: words and an exit code.

Root may read and write everything, so as root the command runs without the capabilities for that.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import COMMAND, LIMITED, Program
from tests.zips import DEFLATE, Entry, build

DENIED = "permission denied: change its rights, or use another place"
KEPT = "records of runs are kept there: S3UNZIP_HOME names another folder"
ENTRIES = [Entry(f"f{number}", os.urandom(40_000), DEFLATE) for number in range(60)]

pytestmark = pytest.mark.skipif(LIMITED is None, reason="root may do everything; no setpriv")


class Limited(Program):
    """The command line of a user whom the rights of files bind."""

    command = (*(LIMITED or ()), *COMMAND)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Limited]:
    """Return the command line in a folder with an archive; its folders are closed no longer."""
    (tmp_path / "a.zip").write_bytes(build(*ENTRIES))
    (tmp_path / "closed").mkdir(mode=0o555)
    yield Limited(tmp_path)
    for name in ("closed", ".runs"):
        if (tmp_path / name).exists():
            (tmp_path / name).chmod(0o700)


@pytest.mark.parametrize("place", ["closed", "closed/below/it"])
def test_a_folder_that_may_not_be_written(program: Limited, place: str) -> None:
    """The file is named, nothing is written, and another folder is taken."""
    ended = program.run("run", "a.zip", place, "-w", "1")
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == f"s3unzip: {program.folder / place}: {DENIED}"
    assert list((program.folder / "closed").iterdir()) == []
    assert program.run("run", "a.zip", "open", "-w", "1").code == 0


@pytest.mark.parametrize("words", [("ls",), ("test",), ("run", "out"), ("plan", "out")])
def test_an_archive_that_may_not_be_read(program: Limited, words: tuple[str, ...]) -> None:
    """Each command names it."""
    (program.folder / "a.zip").chmod(0)
    ended = program.run(words[0], "a.zip", *words[1:])
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == f"s3unzip: {program.folder}/a.zip: {DENIED}"
    assert not (program.folder / "out").exists()


def test_a_folder_of_runs_that_may_not_be_written(program: Limited) -> None:
    """The variable that names another one is told."""
    program.variables["S3UNZIP_HOME"] = str(program.folder / "closed/runs")
    ended = program.run("run", "a.zip", "out", "-w", "1")
    assert ended.code == 6
    assert ended.err.splitlines()[-1].endswith(f"{DENIED}; {KEPT}")
    assert program.run("runs").code == 0


@pytest.mark.parametrize(
    "words", [("runs",), ("show",), ("resume", "latest"), ("verify", "a.zip", "out")]
)
def test_a_folder_of_runs_that_may_not_be_read(program: Limited, words: tuple[str, ...]) -> None:
    """Commands that look for runs say which folder it is."""
    (program.folder / ".runs/runs").mkdir(parents=True)
    (program.folder / ".runs/runs").chmod(0)
    ended = program.run(*words)
    (program.folder / ".runs/runs").chmod(0o700)
    assert (ended.code, ended.err) == (
        6,
        f"s3unzip: {program.folder}/.runs/runs: {DENIED}; {KEPT}\n",
    )


def test_a_run_that_another_user_began(program: Limited) -> None:
    """Resuming it says which file may not be opened."""
    program.run("run", "a.zip", "out", "-w", "1")
    (kept,) = (program.folder / ".runs/runs").glob("*/*")
    (kept / "report.json").unlink()
    kept.chmod(0)
    ended = program.run("resume", f"{kept.parent.name}/{kept.name}")
    kept.chmod(0o700)
    assert ended.code == 6
    assert DENIED in ended.err


@pytest.mark.parametrize("words", [("run", "../a.zip", "out"), ("ls", "a.zip"), ("plan", "a.zip")])
def test_the_current_folder_is_gone(program: Limited, words: tuple[str, ...]) -> None:
    """A path that is not whole means nothing then; one that is does."""
    (program.folder / "gone").mkdir()
    line = f'cd gone && rmdir ../gone && exec "{sys.executable}" -m s3unzip.cli'
    for typed, code in ((words, 2), (("ls", f"{program.folder}/a.zip"), 0)):
        (program.folder / "gone").mkdir(exist_ok=True)
        ended = program.run_as(["sh", "-c", f"{line} {' '.join(typed)}"])
        assert ended.code == code, ended.err


def test_a_home_folder_that_is_not_known(program: Limited) -> None:
    """`~name` of nobody is told."""
    ended = program.run("ls", "~nosuchuser/a.zip")
    assert ended.code == 2
    assert ended.err == (
        "s3unzip: ~nosuchuser/a.zip: there is no such home folder; give the whole path\n"
    )


@pytest.fixture
def mounted(program: Limited, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder that is a file system of its own, mounted with options."""
    place = program.folder / "mounted"
    place.mkdir()
    options = str(request.param)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "s3unzip-test", str(place)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("file systems may not be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
@pytest.mark.parametrize("mounted", ["ro"], indirect=True)
def test_a_file_system_that_is_read_only(program: Limited, mounted: Path) -> None:
    """It is told as such."""
    ended = program.run("run", "a.zip", "mounted", "-w", "1")
    assert ended.code == 6
    assert ended.err.splitlines()[-1] == (
        f"s3unzip: {mounted}: the file system is read-only: use another place"
    )


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
@pytest.mark.parametrize("mounted", ["size=1m"], indirect=True)
def test_a_disk_that_becomes_full(program: Limited, mounted: Path) -> None:
    """Every file that is there is whole, and `resume` ends the run when there is room."""
    refused = program.run("run", "a.zip", "mounted", "-w", "1")
    assert refused.code == 6
    assert "are to be written" in refused.err
    assert not (mounted / "a").exists()
    (mounted / "older").touch()  # how much room older files give back is not known
    ended = program.run("run", "a.zip", "mounted", "-w", "1")
    assert ended.code == 5
    assert "no space left: make room, or use another place (store-full)" in ended.err
    assert "next: s3unzip resume 20" in ended.err
    sizes = {path.stat().st_size for path in (mounted / "a").iterdir()}
    assert sizes == {40_000}
    subprocess.run(["mount", "-o", "remount,size=16m", str(mounted)], check=True)
    again = program.run("resume", "latest", "-w", "1")
    assert again.code == 0, again.err
    assert program.run("verify", "a.zip", "mounted").code == 0
