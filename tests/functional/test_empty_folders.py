"""Folders of an archive that hold nothing."""

from pathlib import Path

import pytest

from tests.processes import Program
from tests.zips import Entry, build

ENTRIES = (
    Entry("empty/", b""),
    Entry("deep/below/", b""),
    Entry("full/", b""),
    Entry("full/x", b"1"),
    Entry("x" * 9000 + "/", b""),  # longer than a key may be, below any folder
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with an archive that has empty folders."""
    (tmp_path / "a.zip").write_bytes(build(*ENTRIES))
    return Program(tmp_path)


def below(folder: Path) -> list[str]:
    """Return what is below a folder; folders end in a slash."""
    return sorted(
        str(one.relative_to(folder)) + ("/" if one.is_dir() else "") for one in folder.rglob("*")
    )


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), ["a/", "a/deep/", "a/deep/below/", "a/empty/", "a/full/", "a/full/x"]),
        (("--prefix", ""), ["deep/", "deep/below/", "empty/", "full/", "full/x"]),
        (("--strip-components", "1"), ["a/", "a/below/", "a/x"]),
        (("--exclude", "empty/"), ["a/", "a/deep/", "a/deep/below/", "a/full/", "a/full/x"]),
        (("--include", "full/"), ["a/", "a/full/", "a/full/x"]),
        (("--member", "full/x"), ["a/", "a/full/", "a/full/x"]),
        (("--limit", "1"), ["a/", "a/full/", "a/full/x"]),
        (("--key-template", "a/{name}"), ["a/", "a/x"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_empty_folders_are_created(
    program: Program, options: tuple[str, ...], found: list[str]
) -> None:
    """A folder destination gets the folders that the options select; `verify` finds it equal."""
    ended = program.run("run", "a.zip", "out", "-w", "1", *options)
    assert ended.code == 0, ended.err
    assert below(program.folder / "out") == found
    verified = program.run("verify", "a.zip", "out", *options)
    assert verified.code == 0, verified.out


def test_a_file_with_the_name_of_a_folder_stays(program: Program) -> None:
    """A warning names the folder that cannot be created; the run completes."""
    (program.folder / "out" / "a").mkdir(parents=True)
    (program.folder / "out" / "a" / "empty").write_bytes(b"mine")
    ended = program.run("run", "a.zip", "out", "-w", "1")
    assert ended.code == 0
    assert "folders not created: 1; " in ended.err
    assert "out/a/empty: a file is where a folder is needed" in ended.err
    assert (program.folder / "out" / "a" / "empty").read_bytes() == b"mine"
    assert (program.folder / "out" / "a" / "deep" / "below").is_dir()
