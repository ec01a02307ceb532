"""Split archives at the real command line: from a folder and a web server, and what is wrong."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.processes import Program
from tests.servers import HttpServer, WebFiles
from tests.split_zips import build_split, cut_pieces, part_names
from tests.zips import DEFLATE, Entry, build

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(9)]
CONTENTS = {str(entry.name): entry.content for entry in ENTRIES}
PARTS = build_split(*ENTRIES, sizes=[2_500, 2_500, 2_500])
NAMES = part_names("a", len(PARTS))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with the parts of an archive."""
    for name, part in zip(NAMES, PARTS, strict=True):
        (tmp_path / name).write_bytes(part)
    return Program(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_command_reads_all_parts(program: Program) -> None:
    """`run`, `ls`, `cat`, `test`, `verify` and `plan` take the last part for the whole archive."""
    listed = program.run("ls", "a.zip", "--json")
    assert [json.loads(line)["name"] for line in listed.out.splitlines()] == list(CONTENTS)
    assert program.run("cat", "a.zip", "d/3.txt").out.encode() == CONTENTS["d/3.txt"]
    assert program.run("test", "a.zip", "-w", "1").code == 0
    assert program.run("plan", "a.zip").code == 0
    ended = program.run("run", "a.zip", "out", "-w", "2")
    assert ended.code == 0
    assert contents(program.folder / "out" / "a") == CONTENTS
    assert program.run("verify", "a.zip", "out").code == 0


def test_parts_on_the_web(program: Program) -> None:
    """The other parts are looked for beside the URL, each by its own ranges."""
    served = dict(zip(NAMES, PARTS, strict=True))
    with HttpServer(WebFiles(served)) as web:
        assert program.run("run", f"{web.url}/a.zip", "out", "-w", "1").code == 0
        assert contents(program.folder / "out" / "a") == CONTENTS
        del served["a.z02"]
        ended = program.run("ls", f"{web.url}/a.zip")
    assert ended.code == 3
    assert "A part of the split archive is missing: a.z02, part 2 of 3" in ended.err


def test_a_file_that_was_cut(program: Program) -> None:
    """The pieces of `split` and 7-Zip are read from the first one on."""
    for number, piece in enumerate(cut_pieces(build(*ENTRIES), 700), 1):
        (program.folder / f"b.zip.{number:03}").write_bytes(piece)
    assert program.run("run", "b.zip.001", "out", "-w", "1").code == 0
    assert contents(program.folder / "out" / "b") == CONTENTS


def test_a_missing_part_is_named(program: Program) -> None:
    """Exit code 3, the name of the part, what to do, and nothing written."""
    (program.folder / "a.z02").unlink()
    ended = program.run("run", "a.zip", "out", "-w", "1")
    assert ended.code == 3
    assert "A part of the split archive is missing: a.z02, part 2 of 3 (part-missing" in ended.err
    assert "Put all parts into one place" in ended.err
    assert not (program.folder / "out").exists()


def test_an_earlier_part_leads_to_the_last(program: Program) -> None:
    """Whoever names the first part is told which one to name."""
    ended = program.run("ls", "a.z01")
    assert ended.code == 3
    assert "give its last part as the archive: a.zip" in ended.err


@pytest.mark.skipif(shutil.which("zip") is None, reason="needs Info-ZIP's zip on PATH")
def test_an_archive_of_info_zip(tmp_path: Path) -> None:
    """What `zip -s` writes is read; our own builder makes the same layout."""
    program = Program(tmp_path)
    (tmp_path / "in").mkdir()
    stored = {f"in/{n}.bin": bytes((n * i * i) % 251 for i in range(50_000)) for n in range(7)}
    for name, data in stored.items():
        (tmp_path / name).write_bytes(data)
    subprocess.run(
        ["zip", "-q", "-0", "-r", "-s", "64k", "b.zip", "in"],
        cwd=tmp_path,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert (tmp_path / "b.z05").exists()
    assert program.run("run", "b.zip", "out", "-w", "1").code == 0
    assert contents(tmp_path / "out" / "b") == stored
