"""Selecting nothing is never a silent success: exit code 7, near names, nothing written."""

import json
from pathlib import Path

import pytest

from tests.processes import Program
from tests.zips import DEFLATE, Entry, build

NAMES = ("data/a.csv", "data/b.csv", "docs/readme.txt", "link")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with an archive; one member is refused."""
    entries = [Entry(name, name.encode() * 50, DEFLATE) for name in NAMES[:3]]
    (tmp_path / "a.zip").write_bytes(build(*entries, Entry("bad\x01", b"x")))
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run a.zip out -m nope", "no member is called 'nope'"),
        ("run a.zip out -m data/a.csv -m readme.txt", "near: 'docs/readme.txt'"),
        ("run a.zip out -i *.CSV", "no member matches '*.CSV'; near: 'data/a.csv', 'data/b.csv'"),
        ("run a.zip out -i *.nomatch", "no member matches '*.nomatch'"),
        ("run a.zip out -x **", "excluded by --exclude **"),
        ("plan a.zip out -i *.nomatch", "no member matches '*.nomatch'"),
        ("verify a.zip out -i *.nomatch", "no member matches '*.nomatch'"),
        ("ls a.zip *.nomatch", "no member matches '*.nomatch'"),
        ("ls a.zip data/A.csv", "no member is called 'data/A.csv'; near: 'data/a.csv'"),
        ("cat a.zip data/c.csv", "no member is called 'data/c.csv'; near: 'data/"),
    ],
)
def test_selecting_nothing(program: Program, words: str, said: str) -> None:
    """One line names what fits no member and what may be meant; no run is left behind."""
    ended = program.run(*words.split())
    assert ended.code == 7
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert not (program.folder / "out").exists()
    assert program.run("runs").out.count("\n") <= 1


def test_a_glob_in_vain_beside_another_is_a_warning(program: Program) -> None:
    """The members that are selected are extracted."""
    ended = program.run("run", "a.zip", "out", "-i", "*.csv", "-i", "*.zip", "-w", "1")
    assert ended.code == 0
    assert ended.err.startswith("s3unzip: warning: no member matches '*.zip'\n")
    assert len(list((program.folder / "out/a/data").iterdir())) == 2


def test_an_empty_archive_is_no_mistake(program: Program) -> None:
    """Without a selection there is nothing to miss."""
    (program.folder / "empty.zip").write_bytes(build())
    assert program.run("run", "empty.zip", "out", "-w", "1").code == 0


def test_members_that_are_not_selected_do_not_fail_a_run(program: Program) -> None:
    """A refused member counts only if it is selected."""
    ended = program.run("run", "a.zip", "out", "-i", "*.csv", "-w", "1", "--json", "-q")
    report = json.loads(ended.out)
    assert ended.code == 0
    assert (report["extracted"], report.get("failed", 0), report["excluded"]) == (2, 0, 2)


def test_ls_and_cat_take_names_folders_and_globs(program: Program) -> None:
    """In the order of the arguments, and a folder with all below it."""
    listed = program.run("ls", "a.zip", "docs/", "*.csv", "--json").out.splitlines()
    assert {json.loads(line)["name"] for line in listed} == set(NAMES[:3])
    written = program.run("cat", "a.zip", "docs/readme.txt", "data/*.csv")
    expected = [name * 50 for name in ("docs/readme.txt", "data/a.csv", "data/b.csv")]
    assert (written.code, written.out) == (0, "".join(expected))
