"""Several archives with one command: which ones, each its own run, one table, one exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from s3unzip.api.extraction import check_apart, find_archives, names_several
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import Batch, Location, Options, Request, decode
from s3unzip.stores.factory import StoreConfig
from tests.patience import HANG_SECONDS
from tests.processes import Program
from tests.zips import DEFLATE, Entry, build

WRONG = {"crc32": 1}
DAMAGED = build(Entry("good", b"1"), Entry("bad", b"x" * 99, DEFLATE, local=WRONG, central=WRONG))


def archive(name: str) -> bytes:
    """Return an archive with one member that names it."""
    return build(Entry("m.txt", name.encode() * 20, DEFLATE))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with sound archives and others."""
    for name in ("a", "b", "sub/c", "sub/deep/D"):
        path = tmp_path / "in" / f"{name}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive(name))
    (tmp_path / "in/notes.txt").write_text("no archive")
    (tmp_path / "damaged.zip").write_bytes(DAMAGED)
    (tmp_path / "text.zip").write_bytes(b"no archive at all")
    return Program(tmp_path)


def names(found: list[Location]) -> list[str]:
    """Return the last parts of the archives' keys."""
    return [one.key.rsplit("/", 1)[-1] for one in found]


def test_words_that_name_several(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a prefix and a glob do; a file with a star in its name does not."""
    monkeypatch.chdir(program.folder)
    (program.folder / "odd[1].zip").write_bytes(b"")
    several = ["in", "in/", "in/*.zip", "s3://bucket", "s3://bucket/in/", "s3://bucket/*.zip"]
    assert all(names_several(word) for word in several)
    one = ["a.zip", "in/a.zip", "odd[1].zip", "s3://bucket/a.zip", "https://host/a.zip?x=*"]
    assert not any(names_several(word) for word in one)


def test_folders_and_globs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is searched however deep, ``*`` stops at a slash, and nothing is named twice."""
    monkeypatch.chdir(program.folder)
    config = StoreConfig()
    assert names(find_archives(["in"], config)) == ["a.zip", "b.zip", "c.zip", "D.zip"]
    assert names(find_archives(["in/*.zip", "in/a.zip"], config)) == ["a.zip", "b.zip"]
    assert names(find_archives(["in/**/*.zip"], config)) == ["a.zip", "b.zip", "c.zip", "D.zip"]
    with pytest.raises(NotFoundError, match="no archive matches"):
        find_archives(["none*"], config)


def test_archives_with_one_name_are_kept_apart() -> None:
    """Two would overwrite each other's members, unless the template asks for one place."""
    options = Options()
    target = Location("s3", "out", "")
    sources = [Location("s3", "in", "x/a.zip"), Location("s3", "in", "y/a.zip")]
    with pytest.raises(UsageError, match="would both be extracted to a/"):
        check_apart([Request(source, target, options) for source in sources])
    for template in ("{archive_key}/{member}", "{member}"):
        options = Options(key_template=template)
        check_apart([Request(source, target, options) for source in sources])


def test_a_folder_is_extracted(program: Program) -> None:
    """Each archive is below its own name; the table and the sums are on stderr."""
    ended = program.run("run", "in", "out", "-w", "2")
    assert ended.code == 0
    for stem, name in (("a", "a"), ("b", "b"), ("c", "sub/c"), ("D", "sub/deep/D")):
        assert (program.folder / "out" / stem / "m.txt").read_bytes() == name.encode() * 20
    assert ended.err.count("COMPLETED") == 4
    assert "4 of 4 archives are extracted: 4 members" in ended.err
    assert len(program.run("runs").out.splitlines()) == 5


def test_one_failure_stops_no_other(program: Program) -> None:
    """The exit code is the highest one; JSON is one object with all reports."""
    words = ("in/a.zip", "damaged.zip", "text.zip", "none.zip", "in/b.zip")
    ended = program.run("run", *words, "out", "-w", "2", "--json")
    batch = decode(ended.out, Batch)
    assert [end.exit_code for end in batch.archives] == [0, 1, 3, 6, 0]
    assert (ended.code, batch.exit_code) == (6, 6)
    assert batch.archives[3].error is not None
    assert "no such file" in batch.archives[3].error
    assert json.loads(ended.out)["archives"][0]["report"]["verdict"] == "COMPLETED"
    assert "2 of 5 archives are extracted" in ended.err
    assert (program.folder / "out/b/m.txt").exists()


def test_a_dry_run_of_several(program: Program) -> None:
    """The keys of all are listed, and nothing is written."""
    ended = program.run("run", "in/*.zip", "out", "--dry-run")
    assert ended.code == 0
    assert "a/m.txt" in ended.out
    assert "b/m.txt" in ended.out
    assert not (program.folder / "out").exists()


def test_what_does_not_go_with_several(program: Program) -> None:
    """The words say what to do instead."""
    ended = program.run("run", "in", "out", "--delete-extra", "1000")
    assert ended.code == 2
    assert "is for one archive" in ended.err
    both = ("--after-success", "delete", "--no-sign-request")
    ended = program.run("run", "s3://public/in/", "out", *both)
    assert (ended.code, "reached without credentials" in ended.err) == (2, True)
    assert "Missing argument 'DEST'" in program.run("run", "in").err
    assert program.run("run", "in", "in/a.zip", "out", "--prefix", "x/{archive_stem}").code in {
        0,
        2,
    }


def test_archives_are_deleted_after_success(program: Program) -> None:
    """The action is done to each archive that is COMPLETED."""
    words = ("in/a.zip", "damaged.zip", "out")
    ended = program.run("run", *words, "-w", "1", "--after-success", "delete", "--quiet")
    assert (ended.code, ended.err) == (1, "")
    assert not (program.folder / "in/a.zip").exists()
    assert (program.folder / "damaged.zip").exists()


def test_archives_share_the_workers(program: Program) -> None:
    """One after the other; the archives inside, the warnings and the counts belong to each."""
    nested = build(Entry("inner.zip", archive("inner")), Entry("bad.zip", b"PK"))
    (program.folder / "nested.zip").write_bytes(nested)
    words = ("damaged.zip", "nested.zip", "text.zip", "out", "-w", "2", "--nested", "1")
    ended = program.run("run", *words, "-i", "*", "-i", "nothing*", "--json")
    archives = decode(ended.out, Batch).archives
    assert [end.exit_code for end in archives] == [1, 0, 3]
    assert [end.report and end.report.extracted for end in archives] == [1, 2, 0]
    assert archives[0].warnings
    assert sorted(str(run.verdict) for run in archives[1].nested) == ["COMPLETED", "REJECTED"]


def test_ctrl_c_stops_all_and_says_how_to_go_on(program: Program) -> None:
    """Exit 130; what had begun can be resumed, and the rest is started again."""
    folder = program.folder
    for number in range(30):
        entries = (Entry(f"{n}", os.urandom(2_000), DEFLATE) for n in range(400))
        (folder / "in" / f"n{number}.zip").write_bytes(build(*entries))
    process = subprocess.Popen(
        [sys.executable, "-m", "s3unzip.cli", "run", "in", "out", "-w", "1"],
        cwd=folder,
        env=os.environ | program.variables,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + HANG_SECONDS
    while not (folder / "out").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG_SECONDS)
    if process.returncode == 0:  # it was quicker than the signal
        assert b"34 of 34 archives are extracted" in err
        return
    assert process.returncode == 130
    assert b"stopped: " in err
    assert b"of 34 archives ended" in err
    assert b"start the same command again" in err or b"s3unzip resume" in err
